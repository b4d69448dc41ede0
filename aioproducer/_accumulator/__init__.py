"""Decisions about records: queues of batches, memory, readiness, outcomes, identities.

Plain synchronous objects that take `now` and return what to do. No event loop, socket, clock or randomness
may be imported here; `network` and `sender` act on what is decided here.
"""
