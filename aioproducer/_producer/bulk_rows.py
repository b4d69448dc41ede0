"""Rows made of the columns of `send_many`; `_producer/bulk.py` appends them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat, zip_longest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer._native.append import Headers
    from aioproducer._native.append_many import Row

_MISSING: Final = object()


def rows_of(
    values: Iterable[object],
    keys: Iterable[object] | None,
    *,
    partition: int | None,
    timestamp: int | None,
    headers: Headers | None,
) -> Iterator[Row]:
    _check_column("values", values)
    if keys is None:
        return zip(values, repeat(None), repeat(partition), repeat(timestamp), repeat(headers), strict=False)
    _check_column("keys", keys)
    return ((value, key, partition, timestamp, headers) for value, key in _pairs(values, keys))


def _check_column(name: str, column: object) -> None:
    if isinstance(column, (str, bytes, bytearray, memoryview)) or not isinstance(column, Iterable):
        raise TypeError(f"{name} must be an iterable of {name}, one for each record, got {type(column).__name__}")
    kind = type(column).__name__
    if isinstance(column, Mapping):  # its keys alone would be sent
        raise TypeError(f"{name} must be an iterable of {name}, not a {kind}: pass values=d.values(), keys=d.keys()")
    if isinstance(column, (set, frozenset)):  # results are by position, and a set has none
        raise TypeError(f"{name} must be in order, not a {kind}: pass a list")


def _pairs(values: Iterable[object], keys: Iterable[object]) -> Iterator[tuple[object, object]]:
    for number, (value, key) in enumerate(zip_longest(values, keys, fillvalue=_MISSING)):
        if value is _MISSING or key is _MISSING:
            which, other = ("values", "keys") if value is _MISSING else ("keys", "values")
            raise ValueError(f"keys must be as many as values: there are {number} {which}, and more {other}")
        yield value, key
