"""The columns of `send_many`, for callers without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import Protocol, TypeAlias

from aioproducer.bulk_delivery import BulkDelivery, BulkResult


class SendMany(Protocol):
    """`send_many` of a producer or a topic, with all but the columns."""

    def __call__(self, values: Iterable[object], *, keys: Iterable[object] | None) -> Awaitable[BulkDelivery]:
        """Enqueue one record for each value."""
        ...


SendColumns: TypeAlias = Callable[[SendMany, Iterable[object], Iterable[object] | None], BulkResult]
"""Calls it on the loop with values and keys, and waits until all records have ended."""


def read_columns(
    values: Iterable[object], keys: Iterable[object] | None
) -> tuple[Iterable[object], Iterable[object] | None]:
    """Read iterators here: they may belong to the thread that calls, as a database's cursor does, or be slow.

    Keys may be without end, as those of `itertools.repeat`: one more than there are values is enough to refuse them.
    """
    if isinstance(values, Iterator):
        values = list(values)
    if isinstance(keys, Iterator) and isinstance(values, Sized):
        keys = list(islice(keys, len(values) + 1))
    return values, keys
