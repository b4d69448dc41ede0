"""What is paid per batch of a Produce request, and per response to a request with one batch."""

from collections.abc import Iterable

from aioproducer._native.append import RecordBatchBuilder

def append_batches(
    pieces: list[bytes | memoryview], glue: bytes, batches: Iterable[RecordBatchBuilder], flexible: bool
) -> bytes:
    """Append for each batch `glue`, partition, length and header, and its records: more than 1 KiB as a view.

    Returns:
        The end of the topic's structures, which comes before the next piece.
    """

def plain_response(payload: bytes | memoryview, by_id: bool) -> tuple[int, tuple[object, ...]] | None:
    """Read a response of one partition without details of an error, in a flexible version; None for any other.

    Args:
        by_id: the topic is named by its id.

    Returns:
        The throttle time in ms, and the fields of the `PartitionResponse`.
    """

def encode_header(batch: RecordBatchBuilder) -> bytes:
    """Encode the 61 bytes in front of a batch's records, under its present identity; for tests.

    Requests are encoded by `append_batches`, in one step.
    """
