"""`FakeCluster`: Kafka brokers inside this process, over real TCP, for tests and demos.

As in:

    async with FakeCluster(3, topics={"orders": 6}) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("orders", b"...")
        await cluster.kill(1)
        assert cluster.records("orders", 0)
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from aioproducer._shown_values import in_any_state
from aioproducer.testing.cluster_driver import ClusterDriver
from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.fake_broker.broker import Broker
from aioproducer.testing.fake_broker.cluster import ModelCluster
from aioproducer.testing.fake_broker.coordinators import CoordinatorKind
from aioproducer.testing.fake_broker.exchange import SeenRequest
from aioproducer.testing.fake_broker.faults import Fault, Faults
from aioproducer.testing.fake_broker.log.partition import Partition, committed_records
from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord
from aioproducer.testing.fake_broker.settings import (
    ClusterSettings,
    FakeClusterOptions,
    check_options,
    check_values,
    checked_racks,
    checked_topics,
)
from aioproducer.testing.fake_broker.topics import Topic, TopicRequest
from aioproducer.testing.fake_broker.version_profiles import profile_named
from aioproducer.testing.fake_broker.wire.messages import load_message_classes
from aioproducer.testing.fake_security import SecuredFakeCluster
from aioproducer.testing.tls_server import ListenerCertificates

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

ResultT = TypeVar("ResultT")
FoundT = TypeVar("FoundT")

_SEED = 20_260_101
_HOW_TO_RUN = "use `async with FakeCluster() as cluster:`, or in sync code `with FakeCluster.in_thread() as cluster:`"


def wall_clock_ms() -> float:
    """Wall-clock time in ms since 1970."""
    return time.time_ns() / 1e6


class AnyFakeCluster(SecuredFakeCluster):
    """The methods that `FakeCluster` and `ThreadedFakeCluster` have in common."""

    @abc.abstractmethod
    def _with_model(self, act: Callable[[ModelCluster], ResultT]) -> ResultT:
        """Call `act` on the event loop of the cluster, or here if it is stopped."""

    @abc.abstractmethod
    def _change(
        self, look_up: Callable[[ModelCluster], FoundT], change: Callable[[FoundT, ModelCluster, float], None]
    ) -> None:
        """Look up and change in one step on the event loop of the running cluster, and carry out the effects."""

    def _of_partition(self, topic: str, partition: int, read: Callable[[Partition], ResultT]) -> ResultT:
        return self._with_model(lambda model: read(_partition(model, topic, partition)))

    # What clients and tests look at

    @property
    def connections(self) -> int:
        """Connections open now, of all brokers."""
        return self._with_model(lambda model: sum(broker.connection_count for broker in model.brokers.values()))

    def leader_of(self, topic: str, partition: int) -> int:
        """Node id of the leader, -1 when there is none."""
        return self._of_partition(topic, partition, lambda found: found.leader)

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset after the last record of the leader's log."""
        return self._of_partition(topic, partition, lambda found: found.log.end_offset)

    def high_watermark(self, topic: str, partition: int) -> int:
        """The offset up to which consumers may read."""
        return self._of_partition(topic, partition, lambda found: found.high_watermark)

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The offset up to which every transaction has ended."""
        return self._of_partition(topic, partition, lambda found: found.last_stable_offset)

    def records(self, topic: str, partition: int) -> list[LoggedRecord]:
        """Every record of the leader's log, decoded; also those above the high watermark, and of any transaction."""
        return self._of_partition(topic, partition, lambda found: found.log.records())

    def committed_records(self, topic: str, partition: int) -> list[LoggedRecord]:
        """Return the records of a partition that a consumer with `isolation.level=read_committed` reads."""
        return self._of_partition(topic, partition, committed_records)

    def consumed(self, topic: str) -> list[LoggedRecord]:
        """Return what a consumer with `isolation.level=read_committed` reads of a whole topic, from its beginning.

        Partition by partition, and in each by offset. A topic that does not exist yet and is created on first use has
        no records.

        Raises:
            LookupError: there is no such topic, and it is not created on first use.
        """

        def read(model: ModelCluster) -> list[LoggedRecord]:
            if model.topics.named(topic) is None and model.settings.auto_create_topics:
                return []
            return [record for partition in _topic(model, topic).partitions for record in committed_records(partition)]

        return self._with_model(read)

    # Changes of the cluster

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make another broker the leader of a partition.

        Raises:
            ValueError: that broker is not a live member of the ISR.
            LookupError: there is no such broker or partition.
        """

        def look_up(model: ModelCluster) -> Partition:
            _broker(model, node_id)
            return _partition(model, topic, partition)

        self._change(look_up, lambda moved, _, now: moved.move_leader(node_id, now))

    def move_coordinator(self, key: str, node_id: int, *, kind: CoordinatorKind = CoordinatorKind.TRANSACTION) -> None:
        """Make another broker the coordinator of a transactional id, or of a consumer group.

        Raises:
            ValueError: that broker is not up.
            LookupError: there is no such broker.
        """
        self._change(
            lambda model: _broker(model, node_id),
            lambda _, model, now: model.coordinators.move(kind, key, node_id, now=now),
        )

    def finalize_transaction_version(self, level: int) -> None:
        """Change the cluster's `transaction.version`, up or down, as `kafka-features.sh` does.

        Raises:
            ValueError: the release does not have that level.
        """
        self._with_model(lambda model: model.features.finalize_transaction_version(level))

    def hold_replication(self, node_id: int, *, held: bool = True) -> None:
        """Let a broker stop or resume copying what others append; for the partitions there are now.

        Raises:
            LookupError: there is no such broker.
        """
        self._change(
            lambda model: _broker(model, node_id), lambda _, model, now: model.hold_replication(node_id, now, held=held)
        )

    def create_topic(
        self, name: str, partitions: int = -1, *, replication_factor: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic.

        Raises:
            TopicRefusedError: as a real controller would.
        """
        request = TopicRequest(
            name=name, partitions=partitions, replication_factor=replication_factor, configs=configs or {}
        )
        self._with_model(lambda model: model.topics.create(request))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.

        Raises:
            LookupError: there is no such topic.
        """
        self._change(lambda model: _topic(model, name), lambda topic, model, now: model.topics.delete(topic, now))

    def forget_producers(self, topic: str, partition: int) -> None:
        """Lose what a partition knows of its producers, as when their ids expire."""
        self._of_partition(topic, partition, lambda found: found.producers.forget())


class FakeCluster(AnyFakeCluster):
    """An embedded Kafka cluster, an async context manager.

    Everything lives in memory and on the event loop that started it; the ports are on loopback. The brokers answer
    while that loop runs. Tests without an event loop, or with several, use `FakeCluster.in_thread`.

    What it does not do: share groups, Kerberos, ACLs, quotas, reassignments and elections on request,
    compaction, retention by time, message formats 0 and 1.

    Args:
        nodes: brokers, with ids 1 to `nodes`.
        topics: partitions by name, created at the start.
        profile: the release of Kafka to look like: 4.4.0, 4.3.1, 3.9.1, 2.8, 2.4 or 2.1.
        ports: one for each broker; otherwise the system chooses.
        clock: wall-clock time in ms, for timestamps and the times of tokens; read each time. By default the machine's.
        security: listeners with TLS and SASL beside the plaintext one; `client_options` has what they ask for.
        options: `FakeClusterOptions`.

    Raises:
        TypeError: an option that does not exist, or of another type; topics that are not a mapping of names to numbers.
        ValueError: no node, another number of ports than nodes, an unknown profile, an invalid topic, or GSSAPI; a rack
            of a node that there is not; an option out of its range, a `transaction_version` that the release lacks.
        ModuleNotFoundError: the extra `testing` is not installed.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        topics: Mapping[str, int] | None = None,
        profile: str = "4.4.0",
        ports: Sequence[int] | None = None,
        clock: Callable[[], float] = wall_clock_ms,
        security: ClusterSecurity | None = None,
        **options: Unpack[FakeClusterOptions],
    ) -> None:
        if find_spec("kio") is None:
            raise ModuleNotFoundError("FakeCluster needs kio: pip install 'aioproducer[testing]'", name="kio")
        if nodes < 1:
            raise ValueError(f"a cluster needs at least one node, not {nodes}")
        if not callable(clock):
            raise TypeError(f"clock must be a function that returns ms since 1970, not {type(clock).__name__}")
        if ports is not None and len(ports) != nodes:
            raise ValueError(f"{len(ports)} ports for {nodes} nodes")
        if security is not None and "GSSAPI" in security.mechanisms:
            raise ValueError("the embedded cluster has no Kerberos: for GSSAPI use KafkaCluster")
        check_options(options)
        options.setdefault("replication_factor", min(3, nodes))
        options["racks"] = checked_racks(options.get("racks", {}), nodes)
        release = profile_named(profile)
        check_values(options, release)
        self._settings = ClusterSettings(profile=release, security=security, **options)
        self._nodes = nodes
        self._topics = checked_topics(topics)
        self._ports = list(ports or [0] * nodes)
        self._clock = clock
        self._host = "127.0.0.1"
        self._driver: ClusterDriver | None = None

    @in_any_state
    def __repr__(self) -> str:
        return f"<FakeCluster of {self._nodes}, Kafka {self._settings.profile.name}, {self._state()}>"

    def _state(self) -> str:
        if self._driver is None:
            return "not started"
        return f"at {self._addresses()}" if self._driver.is_running else "stopped"

    @staticmethod
    def in_thread(  # noqa: D417 - `options` are those of the class
        nodes: int = 3,
        *,
        topics: Mapping[str, int] | None = None,
        profile: str = "4.4.0",
        ports: Sequence[int] | None = None,
        clock: Callable[[], float] = wall_clock_ms,
        security: ClusterSecurity | None = None,
        **options: Unpack[FakeClusterOptions],
    ) -> ThreadedFakeCluster:
        """Return a cluster with an event loop and a thread of its own, a context manager for sync code.

        For `BlockingProducer`, Starlette's and FastAPI's `TestClient`, Flask, and fixtures of any scope. Async tests
        may use it too: its brokers do not depend on the test's loop.

        Args:
            nodes: this and the others are those of the class.

        Raises:
            TypeError: as the class.
            ValueError: as the class.
        """
        return ThreadedFakeCluster(
            FakeCluster(nodes, topics=topics, profile=profile, ports=ports, clock=clock, security=security, **options)
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the ports and create the topics.

        Raises:
            OSError: a port is taken. Whenever a start fails, no port stays open.
            RuntimeError: it is running already.
            TopicRefusedError: a topic cannot be created.
        """
        if self._driver is not None and self._driver.is_running:
            raise RuntimeError("this cluster was started already")
        load_message_classes()
        loop = asyncio.get_running_loop()
        settings = dataclasses.replace(
            self._settings,
            # Read each time: in virtual time the loop's clock and the one that tokens are made by run apart.
            wall_clock=lambda now: self._clock() - (loop.time() - now) * 1000,
        )

        def wake() -> None:
            driver.wake_soon()

        model = ModelCluster(self._nodes, settings, random=Random(_SEED), wake=wake)  # noqa: S311
        security = settings.security
        certificates = None if security is None else ListenerCertificates(security)
        self._driver = driver = ClusterDriver(model, loop, certificates)
        try:
            for name, partitions in self._topics.items():
                model.topics.create(TopicRequest(name=name, partitions=partitions))
            for node_id, port in enumerate(self._ports, start=1):
                await driver.listen(node_id, host=self._host, port=port)
                for listener in () if security is None else security.listeners:
                    own = security.ports.get(listener, [0] * self._nodes)[node_id - 1] if security else 0
                    await driver.listen(node_id, host=self._host, port=own, listener=listener)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close everything; the logs can be read until the next `start`."""
        if self._driver is not None:
            await self._driver.stop()

    def _running(self) -> ClusterDriver:
        if self._driver is None or not self._driver.is_running:
            raise RuntimeError(f"the cluster is not running: {_HOW_TO_RUN}")
        self._driver.check_caller()
        return self._driver

    def _with_driver(self, act: Callable[[ClusterDriver], ResultT]) -> ResultT:
        return act(self._running())

    def _with_model(self, act: Callable[[ModelCluster], ResultT]) -> ResultT:
        return act(self.model)

    def _change(
        self, look_up: Callable[[ModelCluster], FoundT], change: Callable[[FoundT, ModelCluster, float], None]
    ) -> None:
        found = look_up(self.model)
        driver = self._running()
        driver.do(partial(change, found, driver.model))

    # What clients and tests look at

    @property
    def model(self) -> ModelCluster:
        """The brokers themselves, without sockets.

        Raises:
            RuntimeError: the cluster was never started.
        """
        if self._driver is None:
            raise RuntimeError(f"the cluster is not started: {_HOW_TO_RUN}")
        return self._driver.model

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, dead ones too, with commas between.

        Raises:
            IllegalStateError: the event loop that started the cluster is not running, so no broker would respond.
            RuntimeError: the cluster was never started.
        """
        if self._driver is not None:
            self._driver.check_loop_runs()
        return self._addresses()

    def _addresses(self) -> str:
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.model.brokers.values())

    @property
    def faults(self) -> Faults:
        """The rules for what goes wrong on purpose."""
        return self.model.faults

    @property
    def requests(self) -> deque[SeenRequest]:
        """The last 10,000 requests that reached a broker, oldest first."""
        return self.model.requests

    # Changes of the cluster

    async def kill(self, node_id: int, *, clean: bool = False) -> None:
        """Let a broker die: port and connections close at once, its partitions get other leaders.

        Args:
            node_id: the broker.
            clean: as a controlled shutdown; the broker then comes back with only the last batch of each producer.

        Raises:
            LookupError: there is no such broker.
        """
        driver = self._running()
        _broker(self.model, node_id)
        driver.do(lambda now: driver.model.kill(node_id, now, clean=clean))
        await driver.close_port(node_id)

    async def restart(self, node_id: int) -> None:
        """Bring a dead broker back, on the same port and with the log it had.

        Raises:
            LookupError: there is no such broker.
        """
        driver = self._running()
        broker = _broker(self.model, node_id)
        if not broker.is_alive:
            await driver.listen(node_id, host=broker.host, port=broker.port)
            for listener, (_, port) in list(broker.endpoints.items()):
                await driver.listen(node_id, host=self._host, port=port, listener=listener)
            driver.do(lambda now: driver.model.restart(node_id, now))

    def coordinator_of(self, key: str, *, kind: CoordinatorKind = CoordinatorKind.TRANSACTION) -> int:
        """Node id of the broker that coordinates a transactional id, or a consumer group."""
        return self.model.coordinators.node_of(kind, key, asyncio.get_running_loop().time())


class ThreadedFakeCluster(AnyFakeCluster):
    """A `FakeCluster` in a thread of its own, a context manager; made by `FakeCluster.in_thread`.

    Its methods are those of `FakeCluster` without `await`, and raise the same errors. Each may be called from any
    thread, also on an event loop, and returns when the cluster's thread has done it, which takes well under a
    millisecond. `requests` and `records` return copies.

    Args:
        cluster: not started.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._portal: BlockingPortal | None = None
        self._exits = ExitStack()

    @in_any_state
    def __repr__(self) -> str:
        return f"{repr(self._cluster)[:-1]}, in a thread>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the thread, open the ports and create the topics.

        Raises:
            OSError: a port is taken. Whenever a start fails, no port and no thread is left.
            RuntimeError: it is running already.
            TopicRefusedError: a topic cannot be created.
        """
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415  # brought by the extra `testing`

        if self._portal is not None:
            raise RuntimeError("this cluster was started already")
        with ExitStack() as exits:
            portal = exits.enter_context(start_blocking_portal())
            portal.call(self._cluster.start)
            exits.callback(portal.call, self._cluster.stop)
            self._exits, self._portal = exits.pop_all(), portal

    def stop(self) -> None:
        """Close the ports and end the thread; the logs can be read until the next `start`. Again does nothing."""
        try:
            self._exits.close()
        finally:
            self._portal = None

    def _call(self, act: Callable[[], ResultT]) -> ResultT:
        """Call `act` on the cluster's loop. Without a loop nothing else uses the cluster, and `act` is called here."""
        return act() if self._portal is None else self._portal.call(act)

    def _running(self) -> BlockingPortal:
        if self._portal is None:
            raise RuntimeError("the cluster is not running: use `with FakeCluster.in_thread() as cluster:`")
        return self._portal

    def _with_driver(self, act: Callable[[ClusterDriver], ResultT]) -> ResultT:
        return self._running().call(partial(self._cluster._with_driver, act))  # noqa: SLF001 - the same cluster

    def _with_model(self, act: Callable[[ModelCluster], ResultT]) -> ResultT:
        return self._call(lambda: act(self._cluster.model))

    def _change(
        self, look_up: Callable[[ModelCluster], FoundT], change: Callable[[FoundT, ModelCluster, float], None]
    ) -> None:
        self._call(partial(self._cluster._change, look_up, change))  # noqa: SLF001 - as above

    # What clients and tests look at

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, dead ones too, with commas between."""
        return self._call(lambda: self._cluster.bootstrap_servers)

    @property
    def faults(self) -> Faults:
        """The rules for what goes wrong on purpose; as the other methods, for any thread."""
        return _ThreadedFaults(self._cluster.faults, self._call)

    @property
    def requests(self) -> list[SeenRequest]:
        """A copy of the last 10,000 requests that reached a broker, oldest first."""
        return self._call(lambda: list(self._cluster.requests))

    def coordinator_of(self, key: str, *, kind: CoordinatorKind = CoordinatorKind.TRANSACTION) -> int:
        """Node id of the broker that coordinates a transactional id, or a consumer group."""
        return self._running().call(partial(self._cluster.coordinator_of, key, kind=kind))

    # Changes of the cluster

    def kill(self, node_id: int, *, clean: bool = False) -> None:
        """Let a broker die: port and connections close at once, its partitions get other leaders."""
        self._running().call(partial(self._cluster.kill, node_id, clean=clean))

    def restart(self, node_id: int) -> None:
        """Bring a dead broker back, on the same port and with the log it had."""
        self._running().call(self._cluster.restart, node_id)


class _ThreadedFaults(Faults):
    """The rules of a cluster in another thread: its brokers count them down meanwhile."""

    def __init__(self, faults: Faults, call: Callable[[Callable[[], object]], object]) -> None:
        super().__init__(released=faults.remove)
        self._kinds = faults._kinds
        self._faults = faults
        self._call = call

    def add(self, fault: Fault) -> Fault:
        self._call(partial(self._faults.add, fault))
        return fault

    def remove(self, fault: Fault) -> None:
        self._call(partial(self._faults.remove, fault))

    def clear(self) -> None:
        self._call(self._faults.clear)


def _broker(model: ModelCluster, node_id: int) -> Broker:
    found = model.brokers.get(node_id)
    if found is None:
        raise LookupError(f"no broker {node_id!r}: node_id must be 1 to {len(model.brokers)}")
    return found


def _topic(model: ModelCluster, name: str) -> Topic:
    found = model.topics.named(name)
    if found is None:
        raise LookupError(f"no topic {name!r}")
    return found


def _partition(model: ModelCluster, topic: str, index: int) -> Partition:
    found = _topic(model, topic).partition(index)
    if found is None:
        raise LookupError(f"no partition {index} of topic {topic!r}")
    return found
