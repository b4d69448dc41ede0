"""Each option set of a read with Spark's own source and with ours, over the same topics on real Kafka.

`pytest -s` prints the table.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.cache import cache_lock
from tests.spark.crashes.driver import spark_environment
from tests.spark.functions.conftest import HAS_READ_LIMITS
from tests.spark.option_sets import BATCHES, OTHER_COUNT, SETS, fill, places
from tests.spark_jars import SPARK_VERSION, fetch_jars, jars_folder

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(3_600)]

TOPIC = "option-sets"
PROGRAM = "tests.spark.functions.both_formats"
TIMEOUT_S = 3_000
"""Of a hundred and fifty reads, on a very busy machine."""

Outcome = Mapping[str, object]
Outcomes = Mapping[tuple[str, str], Mapping[str, Outcome]]
"""Kind and name of a set -> format -> what it did."""

CASES = [(kind, name) for kind, sets in SETS.items() for name in sets]
REFUSED = [(kind, name) for kind, name in CASES if SETS[kind][name].rows is None]


async def _fetch() -> None:
    async with cache_lock("spark"):
        await fetch_jars()


@pytest.fixture(scope="module")
def jars(kafka_thread: ThreadPoolExecutor) -> str:
    if not HAS_READ_LIMITS:
        pytest.skip(f"the jars are of Spark {SPARK_VERSION}")
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("Spark's own source needs Java and Maven")
    try:
        kafka_thread.submit(lambda: asyncio.run(_fetch())).result()
    except Exception as error:  # noqa: BLE001  # whatever Maven and the network answer
        pytest.skip(f"the jars of Spark's own source cannot be fetched: {error}")
    return ",".join(str(jar) for jar in sorted(jars_folder().glob("*.jar")))


@pytest.fixture(scope="module")
def outcomes(jars: str, kafka_440: KafkaCluster) -> Outcomes:
    """Run all sets in one session of its own."""
    fill(kafka_440.bootstrap_servers, TOPIC)
    ran = subprocess.run(
        [sys.executable, "-m", PROGRAM, kafka_440.bootstrap_servers, TOPIC, jars],
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    found: dict[tuple[str, str], dict[str, Outcome]] = {}
    for kind, name, form, outcome in map(json.loads, ran.stdout.splitlines()):
        found.setdefault((kind, name), {})[form] = outcome
    return found


def shown(outcome: Outcome) -> str:
    """Return how many rows were read, or what is said first."""
    if "refused" in outcome:
        return " ".join(str(outcome["refused"]).partition("\nJVM stacktrace")[0].split())[:200]
    return f"{len(outcome['rows'])} rows"  # type: ignore[arg-type]


@pytest.mark.parametrize("kind, name", CASES, ids=map(": ".join, CASES))
def test_both_formats_read_the_same_or_refuse(outcomes: Outcomes, kind: str, name: str) -> None:
    """Rows with all columns, the schema, the number of tasks where it was asked for, and how far a stream is behind."""
    sparks, ours = outcomes[kind, name]["kafka"], outcomes[kind, name]["aioproducer"]
    print(f"| {kind}: {name} | {shown(sparks)} | {shown(ours)} |")
    if (rows := SETS[kind][name].rows) is None:
        assert "refused" in sparks
        assert "refused" in ours
    else:
        assert ours == sparks
        assert len(ours["rows"]) == len(places(rows, TOPIC))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind, name", REFUSED, ids=map(": ".join, REFUSED))
def test_refusal_is_the_drivers(outcomes: Outcomes, kind: str, name: str) -> None:
    """No task was started, and the error is one of ours."""
    said = str(outcomes[kind, name]["aioproducer"]["refused"])
    assert "ConfigurationError" in said or "aioproducer.errors" in said
    assert "Task" not in said.partition("Traceback")[0]


def test_checkpoint_of_one_format_is_taken_over_by_the_other(outcomes: Outcomes) -> None:
    """And back: each query reads what came since the last one."""
    assert outcomes["checkpoint", ""][""] == [OTHER_COUNT, 1, 1, 1]


def test_record_without_headers_has_null_in_both(outcomes: Outcomes) -> None:
    rows = outcomes["batch", "headers"]["aioproducer"]["rows"]
    assert len(BATCHES) >= 40
    assert any(str(row).endswith("None]") for row in rows)  # type: ignore[attr-defined]
