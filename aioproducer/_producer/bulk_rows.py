"""Rows made of the columns of `send_many`; `_producer/bulk.py` appends them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from aioproducer._native.append import Headers
    from aioproducer._native.append_many import Row

    Column: TypeAlias = Iterable[object] | AsyncIterable[object]

_MISSING: Final = object()
_UNEQUAL: Final = re.compile(r"zip\(\) argument (\d+) is (shorter|longer) than ")


class CommonParts(NamedTuple):
    """The parts that all records of a call have in common."""

    partition: int | None
    timestamp: int | None
    headers: Headers | None


class Columns:
    """The columns of one call, each with one item for each record.

    Args:
        values: of the records.
        common: parts of all records.
        others: keys, timestamps and record_headers; None for a column that was not given.

    Raises:
        TypeError: a column is not an iterable, or is a mapping or a set.
        ValueError: a part is given both for all records and for each.
    """

    def __init__(self, values: Column, common: CommonParts, others: Mapping[str, Column | None]) -> None:
        given = {"values": values} | {name: column for name, column in others.items() if column is not None}
        for name, column in given.items():
            _check_column(name, column, may_be_async="values" in given and is_async(values))
        for one, each in (("timestamp", "timestamps"), ("headers", "record_headers")):
            if each in given and getattr(common, one) is not None:
                raise ValueError(f"{one} is for all records and {each} for each of them: pass one of them")
        self.is_async: bool = is_async(values)
        self._given: dict[str, Column] = given
        self._common = common

    def rows(self) -> Iterator[Row]:
        """Yield the rows, of iterables.

        Raises:
            ValueError: a column has more or fewer items than the values.
        """
        partition, timestamp, headers = self._common
        given = [column for column in self._given.values() if isinstance(column, Iterable)]
        if len(given) == 1:
            return zip(given[0], repeat(None), repeat(partition), repeat(timestamp), repeat(headers), strict=False)
        return map(self._row_maker(), self._zipped(given))

    async def async_rows(self) -> AsyncIterator[Row]:
        """Yield the rows, item by item, of columns that may be asynchronous.

        Raises:
            ValueError: as `rows`.
        """
        row_of, number = self._row_maker(), 0
        given = self._given.values()
        iterators = [aiter(each if isinstance(each, AsyncIterable) else _as_async(each)) for each in given]
        while True:
            parts = [await anext(iterator, _MISSING) for iterator in iterators]
            if parts[0] is _MISSING and all(part is _MISSING for part in parts):
                return
            for name, part in zip(self._given, parts, strict=True):
                if (part is _MISSING) is not (parts[0] is _MISSING):
                    raise _unequal(name, number, is_shorter=part is _MISSING)
            yield row_of(tuple(parts))
            number += 1

    def _zipped(self, given: list[Iterable[object]]) -> Iterator[tuple[object, ...]]:
        rows, number = zip(*given, strict=True), 0
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except ValueError as error:
                if (found := _UNEQUAL.match(str(error))) is None:
                    raise  # of the user's own iterator
                raise _unequal([*self._given][int(found[1]) - 1], number, is_shorter=found[2] == "shorter") from None
            yield row
            number += 1

    def _row_maker(self) -> Callable[[tuple[object, ...]], Row]:
        """Return a function that makes a row of one item of each column."""
        constants: tuple[object, ...] = (None, *self._common)
        names = [*self._given]
        columns = ("keys", "partitions", "timestamps", "record_headers")
        indexes = [names.index(name) if name in names else len(names) + index for index, name in enumerate(columns)]
        key, partition, timestamp, headers = indexes

        def row_of(parts: tuple[object, ...]) -> Row:
            parts += constants
            return parts[0], parts[key], parts[partition], parts[timestamp], parts[headers]  # type: ignore[return-value]  # as above

        return row_of


def is_async(column: object) -> bool:
    return isinstance(column, AsyncIterable) and not isinstance(column, Iterable)


def _unequal(name: str, number: int, *, is_shorter: bool) -> ValueError:
    which, other = (name, "values") if is_shorter else ("values", name)
    return ValueError(f"{name} must be as many as values: there are {number} {which}, and more {other}")


async def _as_async(column: Iterable[object]) -> AsyncIterator[object]:
    for item in column:
        yield item


def _check_column(name: str, column: object, *, may_be_async: bool) -> None:
    if may_be_async and is_async(column):
        return
    if is_async(column):
        raise TypeError(f"{name} may be an asynchronous iterable if values are one too, got {type(column).__name__}")
    if isinstance(column, (str, bytes, bytearray, memoryview)) or not isinstance(column, Iterable):
        raise TypeError(f"{name} must be an iterable of {name}, one for each record, got {type(column).__name__}")
    kind = type(column).__name__
    if isinstance(column, Mapping):  # its keys alone would be sent
        raise TypeError(f"{name} must be an iterable of {name}, not a {kind}: pass values=d.values(), keys=d.keys()")
    if isinstance(column, (set, frozenset)):  # results are by position, and a set has none
        raise TypeError(f"{name} must be in order, not a {kind}: pass a list")
