"""The clients that are measured, one file each; run in worker processes only.

Each public function takes a `Job` and returns an `Outcome`. A client is configured as it comes but for what the job
says (acks=all, idempotent, linger, maybe the batch size) and used the fastest way its documentation shows.
"""
