"""`Producer.enqueue`: the verb that loops call, so that a record that need not wait is one native call."""

from collections.abc import Coroutine, Generator

from aioproducer._native.append import Headers
from aioproducer._native.delivery import Delivery, OnDelivery
from aioproducer._native.record_pipeline import PreparedRecord, RecordPipeline

class Accepted(Coroutine[object, None, Delivery]):
    """What `enqueue` returns for a record that need not wait: awaiting it calls nothing of the user's any more."""

    def send(self, value: object, /) -> object: ...
    def throw(self, *error: object) -> object: ...
    def close(self) -> None: ...
    def __await__(self) -> Generator[object, None, Delivery]: ...

class EnqueueMethod:
    """What `Producer` inherits `enqueue` from."""

    def enqueue(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Coroutine[object, None, Delivery]:
        """Accept a record as soon as its topic is known and there is room; arguments and errors as `send`.

        First come, first served. Cancelled while it waits, it withdraws the record, which is then not written. One
        that had its room by then goes on, though the call has not returned: `CancelledError` has a note that says so. A
        record that need not wait is accepted by the call itself.

        Returns:
            The delivery, which need not be awaited: `flush` raises what failed.

        Raises:
            MetadataTimeoutError: the topic is still unknown after `max_block_ms`.
            BufferTimeoutError: no room within `max_block_ms`.
        """
    def _enqueue_natively(self, pipeline: RecordPipeline | None) -> None:
        """Give records to this pipeline first; None has all of them take the slow way."""
    def _enqueue_prepared(self, record: PreparedRecord, /) -> Coroutine[object, None, Delivery]:
        """Return what `enqueue` returns for a record whose hooks have run, and which has to wait."""
    def _enqueue_slowly(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp: int | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
        /,
    ) -> Coroutine[object, None, Delivery]:
        """Return what `enqueue` returns for a record without hooks that has to wait, and where none are taken."""
