"""The producer for threads and scripts.

    any thread ── send, flush, ... ──► handover ──► one background thread with an event loop ──► Producer

What lives here waits in threads, and may be called from any of them; nothing below may.
"""

from aioproducer.blocking.producer import BlockingProducer
from aioproducer.blocking.topic import BlockingTopic

__all__ = ["BlockingProducer", "BlockingTopic"]
