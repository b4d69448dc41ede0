"""The rows of Arrow batches into the batches of their partitions, without an object per row."""

from collections.abc import Iterator

from aioproducer._native.append import RecordAppender
from aioproducer._native.append_many import BulkAppend
from aioproducer._native.arrow_columns import ArrowRows

class ArrowAppend(BulkAppend):
    """`BulkAppend` for the rows of Arrow batches."""

    def __init__(self, appender: RecordAppender, topic: str, rows: Iterator[ArrowRows]) -> None: ...
