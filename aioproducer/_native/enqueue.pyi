"""`Producer.enqueue`: the method that loops call, so that a record that need not wait is one native call."""

from collections.abc import Coroutine, Generator

from aioproducer._native.append import Headers, RecordArgs
from aioproducer._native.delivery import Delivery, OnDelivery
from aioproducer._native.record_pipeline import RecordArguments, RecordPipeline

class Accepted(Coroutine[object, None, Delivery]):
    """Result of `enqueue` for a record that need not wait; awaiting it runs no more user code."""

    def send(self, value: object, /) -> object: ...
    def throw(self, *error: object) -> object: ...
    def close(self) -> None: ...
    def __await__(self) -> Generator[object, None, Delivery]: ...

class EnqueueMethod:
    """Base class of `Producer` with its `enqueue`."""

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
        deadline: float | None = None,
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
        """Try this pipeline first; None sends all records the slow path."""
    def _enqueue_arguments(self, record: RecordArguments, /) -> Coroutine[object, None, Delivery]:
        """Enqueue a record that has to wait, after its hooks have run."""
    def _enqueue_within(self, deadline: float, /, *record: *RecordArgs) -> Coroutine[object, None, Delivery]:
        """Enqueue a record with a deadline of its own."""
    def _enqueue_slowly(self, /, *record: *RecordArgs) -> Coroutine[object, None, Delivery]:
        """Enqueue a record that has to wait, or raise if no records are accepted."""
