"""Brokers to test against: the embedded cluster, and real Apache Kafka where Java and Maven are there."""

import asyncio
import contextlib
import functools
import gc
import logging
import signal
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from aioproducer.errors import UndeliveredError
from aioproducer.testing.kafka import KafkaCluster, MissingToolError
from aioproducer.testing.kafka.cache import require_kafka_prerequisites
from tests import canaries
from tests.canaries import pytest_runtest_teardown, pytest_warning_recorded
from tests.kafka_releases import (
    FAKE,
    REAL,
    RELEASES,
    fake_and_real,
    fixture_of_release,
    real_cluster,
    version_of_release,
)
from tests.nightly import choose, leave_out_nightly, pytest_addoption
from tests.retry_timing import OutOfTime, pytest_runtest_makereport
from tests.shares_of_workers import BrokersOfShares, longest_first, pytest_xdist_make_scheduler

if TYPE_CHECKING:
    from aioproducer import Producer
    from aioproducer.testing import FakeCluster

__all__ = [  # pytest finds them here
    "pytest_addoption",
    "pytest_runtest_makereport",
    "pytest_runtest_teardown",
    "pytest_warning_recorded",
    "pytest_xdist_make_scheduler",
]

settings.register_profile("aioproducer", deadline=None)  # a busy machine is no defect
settings.load_profile("aioproducer")

REAL_VERSIONS = ("3.9.1", "4.4.0")
ANY_BROKER = [FAKE, *(pytest.param(version, marks=pytest.mark.kafka) for version in REAL_VERSIONS)]


@functools.cache
def missing_for_real_kafka() -> str:
    """Return the tools that this machine lacks for the tested versions, with what to install, or an empty text."""
    try:
        for version in REAL_VERSIONS:
            require_kafka_prerequisites(version)
    except MissingToolError as missing:
        return str(missing)
    return ""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the programs under test, also where a shell started us in the background.

    Such a shell has us ignore it, and programs inherit what is ignored.
    """
    choose(config)
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(BrokersOfShares())
    elif config.pluginmanager.hasplugin("cacheprovider"):
        config.pluginmanager.register(OutOfTime(config))
    gc.disable()  # until all is collected: a fifth of that time is spent in search of garbage that is not there
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    canaries.install()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the nightly run has on top; in the processes of xdist, begin with what takes long."""
    leave_out_nightly(config, items)
    if hasattr(config, "workerinput"):
        longest_first(items)


def pytest_collection_finish() -> None:
    """Spare each collection of garbage ten thousand tests: they and what they import are there until the end."""
    freeze_what_stays()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Spare collections of garbage what a file of tests has left: to search a million objects takes a second."""
    returned = yield
    if nextitem is None or nextitem.path != item.path:
        freeze_what_stays()
    return returned


def freeze_what_stays() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the file that has ended; the next would fail with it
        gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def root_logger_stays() -> Iterator[None]:
    """A handler that a file of tests leaves at the root logger would take part in all later ones."""
    before = [*logging.root.handlers]
    yield
    assert logging.root.handlers == before


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests marked `kafka` where the machine cannot run it, and say why."""
    if item.get_closest_marker("kafka") is not None and missing_for_real_kafka():
        pytest.skip(missing_for_real_kafka())


@pytest.fixture(scope="session")
def kafka_thread() -> Iterator[ThreadPoolExecutor]:
    """The thread that starts real brokers, so that they outlive the event loop of the test that asks first.

    One for the whole run: brokers die with the thread that started them.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="kafka") as thread:
        yield thread


def running_kafka(
    release: str, thread: ThreadPoolExecutor, *, nodes: int = 1, properties: Mapping[str, str] | None = None
) -> Iterator[KafkaCluster]:
    kafka = real_cluster(release, nodes=nodes, properties=properties)
    thread.submit(lambda: asyncio.run(kafka.start())).result()
    yield kafka
    thread.submit(lambda: asyncio.run(kafka.stop())).result()


@pytest.fixture(scope="session")
def kafka_391(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """One real Kafka 3.9.1 node, shared by the whole run: use topics of your own, and mark the test `kafka`."""
    yield from running_kafka("3.9.1", kafka_thread)


@pytest.fixture(scope="session")
def kafka_440(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """One real Kafka 4.4.0 node, shared by the whole run: use topics of your own, and mark the test `kafka`."""
    yield from running_kafka("4.4.0", kafka_thread)


@pytest.fixture(scope="session")
def kafka_440_tv0(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """One real Kafka 4.4.0 node with `transaction.version=0`, shared by the whole run; mark the test `kafka`."""
    yield from running_kafka("4.4.0-tv0", kafka_thread)


@pytest.fixture(scope="session")
def three_kafka_nodes(kafka_thread: ThreadPoolExecutor) -> Iterator[KafkaCluster]:
    """Three real Kafka 4.4.0 nodes to kill and pause; leave them running, and mark the test `kafka`."""
    yield from running_kafka("4.4.0", kafka_thread, nodes=3)


@pytest.fixture(params=ANY_BROKER)
def broker_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def real_broker(broker_kind: str, request: pytest.FixtureRequest) -> KafkaCluster | None:
    """The real broker of this kind; `None` where the kind is the fake."""
    if broker_kind == FAKE:
        return None
    kafka: KafkaCluster = request.getfixturevalue(f"kafka_{broker_kind.replace('.', '')}")
    return kafka


@pytest.fixture
async def broker(real_broker: KafkaCluster | None) -> AsyncIterator[str]:
    """Bootstrap servers of one broker of each kind in turn: the same test on the fake and on real Kafka."""
    if real_broker is not None:
        yield real_broker.bootstrap_servers
        return
    from aioproducer.testing import FakeCluster

    async with FakeCluster(nodes=1) as fake:
        yield fake.bootstrap_servers


@pytest.fixture(params=fake_and_real())
async def broker_of_release(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, str]]:
    """A broker's release and address: the embedded cluster and real Kafka as each release in turn."""
    kind, release = request.param
    if kind == REAL:
        kafka: KafkaCluster = request.getfixturevalue(fixture_of_release(release))
        yield release, kafka.bootstrap_servers
        return
    from aioproducer.testing import FakeCluster

    level = RELEASES[release].get("transaction.version")
    options = {} if level is None else {"transaction_version": level}
    async with FakeCluster(nodes=1, profile=version_of_release(release), **options) as fake:
        yield release, fake.bootstrap_servers


@pytest.fixture
async def cluster() -> "AsyncIterator[FakeCluster]":
    """Three embedded brokers on the event loop of the test; topics are created on first use."""
    from aioproducer.testing import FakeCluster

    async with FakeCluster() as running:
        yield running


@pytest.fixture
async def one_broker() -> "AsyncIterator[FakeCluster]":
    """One embedded broker with a topic of three partitions, "orders"; other topics must be made by the test."""
    from aioproducer.testing import FakeCluster

    async with FakeCluster(nodes=1, topics={"orders": 3}, auto_create_topics=False) as running:
        yield running


@pytest.fixture
async def producer(one_broker: "FakeCluster") -> "AsyncIterator[Producer]":
    """A started producer with the defaults on `one_broker`, closed without waiting for what is left."""
    from aioproducer import Producer

    made = Producer(one_broker.bootstrap_servers)
    await made.start()
    yield made
    with contextlib.suppress(UndeliveredError):
        await made.close(0)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own, so that tests can share a broker."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    """Undo what a command configured: later tests would see no events of their producers."""
    yield
    import structlog

    structlog.reset_defaults()
