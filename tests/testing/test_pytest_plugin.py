"""The fixtures that users get, in a project of theirs, with each of the plugins for async tests."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SETTINGS = """
[pytest]
addopts = -q --import-mode=importlib -p no:cacheprovider
filterwarnings = error
"""

FUNCTION_LOOPS = ["-o", "asyncio_default_fixture_loop_scope=function"]  # without it pytest-asyncio warns

STRICT = [*FUNCTION_LOOPS, "-o", "asyncio_mode=strict"]
AUTO = [*FUNCTION_LOOPS, "-o", "asyncio_mode=auto"]

SYNC_TESTS = """
from aioproducer import BlockingProducer

def test_sync(kafka_producer, consumed):
    assert isinstance(kafka_producer, BlockingProducer)
    kafka_producer.send("t", b"sync")
    assert [record.value for record in consumed("t")] == [b"sync"]

def test_next_test_has_a_cluster_of_its_own(consumed, kafka_cluster):
    assert (consumed("t"), kafka_cluster.requests) == ([], [])
"""

ASYNC_TESTS = """
import pytest
from aioproducer import Producer

pytestmark = [pytest.mark.{mark}]

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
def service(kafka_producer):
    async def place_order():
        await kafka_producer.send("t", b"async")
    return place_order

class TestService:
    async def test_async(self, kafka_producer, service, consumed):
        assert isinstance(kafka_producer, Producer)
        await service()
        await kafka_producer.enqueue("t", b"late")
        await kafka_producer.flush()
        assert sorted(record.value for record in consumed("t")) == [b"async", b"late"]

@pytest.mark.parametrize("number", [1, 2])
async def test_again(number, kafka_producer, consumed, kafka_cluster):
    await kafka_producer.send("t", b"%d" % number)
    assert [record.value for record in consumed("t")] == [b"%d" % number]
    kafka_cluster.kill(1)
    await kafka_producer.send("t", b"again")
"""

SCOPES_CONFTEST = """
import pytest
from aioproducer.testing import FakeCluster

@pytest.fixture(scope="{scope}")
def kafka_cluster():
    with FakeCluster.in_thread(1, topics={{"t": 1}}) as cluster:
        yield cluster
"""

SCOPES_TESTS = """
def test_first(kafka_producer):
    kafka_producer.send("t", b"1")

async def test_second(kafka_producer):
    await kafka_producer.send("t", b"2")

def test_third(consumed):
    assert [record.value for record in consumed("t")] == [b"1", b"2"]
"""

MODULE_LOOP = """
import pytest, pytest_asyncio
from aioproducer import Producer

pytestmark = pytest.mark.asyncio(loop_scope="module")

@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def producer(kafka_cluster):
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        yield producer

@pytest.mark.parametrize("number", [1, 2])
async def test_loop_of_the_module(number, producer, kafka_producer, consumed):
    await producer.send("m", b"x", partition=0)
    await kafka_producer.send("m", b"y", partition=0)
    assert len(consumed("m")) == 2 * number
"""


def run_pytest(project: Path, files: dict[str, str], *options: str) -> str:
    for name, text in {"pytest.ini": SETTINGS, **files}.items():
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(
        command,
        cwd=project,
        env=own,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return f"exit code {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "mark, options",
    [
        pytest.param("asyncio", [*STRICT, "-p", "no:anyio"], id="pytest-asyncio strict"),
        pytest.param("slow", [*AUTO, "-o", "markers=slow", "-p", "no:anyio"], id="auto"),
        pytest.param("anyio", ["-p", "no:asyncio"], id="anyio alone"),
        pytest.param("anyio", STRICT, id="anyio beside strict"),
        pytest.param("anyio", AUTO, id="anyio and auto together"),
    ],
)
def test_fixtures_serve_sync_and_async_tests(tmp_path: Path, mark: str, options: list[str]) -> None:
    """Warnings are errors, so nothing is left open either."""
    tests = {"test_sync.py": SYNC_TESTS, "test_async.py": ASYNC_TESTS.format(mark=mark)}

    output = run_pytest(tmp_path, tests, *options)

    assert output.startswith("exit code 0"), output
    assert "5 passed" in output


EXAMPLES = """
import pytest
from aioproducer import BlockingProducer, Producer
from hypothesis import HealthCheck, given, settings, strategies

few = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
def service(kafka_producer):
    async def place_order(number):
        await kafka_producer.send("t", b"%d" % number)
    return place_order

@pytest.mark.{mark}
@few
@given(number=strategies.integers(0, 100))
async def test_async(number, kafka_producer, service, consumed):
    assert isinstance(kafka_producer, Producer)
    before = len(consumed("t"))
    await kafka_producer.send("t", b"0")
    await service(number)
    assert len(consumed("t")) == before + 2

@few
@given(number=strategies.integers(0, 100))
def test_sync(number, kafka_producer):
    assert isinstance(kafka_producer, BlockingProducer)
    kafka_producer.send("t", b"%d" % number)

@pytest.mark.{mark}
async def test_later(request, kafka_cluster):
    with pytest.raises(RuntimeError, match="kafka_producer must be an argument of the async test"):
        request.getfixturevalue("kafka_producer")

def test_later_in_a_sync_test(request):
    assert isinstance(request.getfixturevalue("kafka_producer"), BlockingProducer)
"""


@pytest.mark.parametrize(
    "mark, options",
    [
        pytest.param("asyncio", [*STRICT, "-p", "no:anyio"], id="pytest-asyncio strict"),
        pytest.param("slow", [*AUTO, "-o", "markers=slow", "-p", "no:anyio"], id="auto"),
        pytest.param("anyio", ["-p", "no:asyncio"], id="anyio alone"),
    ],
)
def test_examples_of_hypothesis_and_late_requests(tmp_path: Path, mark: str, options: list[str]) -> None:
    output = run_pytest(tmp_path, {"test_it.py": EXAMPLES.format(mark=mark)}, *options)

    assert output.startswith("exit code 0"), output
    assert "4 passed" in output


def test_fixtures_need_no_plugin_for_async_tests(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, {"test_sync.py": SYNC_TESTS}, "-p", "no:asyncio", "-p", "no:anyio")

    assert output.startswith("exit code 0"), output
    assert "2 passed" in output


def test_cluster_of_a_wider_scope_in_nested_conftest(tmp_path: Path) -> None:
    """The other fixtures use it; each test has a producer of its own."""
    tests = {
        f"{scope}/{name}": text
        for scope in ("module", "session")
        for name, text in {
            "conftest.py": SCOPES_CONFTEST.format(scope=scope),
            f"test_{scope}.py": SCOPES_TESTS,
            f"test_loop_{scope}.py": MODULE_LOOP,
        }.items()
    }
    tests["session/test_loop_session.py"] = MODULE_LOOP.replace('"m"', '"s"')

    output = run_pytest(tmp_path, tests, *AUTO)

    assert output.startswith("exit code 0"), output
    assert "10 passed" in output


def test_undelivered_record_fails_its_test(tmp_path: Path) -> None:
    """The record was not awaited; the next test is not affected."""
    test = """
    from aioproducer.testing import ApiKey, ErrorCode, Where

    async def test_async(kafka_cluster, kafka_producer):
        kafka_cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE))
        await kafka_producer.enqueue("t", b"x")

    async def test_next(kafka_producer):
        await kafka_producer.send("t", b"y")
    """

    output = run_pytest(tmp_path, {"test_it.py": test.replace("\n    ", "\n")}, *AUTO)

    assert output.startswith("exit code 1")
    assert "1 failed, 1 passed" in output
    assert "UndeliveredError: 1 record was not delivered" in output


def test_plugin_is_found_and_imports_nothing_of_the_package() -> None:
    """Pytest imports it in every run of the environment, and before coverage is measured."""
    (plugin,) = [found for found in entry_points(group="pytest11") if found.name == "aioproducer"]
    look = f"import sys, {plugin.value}; print([name for name in sys.modules if name.startswith('aioproducer')])"

    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=100, check=True)

    assert done.stdout == "[]\n"
