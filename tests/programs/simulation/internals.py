"""Looks inside a running producer: the one place of the simulation that knows of its parts."""

from collections import Counter
from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Final

from aioproducer import Producer
from aioproducer._accumulator.partition import Batch, BatchState, Node, Partition, Topic
from aioproducer._accumulator.producer_identity import LAST_EPOCH
from aioproducer._accumulator.record_accumulator import RecordAccumulator
from aioproducer._producer.runtime import ProducerRuntime
from aioproducer._transactions.states import TransactionState
from aioproducer.cluster import NO_EPOCH, Cluster
from tests.programs.simulation.invariant_checkers import LingerChecker, OvertakingChecker, ReconnectChecker

_TICK_S = 0.001


class ProducerInternals:
    """The parts of a producer that runs."""

    def __init__(self, producer: Producer) -> None:
        self._running: ProducerRuntime | None = producer._running  # noqa: SLF001  # invariants are about what is inside

    def check(self, violated: Callable[[str, str], None], states: Counter[str]) -> None:
        running = self._running
        if running is None:
            return
        lent, pool = 0, running.pool
        beyond = {chunk for chunk, payer in pool._lent.items() if payer is pool._unpacking}  # noqa: SLF001  # as above
        for partition in running.accumulator.partitions.in_use():
            self._check_queue(partition, violated, states)
            whole = [batch for batch in (*partition.queued, *partition.on_wire) if not batch.is_part]
            lent += sum(batch.chunk.capacity for batch in whole if batch.chunk not in beyond)
        if not 0 <= lent <= pool.lent_bytes <= pool.total_bytes:
            violated("MEMORY", f"{lent} bytes in batches, {pool.lent_bytes} lent of {pool.total_bytes}")
        if pool.unallocated_bytes < 0:
            violated("MEMORY", f"more is allocated than there is: {pool!r}")
        queues = running.wait_queues
        if not queues.records and (queues.bytes or queues._counted_records or queues._counted_bytes):  # noqa: SLF001  # as above
            violated("MEMORY", f"no record waits, and {queues!r} counts some that do")
        if not queues.records and (running.open_batches.memory_is_short or not running.open_batches.may_use_common):
            violated("MEMORY", f"no record waits, and memory is kept for some: {running.open_batches!r}")
        states[f"producer {running.lifecycle.state.value}"] += 1

    @property
    def turns(self) -> int:
        return self._parts().sender.turns

    @property
    def metadata_answers(self) -> int:
        return self._parts().metadata.refreshes

    @property
    def is_idle(self) -> bool:
        """Whether no request is on its way, and no memory is lent; `statistics` says so too, and takes longer."""
        parts = self._parts()
        return not parts.pool.lent_bytes and not any(parts.client.requests_in_flight().values())

    @property
    def topics(self) -> list[str]:
        return [*self._parts().metadata.cluster.topics]

    def ask_for_metadata(self) -> int:
        """Have a broker asked how the cluster is; returns how many answers there were."""
        self._parts().metadata.request_update("asked by the simulation")
        return self.metadata_answers

    def check_pool(self, violated: Callable[[str, str], None]) -> None:
        """MEMORY: when nothing is lent, no holder is noted, and what is free is what the free lists hold."""
        pool = self._parts().pool
        lent, holders = pool._lent, pool._holders  # noqa: SLF001  # as above
        accounts = [pool._common, pool._unpacking, *pool._reserves]  # noqa: SLF001  # as above
        used = [account.used for account in accounts]
        if lent or holders or any(used):
            violated("MEMORY", f"nothing is lent, and {lent}, {holders}, {used} say otherwise")
        kept = sum(size * len(chunks) for size, chunks in pool._free.items())  # noqa: SLF001  # as above
        if kept != pool.free_bytes or kept > pool.total_bytes:
            violated("MEMORY", f"{kept} bytes wait for their next use, {pool.free_bytes} are counted: {pool!r}")

    def watch_epochs(self, violated: Callable[[str, str], None]) -> None:
        """LEADER_EPOCH: from now on, no update of metadata may take a leader epoch back within one topic id.

        With a topic that was forgotten (`metadata_max_idle_ms`), its epochs are, in Kafka's Java producer too.
        """
        highest: dict[tuple[str, bytes, int], int] = {}

        def look(cluster: Cluster, _changed: Collection[str]) -> None:
            for key in [key for key in highest if key[0] not in cluster.topics]:
                del highest[key]
            for topic in cluster.topics.values():
                for number, view in enumerate(topic.partitions if any(topic.topic_id) else ()):
                    key = (topic.name, topic.topic_id, number)
                    if NO_EPOCH != view.leader_epoch < highest.get(key, NO_EPOCH):
                        violated(
                            "LEADER_EPOCH",
                            f"leader epoch {view.leader_epoch} replaces {highest[key]} in {topic.name}-{number}",
                        )
                    highest[key] = view.leader_epoch

        self._parts().metadata.on_update(look)

    def check_idle(self, violated: Callable[[str, str], None]) -> None:
        """STUCK: while the sender sleeps, no batch could be sent; call it where nothing else happens."""
        running = self._running
        if running is None or not running.wakeup.is_waited_for:
            return
        self._check_waiting(violated)
        now = running.loop.time()
        generation = running.generations.current
        for partition in running.accumulator.partitions.in_use():
            batch = partition.open_batch
            if batch is None and not partition.queued:
                continue  # it holds nothing that could go, or linger
            if batch is not None and not batch.is_ready:
                _check_lingering(batch, generation, now=now, violated=violated)
            connection = None if partition.leader is None else partition.leader.connection.ready_connection
            if connection is None:
                continue
            batch = partition.next_to_send(connection.number, now - _TICK_S)
            if batch is not None:
                violated("STUCK", f"{batch!r} could go to {partition.leader!r}, which is ready, and the sender sleeps")

    def _check_waiting(self, violated: Callable[[str, str], None]) -> None:
        """STUCK: the earliest waiter for memory gets it when there is some.

        In roomy memory, and while batches of its partition are under way, that of a whole batch.
        """
        parts = self._parts()
        pool = parts.pool
        first = min(parts.wait_queues._memory_records(), key=attrgetter("call_order"), default=None)  # noqa: SLF001  # as above
        if first is None or first.queue is None:
            return
        is_patient = pool.is_roomy and _is_moving(first.queue.key)
        whole = parts.open_batches._settings.batch_size if is_patient else 0  # noqa: SLF001  # as above
        capacity = pool.capacity_for(max(first.size, whole))
        is_free = pool._common.has_room(capacity)  # noqa: SLF001  # as above
        if is_free and pool.lent_bytes + capacity <= pool.total_bytes:
            violated("STUCK", f"a record of {first.size} bytes waits for memory, and the sender sleeps: {pool!r}")

    def watch_turns(self, violated: Callable[[str, str], None], *, longest_value: int) -> None:
        """STUCK, LINGER, OVERTAKEN: the batch that has waited longest goes first, and none before it is due."""
        accumulator = self._parts().accumulator
        linger = LingerChecker(accumulator.open_batches, violated, longest_value=longest_value)
        checker = ReadyChecker(accumulator, violated, linger)
        parts = self._parts()
        OvertakingChecker(parts.wait_queues, parts.open_batches, parts.pool, violated=violated)
        accumulator.drain = checker.drain  # type: ignore[method-assign]  # to see which partitions are taken
        accumulator.open_batches.take_lone = checker.take_lone  # type: ignore[method-assign]  # as above
        accumulator.ready.withdraw = checker.withdraw  # type: ignore[method-assign]  # to see which leave

    def watch_pauses(self, violated: Callable[[str, str], None]) -> None:
        """PAUSE: from now on, nodes that fail are tried again after their pauses."""
        parts = self._parts()
        ReconnectChecker(parts.client._pool, violated, parts.loop.time)  # noqa: SLF001  # as above

    def describe(self) -> list[str]:
        """One line about each part, as a debugger shows it."""
        running = self._parts()
        parts = [running.sender, running.accumulator, running.pool, running.identity, running.wait_queues]
        parts += [running.timers, running.generations, running.transactions]
        partitions = running.accumulator.partitions.in_use()
        batches = [batch for partition in partitions for batch in (*partition.queued, *partition.on_wire)]
        return [
            repr(part) for part in (*parts, *partitions, *(partition.identity for partition in partitions), *batches)
        ]

    def use_up_epochs(self, left: int) -> None:
        """Let all but `left` epochs of the producer's id be used up, before anything is sent."""
        identity = self._parts().identity
        if identity.producer_id is not None:
            identity.assign(identity.producer_id, LAST_EPOCH - left)

    def use_up_sequences(self, number: int, left: int) -> None:
        """Let all but `left` sequences of a partition be used up; nothing of it may be on its way."""
        for partition in self._parts().accumulator.partitions.in_use():
            if partition.number == number and partition.is_empty:
                partition.identity.next_sequence = 2**31 - left

    def _parts(self) -> ProducerRuntime:
        assert self._running is not None
        return self._running

    def _check_queue(self, partition: Partition, violated: Callable[[str, str], None], states: Counter[str]) -> None:
        place = f"{partition.topic_partition.topic}-{partition.topic_partition.partition}"
        orders = [batch.order for batch in partition.queued]
        if orders != sorted(orders):
            violated("ORDER", f"{place}: queued batches are out of order")
        if len(partition.on_wire) > partition.max_in_flight:
            violated("IN_FLIGHT", f"{place}: {len(partition.on_wire)} batches on the wire")
        _check_parts(partition, violated, place)
        for batch in partition.queued:
            states[f"batch {batch.state.value}{' ambiguous' if batch.maybe_written else ''}"] += 1
            if batch.state not in {BatchState.QUEUED, BatchState.SEALING}:
                violated("STATE", f"{place}: {batch!r} is queued")
        for batch in partition.on_wire:
            states[f"batch {batch.state.value}{' abandoned' if batch.is_abandoned else ''}"] += 1
            if batch.state is not BatchState.ON_WIRE:
                violated("STATE", f"{place}: {batch!r} is on the wire")
        identity = partition.identity
        stamped = [b.identity for b in (*partition.queued, *partition.on_wire) if b.is_stamped and b.is_unresolved]
        if not identity.is_changing and any(
            (each.producer_id, each.epoch) != (identity.producer_id, identity.epoch) for each in stamped
        ):
            violated("EPOCH", f"{place}: unresolved batches of another epoch than {identity!r}")
        states[f"identity {'changing' if identity.is_changing else 'steady'}"] += 1


def _check_lingering(batch: Batch, generation: int, *, now: float, violated: Callable[[str, str], None]) -> None:
    """STUCK: a batch is ready when its linger is over, or when a caller or a flush waits for it."""
    is_wanted = batch.result.wanted or batch.generation < generation
    if is_wanted or batch.called_at + batch.options.ready_age_s + _TICK_S < now:
        violated("STUCK", f"{batch!r} lingers: wanted={is_wanted}, opened {now - batch.called_at:.6f} s ago")


def _check_parts(partition: Partition, violated: Callable[[str, str], None], place: str) -> None:
    """IN_FLIGHT: with one too many it never pipelines again, with one too few it does too soon."""
    parts = sum(batch.keeps_sequences for batch in (*partition.queued, *partition.on_wire))
    if partition.parts != parts:
        violated("IN_FLIGHT", f"{place}: {partition.parts} parts of split batches are counted, there are {parts}")


class ReadyChecker:
    """Wraps a producer's queues of ready partitions, and sees which are taken, and in which order."""

    def __init__(
        self, accumulator: RecordAccumulator, violated: Callable[[str, str], None], linger: LingerChecker
    ) -> None:
        self._linger = linger
        self._drain = accumulator.drain
        self._take_lone = accumulator.open_batches.take_lone
        self._withdraw = accumulator.ready.withdraw
        self._settings = accumulator._settings  # noqa: SLF001  # as above
        self._violated = violated
        self._left: dict[Node, list[Partition]] = {}  # as they were queued when a request had been made

    def drain(self, node: Node, connection: int, now: float, *, at_most: int) -> list[Batch]:
        """Take the batches of one request, which must be those of the first in the queue."""
        waiting = list(node.ready)
        stayed = [partition for partition in self._left.get(node, ()) if partition in waiting]
        if waiting[: len(stayed)] != stayed:
            self._violated("STUCK", f"{waiting} wait for {node!r}, and {stayed} were there before")
        may_go = [
            batch
            for partition in waiting[:at_most]
            if (batch := partition.next_to_send(connection, now)) is not None
            and (batch.is_sealed or not batch.options.codec)
        ]
        drained = self._drain(node, connection, now, at_most=at_most)
        self._linger.drained(drained, now)
        self._left[node] = list(node.ready)
        strays = [partition for partition in node.ready if not partition.is_offered or partition.leader is not node]
        if strays:
            self._violated("STUCK", f"{strays} are queued for {node!r}, and do not know it")
        size = sum(batch.wire_size for batch in may_go[: len(drained) + 1])
        is_full = len(drained) < len(may_go) and bool(drained) and size > self._settings.max_request_size
        if drained != may_go[: len(drained)] or (len(drained) < len(may_go) and not is_full):
            self._violated("STUCK", f"{drained} go to {node!r}, and {may_go} may, in this order")
        return drained

    def take_lone(self, batch: Batch, connection: int, now: float) -> None:
        """Take a batch that nothing waits before: neither of its partition nor for its node."""
        partition = batch.partition
        node = partition.leader
        if node is None or node.ready or node.wait is not None:
            self._violated("STUCK", f"{batch!r} is sent at once, and others wait for {node!r}")
        if partition.on_wire or partition.next_to_send(connection, now) is not batch or batch.options.codec:
            self._violated("STUCK", f"{batch!r} is sent at once, and may not go")
        self._take_lone(batch, connection, now)
        self._linger.drained([batch], now)

    def withdraw(self, partition: Partition) -> None:
        """Let a partition leave its queue: it is in another one now, at its end."""
        for queued in self._left.values():
            if partition in queued:
                queued.remove(partition)
        self._withdraw(partition)


def _is_moving(owner: object) -> bool:
    """Whether batches of a partition, or of any of a topic's, are about to give memory back."""
    partitions = owner.partitions if isinstance(owner, Topic) else [owner]
    return any(_moves(partition) for partition in partitions if isinstance(partition, Partition))


def _moves(partition: Partition) -> bool:
    """Whether a partition has closed batches, a leader, and has seen no attempt of the first of them fail."""
    first = next(iter((*partition.on_wire, *partition.queued)), None)
    if first is None or partition.leader is None:
        return False
    return first.attempts <= (1 if partition.on_wire else 0)


# Looks inside a running transactional producer: whether it asks its coordinators what there is to ask.

SLACK_S: Final = 0.02  # beside the pause: timers, and the pause after markers, which is a hundredth of a second at most


class TransactionInternals(ProducerInternals):
    """The parts of a transactional producer that runs."""

    def check_asking(self, violated: Callable[[str, str], None], *, longest_pause_s: float) -> None:
        """STUCK: what a coordinator is to be asked is asked, or will be when the longest pause is over."""
        runner = None if self._running is None else self._running.transactions
        if self._running is None or runner is None or not self._running.metadata.cluster.nodes:
            return
        manager, alarm = runner._manager, runner._alarm  # noqa: SLF001  # invariants are about what is inside
        is_busy = manager._is_asking or runner._wanted.is_set()  # noqa: SLF001  # as above
        if is_busy or manager.state is TransactionState.FATAL_ERROR:
            return
        wanted = manager._wanted()  # noqa: SLF001  # as above
        if wanted is None:
            return
        now = self._running.loop.time()
        if alarm is None:
            violated("STUCK", f"{wanted.api.name} is wanted, and not asked for: {manager!r}")
        elif alarm.when() > now + longest_pause_s + SLACK_S:
            violated("STUCK", f"{wanted.api.name} is wanted, and is asked in {alarm.when() - now:.3f} s: {manager!r}")
