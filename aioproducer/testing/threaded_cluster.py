"""A fake cluster with an event loop and a thread of its own, for tests that have no event loop, or several."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from anyio.from_thread import start_blocking_portal

from aioproducer.testing.fake_broker.faults import Fault, Faults
from aioproducer.testing.fake_broker.transactions.coordinators import CoordinatorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from anyio.from_thread import BlockingPortal

    from aioproducer.testing.fake_broker.broker import SeenRequest
    from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord
    from aioproducer.testing.fake_cluster import FakeCluster

ResultT = TypeVar("ResultT")


class ThreadedFakeCluster:  # noqa: PLR0904 - the methods of FakeCluster
    """A `FakeCluster` in a thread of its own, a context manager; made by `FakeCluster.in_thread`.

    Its methods are those of `FakeCluster` without `await`. Each may be called from any thread, also on an event loop,
    and returns when the cluster's thread has done it, which takes well under a millisecond. `requests` and `records`
    return copies.

    Args:
        cluster: not started.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._portal: BlockingPortal | None = None
        self._exits = ExitStack()

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

    # What clients and tests look at

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, dead ones too, with commas between.

        Raises:
            RuntimeError: the cluster was never started.
        """
        return self._call(lambda: self._cluster.bootstrap_servers)

    @property
    def faults(self) -> Faults:
        """The rules for what goes wrong on purpose; as the other methods, for any thread."""
        return _ThreadedFaults(self._cluster.faults, self._call)

    @property
    def requests(self) -> list[SeenRequest]:
        """A copy of the last 10,000 requests that reached a broker, oldest first."""
        return self._call(lambda: list(self._cluster.requests))

    @property
    def connections(self) -> int:
        """Connections open now, of all brokers."""
        return self._call(lambda: self._cluster.connections)

    def leader_of(self, topic: str, partition: int) -> int:
        """Node id of the leader, -1 when there is none."""
        return self._call(partial(self._cluster.leader_of, topic, partition))

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset after the last record of the leader's log."""
        return self._call(partial(self._cluster.end_offset, topic, partition))

    def high_watermark(self, topic: str, partition: int) -> int:
        """The offset up to which consumers may read."""
        return self._call(partial(self._cluster.high_watermark, topic, partition))

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The offset up to which every transaction has ended."""
        return self._call(partial(self._cluster.last_stable_offset, topic, partition))

    def records(self, topic: str, partition: int) -> list[LoggedRecord]:
        """Every record of the leader's log, decoded; also those above the high watermark, and of any transaction."""
        return self._call(partial(self._cluster.records, topic, partition))

    def committed_records(self, topic: str, partition: int) -> list[LoggedRecord]:
        """The records that a consumer with `isolation.level=read_committed` reads of a partition."""
        return self._call(partial(self._cluster.committed_records, topic, partition))

    def consumed(self, topic: str) -> list[LoggedRecord]:
        """Return what a consumer with `isolation.level=read_committed` reads of a whole topic, from its beginning.

        Partition by partition, and in each by offset. A topic that does not exist yet and is created on first use has
        no records.

        Raises:
            LookupError: there is no such topic, and it is not created on first use.
        """
        return self._call(partial(self._cluster.consumed, topic))

    def coordinator_of(self, key: str, *, kind: CoordinatorKind = CoordinatorKind.TRANSACTION) -> int:
        """Node id of the broker that coordinates a transactional id, or a consumer group.

        Raises:
            RuntimeError: the cluster is not running.
        """
        return self._running().call(partial(self._cluster.coordinator_of, key, kind=kind))

    # Changes of the cluster

    def kill(self, node_id: int, *, clean: bool = False) -> None:
        """Let a broker die: port and connections close at once, its partitions get other leaders.

        Args:
            node_id: the broker's.
            clean: as a controlled shutdown; the broker then comes back with one batch of each producer in mind.

        Raises:
            LookupError: there is no such broker.
            RuntimeError: the cluster is not running.
        """
        self._running().call(partial(self._cluster.kill, node_id, clean=clean))

    def restart(self, node_id: int) -> None:
        """Bring a dead broker back, on the same port and with the log it had.

        Raises:
            LookupError: there is no such broker.
            RuntimeError: the cluster is not running.
        """
        self._running().call(self._cluster.restart, node_id)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make another broker the leader of a partition.

        Raises:
            ValueError: that broker is no live member of the ISR.
            LookupError: there is no such broker or partition.
        """
        self._call(partial(self._cluster.move_leader, topic, partition, node_id))

    def move_coordinator(self, key: str, node_id: int, *, kind: CoordinatorKind = CoordinatorKind.TRANSACTION) -> None:
        """Make another broker the coordinator of a transactional id, or of a consumer group.

        Raises:
            ValueError: that broker is not up.
            LookupError: there is no such broker.
        """
        self._call(partial(self._cluster.move_coordinator, key, node_id, kind=kind))

    def finalize_transaction_version(self, level: int) -> None:
        """Change the cluster's `transaction.version`, up or down, as `kafka-features.sh` does.

        Raises:
            ValueError: the release does not have that level.
        """
        self._call(partial(self._cluster.finalize_transaction_version, level))

    def hold_replication(self, node_id: int, *, held: bool = True) -> None:
        """Let a broker stop copying what others append, or continue; for the partitions there are now.

        Raises:
            LookupError: there is no such broker.
        """
        self._call(partial(self._cluster.hold_replication, node_id, held=held))

    def create_topic(
        self, name: str, partitions: int = -1, *, replication_factor: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic.

        Raises:
            TopicRefusedError: as a real controller would.
        """
        create = partial(self._cluster.create_topic, name, partitions)
        self._call(partial(create, replication_factor=replication_factor, configs=configs))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.

        Raises:
            LookupError: there is no such topic.
        """
        self._call(partial(self._cluster.delete_topic, name))

    def forget_producers(self, topic: str, partition: int) -> None:
        """Lose what a partition knows of its producers, as when their ids expire."""
        self._call(partial(self._cluster.forget_producers, topic, partition))


class _ThreadedFaults(Faults):
    """The rules of a cluster in another thread: its brokers count them down meanwhile."""

    def __init__(self, faults: Faults, call: Callable[[Callable[[], object]], object]) -> None:
        super().__init__(released=faults.remove)
        self.kinds = faults.kinds
        self._faults = faults
        self._call = call

    def add(self, fault: Fault) -> Fault:
        """Lay down a rule as it is."""
        self._call(partial(self._faults.add, fault))
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a rule; a stall releases what it held."""
        self._call(partial(self._faults.remove, fault))

    def clear(self) -> None:
        """Remove all rules."""
        self._call(self._faults.clear)
