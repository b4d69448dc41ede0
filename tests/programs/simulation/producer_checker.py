"""Invariants that are checked while a run goes on, and when it is over: what the checker of logs cannot see."""

import asyncio
import contextlib
import math
from collections import Counter, deque
from collections.abc import Sequence
from random import Random

from aioproducer import BufferFullError, KafkaError, Producer, UndeliveredError
from tests.programs.simulation.allowed_failures import RECOVERY_S
from tests.programs.simulation.fault_injector import FaultInjector
from tests.programs.simulation.history import Operation, RecordId, Secrecy
from tests.programs.simulation.internals import ProducerInternals
from tests.programs.simulation.log_checker import LogKeeper
from tests.programs.simulation.simulated_loop import SimulatedLoop
from tests.programs.simulation.simulated_network import SimulatedNetwork
from tests.programs.simulation.workload import TICK_S, Workload

LOOKS = 4  # number of looks at a run while it goes on
LOOKS_AT_TURNS = 5  # one in so many seeds also checks the order of sending, and that nothing waits without need

_IDLE_LOOKS = 100
_BETWEEN_BEATS = 1.0000271828  # arrivals happen at round times; no look is taken at one
CLOSE_SLACK_S = 0.05  # seconds that closing takes once nothing is waited for: connections end in a turn of the loop
RESTS = 3  # in one of so many seeds the producer rests before it is closed, until its metadata is too old

REST_S = 0.5
MOST_REST_S = 60.0

MOST_TURNS_AT_REST = 60  # turns of the sender. Unused connections are closed in this time, and metadata is asked for
PROBER = 1_000  # the client number of the records that probe partitions after healing


class ProducerChecker:
    """Looks at a producer now and then."""

    def __init__(self, producer: Producer, load: Workload, loop: SimulatedLoop) -> None:
        self.producer = producer
        self.states: Counter[str] = Counter()
        self._load = load
        self._loop = loop
        self._violated = load.history.violated
        self._open: deque[Operation] = deque()
        self._taken = 0
        self._is_over = False
        self._probes = 0

    def begin(self) -> None:
        """Look at regular times, at every deadline, and at every update of metadata."""
        internals = ProducerInternals(self.producer)
        if self._load.plan.is_honest:
            internals.watch_epochs(self._violated)
        if self._load.plan.seed % LOOKS_AT_TURNS == 1:
            internals.watch_turns(self._violated, longest_value=self._load.plan.family.value_size[1])
        if self._load.plan.seed % LOOKS_AT_TURNS in {1, 2}:
            internals.watch_pauses(self._violated)
        if self._load.plan.seed % LOOKS_AT_TURNS == 1:
            self._check_idleness(self._load.plan.chaos_s / _IDLE_LOOKS * _BETWEEN_BEATS)
        self._look(self._load.plan.chaos_s / LOOKS)
        self._watch_deadlines()

    def _check_idleness(self, every_s: float) -> None:
        """STUCK: what can be sent is; at moments at which nothing else happens."""
        if self._is_over:
            return
        ProducerInternals(self.producer).check_idle(self._violated)
        self._loop.call_later(every_s, self._check_idleness, every_s)

    def _look(self, every_s: float) -> None:
        if self._is_over:
            return
        ProducerInternals(self.producer).check(self._violated, self.states)
        if self._load.history.secrecy is not None:
            self._look_for_payloads(self._load.history.secrecy)
        self._loop.call_later(every_s, self._look, every_s)

    def _look_for_payloads(self, secrecy: Secrecy) -> None:
        """SECRECY: in what a debugger would show of the producer, and of deliveries that are open."""
        for line in (repr(self.producer), *ProducerInternals(self.producer).describe()):
            secrecy.check("a repr", line)
        for operation in [*self._open][:LOOKS]:
            secrecy.check("the repr of a delivery", repr(operation.delivery))

    def _watch_deadlines(self) -> None:
        """ENDS_ONCE: at its deadline, and one tick, a record has ended."""
        if self._is_over:
            return
        deliveries = self._load.deliveries
        self._open.extend(deliveries[self._taken :])
        self._taken = len(deliveries)
        now, timeout_s = self._loop.time(), self._load.delivery_timeout_s
        while self._open and (self._is_ended(self._open[0]) or self._open[0].called_at + timeout_s + TICK_S <= now):
            operation = self._open.popleft()
            if not self._is_ended(operation):
                self._violated("ENDS_ONCE", f"{operation.record} ({operation.verb}) is open past its deadline")
        when = self._open[0].called_at if self._open else now
        self._loop.call_at(when + timeout_s + TICK_S, self._watch_deadlines)

    @staticmethod
    def _is_ended(operation: Operation) -> bool:
        return operation.delivery is None or operation.delivery.done()

    # Instead of healing

    async def close_during_sends(self, injector: FaultInjector, callers: Sequence[asyncio.Future[None]]) -> None:
        """Close at any moment: it ends in time (TIMEOUT), no record stays open (ENDS_ONCE), nothing is left (LEAK)."""
        rng = Random(f"close-{self._load.plan.seed}")
        await asyncio.sleep(rng.choice((0.1, 1.0, 1.0)) * rng.random() * self._load.plan.chaos_s)
        timeout_s = rng.choice((0.0, 0.0, 0.01, 0.5, 1.5)) * self._load.delivery_timeout_s
        self._load.is_closing = True
        began = self._loop.time()
        closing = [asyncio.ensure_future(self._close(timeout_s)) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.4:
            await asyncio.sleep(rng.random() * timeout_s)
            closing[0].cancel()
        await asyncio.wait(closing)
        await self._close(timeout_s)
        took = self._loop.time() - began
        if took > timeout_s + CLOSE_SLACK_S:
            self._violated("TIMEOUT", f"close({timeout_s:.3f}) took {took:.3f} s")
        for operation in self._load.deliveries:
            if not self._is_ended(operation):
                self._violated("ENDS_ONCE", f"{operation.record} ({operation.verb}) is open after close")
        self._is_over = True
        await asyncio.wait(callers, timeout=self._load.max_block_s + 60)
        injector.heal()
        await asyncio.sleep(self._load.plan.number("request_timeout_ms") / 1000)
        self.check_gone(injector.network)

    async def _close(self, timeout_s: float) -> None:
        with contextlib.suppress(UndeliveredError):
            await self.producer.close(timeout_s)

    # At the ends of the ranges

    async def use_edge_values(self, keeper: LogKeeper, network: SimulatedNetwork) -> None:
        """Go on as if most sequences of some partitions had been used up, and most epochs of the producer."""
        plan = self._load.plan
        rng = Random(f"edges-{plan.seed}")
        internals = ProducerInternals(self.producer)
        if rng.random() < 0.5:
            internals.use_up_epochs(rng.randint(0, 3))
        for index, partition in enumerate(network.model.partitions()):
            if rng.random() < 0.5:
                await self.probe(index)
                internals.use_up_sequences(index, rng.randint(1, 20))
                keeper.outlive_sequences(partition)
        network.wire_checker.forget_identities()
        network.drop_repeats()

    # After healing

    async def probe(self, partition: int) -> None:
        """RECOVERY: a partition takes a record again once metadata and connections have had time to recover."""
        plan = self._load.plan
        deadline = self._loop.time() + plan.number("request_timeout_ms") / 1000 + 10
        while True:
            operation = self._probe_operation(partition, size=0)
            try:
                metadata = await self.producer.send_and_wait(self._load.topic, operation.value, partition=partition)
            except KafkaError as error:
                operation.fail(error, self._loop.time())
            else:
                operation.acknowledge(metadata, self._loop.time())
                return
            if self._loop.time() > deadline:
                if not self._load.healthy_since:
                    return  # at the edges, where things may go wrong already
                self._violated("RECOVERY", f"partition {partition} takes no records after healing: {operation.error}")
                return
            await asyncio.sleep(0.01)

    def _probe_operation(self, partition: int, *, size: int) -> Operation:
        self._probes += 1
        record = RecordId(PROBER, partition, self._probes)
        value = (b"%d.%d.%d|" % record).ljust(size, b".")
        order = len(self._load.history.operations)
        operation = Operation(record, order, self._load.topic, value, None, "probe", self._loop.time(), partition)
        return self._load.history.begin(operation)

    async def probe_memory(self) -> None:
        """MEMORY: when nothing is on its way, a record that takes more than half of the buffer finds room at once."""
        statistics, plan = self.producer.statistics(), self._load.plan
        is_free = statistics.buffer_available_bytes == statistics.buffer_total_bytes
        if not is_free or not plan.is_honest or plan.max_message_bytes is not None:
            return
        operation = self._probe_operation(0, size=plan.number("buffer_memory") * 5 // 8)
        try:
            metadata = await self.producer.send_nowait(self._load.topic, operation.value, partition=0)
        except KafkaError as error:
            operation.fail(error, self._loop.time())
            if isinstance(error, BufferFullError):
                self._violated("MEMORY", f"no room for {len(operation.value or b'')} bytes in an empty buffer: {error}")
        else:
            operation.acknowledge(metadata, self._loop.time())

    async def wait_until_idle(self) -> None:
        """Wait until abandoned requests are answered or lost: at the latest when they time out."""
        internals = ProducerInternals(self.producer)
        until = self._loop.time() + self._load.plan.number("request_timeout_ms") / 1000 + 0.1
        while self._loop.time() < until:
            if internals.is_idle:
                return
            await asyncio.sleep(0.05)

    def check_quiet(self) -> None:
        """MEMORY: nothing is on its way, so nothing is held."""
        self._is_over = True
        if self._load.history.is_recording:
            for line in (repr(self.producer), *ProducerInternals(self.producer).describe()):
                self._load.history.note("inside", "%s", line)
        statistics = self.producer.statistics()
        if statistics.buffer_available_bytes != statistics.buffer_total_bytes:
            held = statistics.buffer_total_bytes - statistics.buffer_available_bytes
            self._violated("MEMORY", f"{held} bytes are held when nothing is on its way")
        else:
            ProducerInternals(self.producer).check_pool(self._violated)
        if statistics.records_waiting or statistics.waiting_bytes:
            self._violated("MEMORY", f"{statistics.records_waiting} records wait when nothing is on its way")
        most = 3 if self._load.plan.mechanism else 1  # one for metadata, and an authentication's
        if statistics.records_pending or statistics.requests_in_flight > most:
            text = f"{statistics.records_pending} records and {statistics.requests_in_flight} requests"
            self._violated("STATE", f"{text} are pending when nothing is on its way")
        ProducerInternals(self.producer).check(self._violated, self.states)

    async def check_rest(self, network: SimulatedNetwork) -> None:
        """REST: a producer with nothing to do does nothing, but for asking how the cluster is now and then.

        IDLE: once it was told, it has one connection to a node at most.
        """
        is_scenario = "metadata_max_age_ms" not in self._load.plan.options  # all orders of it are tried
        if not is_scenario and self._load.plan.seed % (RESTS * 4 if self._load.plan.mechanism else RESTS):
            return
        running = ProducerInternals(self.producer)
        before, answers = running.turns, running.ask_for_metadata()
        await asyncio.sleep(REST_S)
        if (turns := running.turns - before) > MOST_TURNS_AT_REST:
            self._violated("REST", f"the sender looked for work {turns} times in {REST_S} s of rest")
        if running.metadata_answers == answers:
            return
        open_ones = [each for each in network.connections.values() if not each.is_closing()]
        resting = [each for each in open_ones if not getattr(each.connection, "in_flight", 0)]
        nodes = Counter(each.node.number for each in resting)
        if any(count > 1 for count in nodes.values()):
            self._violated("IDLE", f"connections by node on which nothing is on its way: {dict(nodes)}")
        if "lies" in self._load.plan.enabled:
            return  # an answer that was changed may have asked for a pause of a minute
        if not is_scenario:
            await self._check_age()

    async def _check_age(self) -> None:
        """AGE: metadata is asked for again when it is too old, and unused topics are forgotten."""
        running, plan = ProducerInternals(self.producer), self._load.plan
        answers, age_s = running.metadata_answers, plan.number("metadata_max_age_ms") / 1000
        await asyncio.sleep(age_s + plan.number("request_timeout_ms") / 1000 + RECOVERY_S)
        if running.metadata_answers == answers:
            self._violated("AGE", f"no metadata was asked for in {age_s:.3f} s of rest and more")
        idle_s = plan.number("metadata_max_idle_ms") / 1000 if "metadata_max_idle_ms" in plan.options else math.inf
        if idle_s + age_s > MOST_REST_S:
            return
        await asyncio.sleep(idle_s + age_s)
        if running.topics:
            self._violated("AGE", f"{running.topics} were not used for {idle_s:.3f} s, and are known still")

    def check_gone(self, network: SimulatedNetwork) -> None:
        """LEAK: no task and no connection is left after close."""
        own = {"Task-1", "run"}
        left = [task.get_name() for task in self._loop.unfinished_tasks() if task is not asyncio.current_task()]
        if any(name.startswith("aioproducer") for name in left) or set(left) - own:
            self._violated("LEAK", f"tasks are left after close: {left}")
        if network.connections:
            self._violated("LEAK", f"{len(network.connections)} connections are left after close")
        statistics = self.producer.statistics()
        if statistics.buffer_available_bytes != statistics.buffer_total_bytes:
            held = statistics.buffer_total_bytes - statistics.buffer_available_bytes
            self._violated("MEMORY", f"{held} bytes are held after close")
