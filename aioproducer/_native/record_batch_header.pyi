"""Header of a record batch, format v2; the `.pyx` draws it."""

from aioproducer._native.append import RecordBatchBuilder

HEADER_SIZE: int

def encode_header(batch: RecordBatchBuilder) -> bytes:
    """Encode the 61 bytes in front of a batch's records, under its present identity; for tests.

    Requests are encoded by `append_batches`, in one step.
    """
