"""Decisions about records: queues of batches, memory, readiness, identities.

Plain synchronous objects that take `now` and return what to do. No event loop, socket, clock or randomness
may be imported here; `_sender` acts on what is decided here.
"""
