"""The measured clients, one file each; imported in worker processes only.

Each public function takes a `Job` and returns an `Outcome`. A client has its defaults except for what the job sets
(acks=all, idempotence, linger, perhaps the batch size), and is used in the fastest way that its documentation shows.
"""
