"""What the demo sends and what it reads back."""

from typing import NamedTuple

ROW_HEADER = "row"
"""Header that names a record: its place in what was sent, so that two equal flights are still two records."""

Headers = tuple[tuple[str, bytes | None], ...]


class SentRecord(NamedTuple):
    """One record as it was given to the producer; which one it is, its place among the sent says."""

    key: bytes | None
    """The aircraft's tail number; None where the airline did not report one."""

    value: bytes
    """JSON."""

    headers: Headers
    """`carrier` and `ROW_HEADER`."""


class ReadRecord(NamedTuple):
    """One record as a consumer got it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def headers_of(carrier: bytes, row: int) -> Headers:
    """The headers of the record at place `row`, from 0."""
    return (("carrier", carrier), (ROW_HEADER, b"%d" % row))
