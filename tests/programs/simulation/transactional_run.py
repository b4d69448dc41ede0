"""A run with a transactional producer (D10-D13), its callers, and the producers that take its id over."""

import asyncio
import contextlib
import dataclasses
import math
import zlib
from collections import Counter
from random import Random

from aioproducer import KafkaError, Producer, ProducerFencedError
from aioproducer.records import TopicPartition
from aioproducer.testing.fake_broker.log.partition import committed_records
from aioproducer.testing.fake_broker.settings import ClusterSettings
from aioproducer.testing.fake_broker.topics import TopicRequest
from tests.programs.simulation.allowed_failures import check_transaction_failures
from tests.programs.simulation.caller import serialize
from tests.programs.simulation.coordinator_faults import TRANSACTIONAL_ID
from tests.programs.simulation.faults import TOPIC
from tests.programs.simulation.history import History, Violation
from tests.programs.simulation.internals import TransactionInternals
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.run import Run, RunResult
from tests.programs.simulation.simulated_loop import SimulatedLoop
from tests.programs.simulation.simulated_network import PORT
from tests.programs.simulation.transaction_callers import LATER, TransactionCaller, check_misuse
from tests.programs.simulation.transaction_checker import (
    TORN,
    Outcome,
    Place,
    TransactionEnd,
    TransactionOperation,
    check_transactions,
)
from tests.programs.simulation.transaction_wire_checker import TransactionWireChecker

RELEASE_WITH_BOTH = "4.4.0"
_AFTER_HEALING_S = 60.0
_TICK_S = 0.1
_MARKERS_S = 0.5  # an end is answered before its markers are written

_LOOKS = 50
_BETWEEN_BEATS = 1.0000271828  # arrivals happen at round times; no look is taken at one
_LIVES_OF_ONE = 3  # the one that is never started, the one that is, and the heir in the end

_FORGOTTEN = "INVALID_PRODUCER_ID_MAPPING"
_OF_ONE_PRODUCER = frozenset({"EPOCH", "IN_FLIGHT", "PACE"})
_WAITED = "was waited at"


def _is_of_one(violation: Violation) -> bool:
    """Whether the checker of the wire says something of one producer that is no finding where several have lived.

    One that was fenced has failed every record, and asks for the time no more: it waits at its connections till closed.
    """
    return violation.invariant in _OF_ONE_PRODUCER or _WAITED in violation.text


class TransactionalRun(Run):
    """One life, or several after each other, under one transactional id."""

    _wire_checker: TransactionWireChecker

    def __init__(self, plan: Plan, loop: SimulatedLoop, history: History) -> None:
        self._rng = Random(f"transactions-{plan.family.name}-{plan.seed}")
        self._lives = 0
        self._numbers: dict[Producer, int] = {}
        self._fenced_at: dict[int, float] = {}
        self._started_at: dict[int, float] = {}
        self._retired: list[Producer] = []
        self._replacing = asyncio.Lock()
        self._is_over = False
        self._transactions: list[TransactionOperation] = []
        transaction_ms = Random(plan.seed).choice((2_000, 60_000, 60_000))
        self._transaction_timeout_ms = max(plan.number("delivery_timeout_ms"), transaction_ms)
        super().__init__(plan, loop, history)

    def _make_wire_checker(self) -> TransactionWireChecker:
        return TransactionWireChecker(self._history, self._plan, self._loop.time)

    def _settings(self) -> ClusterSettings:
        has_both = self._plan.profile == RELEASE_WITH_BOTH
        return dataclasses.replace(
            super()._settings(),
            transaction_version=self._rng.choice((None, None, 0)) if has_both else None,
            coordinator_load_s=self._rng.choice((0.0, 0.0, 0.05)),
            marker_delay_s=self._rng.choice((0.0, 0.0, 0.003, 0.03)),
        )

    def _make_producer(self) -> Producer:
        options = dict(self._plan.options)
        options |= {
            "transactional_id": TRANSACTIONAL_ID,
            "acks": -1,
            "enable_idempotence": True,
            "transaction_timeout_ms": self._transaction_timeout_ms,
            "max_block_ms": 60_000,
        }
        if self._plan.has_sound_hooks:
            options |= {"value_serializer": serialize, "interceptors": [self._interceptor]}
        hosts = [f"{node.host}:{PORT}" for node in self._network.nodes.values()]
        producer = Producer(hosts, client_id="simulated", **options)  # type: ignore[arg-type]  # drawn
        self._numbers[producer] = self._lives
        self._lives += 1
        return producer._use_sources(
            random=Random(f"producer-{self._plan.seed}-{self._lives}"), wall_clock=self._wall_clock_ms
        )

    # What callers ask

    @property
    def producer(self) -> Producer:
        return self._producer

    def number_of(self, producer: Producer) -> int:
        return self._numbers[producer]

    def begin_operation(self) -> TransactionOperation:
        operation = TransactionOperation(len(self._transactions), self._lives - 1, self._loop.time())
        self._transactions.append(operation)
        return operation

    async def replace(self, dead: Producer) -> None:
        """Replace a producer that cannot go on; other callers that ask for that wait for it."""
        async with self._replacing:
            if dead is self._producer:
                await self._succeed()

    async def _succeed(self) -> None:
        """Start another producer under the same id, again and again: what goes wrong meanwhile is what it is about."""
        former, old = self._lives - 1, self._producer
        while True:
            producer = self._make_producer()
            self._network.wire_checker.forget_pauses()
            try:
                await producer.start()
            except KafkaError as error:
                self._history.note("caller", "start: %r", error)
                self._retired.append(producer)
                continue
            self._retired.append(old)
            self._producer = producer
            self._fenced_at[former] = self._started_at[self.number_of(producer)] = self._loop.time()
            return

    # The run

    async def execute(self) -> None:
        self._injector.begin()
        await self._succeed()
        share = max(1, self._plan.records // (6 * self._plan.clients))
        callers = [
            asyncio.ensure_future(TransactionCaller(self, self._plan, number, self._history).run(share))
            for number in range(self._plan.clients)
        ]
        self._loop.call_later(self._rng.random() * self._plan.chaos_s, self._make_later_topic)
        self._check_internals(self._plan.chaos_s / _LOOKS * _BETWEEN_BEATS)
        successor = asyncio.ensure_future(self._run_successors()) if self._plan.family.successors else None
        await asyncio.sleep(self._plan.chaos_s)
        self._injector.heal()
        if successor is not None:
            successor.cancel()
            await asyncio.wait([successor])
        bound = _AFTER_HEALING_S + share * self._plan.clients * self._plan.number("delivery_timeout_ms") / 1000
        await self._within(bound, asyncio.wait(callers), "the callers")
        for caller in callers:
            if caller.done() and not caller.cancelled() and (error := caller.exception()) is not None:
                self._history.violated("EXCEPTION", f"a call raised {type(error).__name__}: {error}")
        await self._within(_AFTER_HEALING_S, self._last_transaction(), "a transaction after healing")
        await self._within(_AFTER_HEALING_S, check_misuse(self._producer, self._history), "calls that are refused")
        await self._leave_open()
        await self._end_all()

    def _check_internals(self, every_s: float) -> None:
        """STUCK: what can be sent or asked is, at moments at which nothing else happens."""
        if self._is_over:
            return
        internals = TransactionInternals(self._producer)
        internals.check_idle(self._history.violated)
        internals.check_asking(self._history.violated, longest_pause_s=self._plan.number("retry_backoff_max_ms") / 1000)
        self._loop.call_later(every_s, self._check_internals, every_s)

    def _make_later_topic(self) -> None:
        """Let brokers know the topic of some of the offsets from now on."""
        if self._network.model.live_nodes():
            self._network.model.topics.create(TopicRequest(name=LATER, partitions=1, replication_factor=1))
        else:
            self._loop.call_later(_TICK_S, self._make_later_topic)

    async def _run_successors(self) -> None:
        """Other processes take the id over while the one before still believes that it has it."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.1, 0.6) * self._plan.chaos_s)
            self._history.note("caller", "a successor of producer %d starts", self._lives - 1)
            async with self._replacing:
                await self._succeed()

    async def _last_transaction(self) -> None:
        """Commit a transaction after all faults, with a new producer if need be."""
        while True:
            operation = self.begin_operation()
            caller = TransactionCaller(self, self._plan, len(self._transactions), self._history, is_calm=True)
            await caller.transaction(operation)
            if operation.end is TransactionEnd.COMMITTED:
                return
            await asyncio.sleep(0.1)

    async def _leave_open(self) -> None:
        """Begin a transaction and leave it open: `close` aborts it."""
        operation = self.begin_operation()
        operation.end = TransactionEnd.ABORTED
        await self._producer.begin_transaction()
        sent = self._producer.send(TOPIC, Place(operation.number, 0).payload(b""), partition=0)
        operation.records[0] = 0
        if self._plan.seed % 2:
            with contextlib.suppress(KafkaError):  # a copy that came late may have spoilt the sequence
                await sent

    async def _end_all(self) -> None:
        self._is_over = True
        for producer in [*self._retired, self._producer]:
            try:
                async with asyncio.timeout(10):
                    await producer.close(1)
            except KafkaError as error:
                self._history.note("caller", "close: %s", error)
            except TimeoutError:
                self._history.violated("TIMEOUT", "close(1) did not end within 10 s")
        await asyncio.sleep(_MARKERS_S)
        self._check_readers_get_on("after close")
        heir = self._make_producer()
        await self._within(_AFTER_HEALING_S, heir.start(), "init of the heir")
        await self._within(10, heir.close(1), "close of the heir")
        await asyncio.sleep(1.0)

    # The result

    def check(self) -> RunResult:
        outcome = self._outcome()
        for violation in check_transactions(self._transactions, outcome):
            self._history.violated(*violation)
        for violation in check_transaction_failures(self._transactions, self._plan):
            self._history.violated(*violation)
        self._check_readers_get_on("in the end")
        self._check_fenced()
        self._check_forgotten()
        if not self._plan.enabled and not self._plan.family.successors:
            self._check_calm_transactions()
        found = self._history.violations
        if self._lives > _LIVES_OF_ONE:
            found = [violation for violation in found if not _is_of_one(violation)]
        return RunResult(
            plan=self._plan,
            violations=tuple(found),
            digest=self._digest_of(outcome),
            turns=self._loop.turns,
            records=sum(len(operation.records) for operation in self._transactions),
            ends=Counter(operation.end.value for operation in self._transactions),
            faults=self._wire_checker.faults,
            error_codes=self._wire_checker.error_codes,
            states=Counter(),
            events=tuple(self._history.lines()),
        )

    def _outcome(self) -> Outcome:
        topic = self._network.model.topics.named(TOPIC)
        assert topic is not None
        return Outcome(
            committed={index: committed_records(each) for index, each in enumerate(topic.partitions)},
            batches={index: list(each.log.batches()) for index, each in enumerate(topic.partitions)},
            offsets={operation.group: self._offset_of(operation) for operation in self._transactions},
            fenced_at=self._fenced_at,
            forgotten_at=self._forgotten_at(),
        )

    def _forgotten_at(self) -> dict[int, float]:
        """Return when the id of each life expired; one with another number than the current id is unknown, too."""
        found = {}
        for life, started_at in self._started_at.items():
            later = [at for at in self._injector.expired_at if at >= started_at]
            if later:
                found[life] = min(later)
        return found

    def _offset_of(self, operation: TransactionOperation) -> int:
        held = self._network.model.groups.found(operation.group).offsets
        places = operation.offset_places or [TopicPartition(TOPIC, 0)]
        found = {held.get(place) for place in places}
        offset, text = next((each.offset, each.metadata) for each in found)
        is_whole = len(found) == 1 and (offset < 0 or text == operation.text_of_offsets)
        return offset if is_whole else TORN

    def _check_readers_get_on(self, when: str) -> None:
        """Check that no transaction is left open: readers of committed records would wait for it."""
        for partition in self._network.model.partitions():
            if partition.last_stable_offset != partition.log.end_offset:
                ends = f"{partition.last_stable_offset} of {partition.log.end_offset}"
                self._history.violated("LSO", f"the last stable offset stays at {ends} {when}")

    def _check_fenced(self) -> None:
        """FENCED: the id is lost only to a successor, or with a transaction that timed out."""
        # The answer to a commit of V2 may be lost, and V1 cannot ask for it again under the epoch before.
        is_allowed = self._plan.family.successors or not {"codes", "downgrade"}.isdisjoint(self._plan.enabled)
        if (
            is_allowed or self._wire_checker.fencing.times or self._injector.expired_at
        ):  # a lost renewal may have made a new id
            return
        slow = {
            operation.producer
            for operation in self._transactions
            if self._lasted_s(operation) >= self._transaction_timeout_ms / 1000 - _TICK_S
        }
        for operation in self._transactions:
            is_early = operation.ended_at < self._fenced_at.get(operation.producer, math.inf)
            if operation.error.startswith(ProducerFencedError.__name__) and is_early and operation.producer not in slow:
                self._history.violated("FENCED", f"fenced without a successor: {operation}")

    def _check_forgotten(self) -> None:
        """FORGOTTEN: brokers report a producer as unknown only if its id has expired."""
        if "codes" in self._plan.enabled:
            return
        first_at = min(self._injector.expired_at, default=math.inf)
        for operation in self._transactions:
            if _FORGOTTEN in operation.error and operation.ended_at < first_at:
                self._history.violated("FORGOTTEN", f"brokers know it: {operation}")

    def _lasted_s(self, operation: TransactionOperation) -> float:
        """Return how long it may have been open: a caller may leave the wait for its abort to the next one."""
        is_left = operation.end is TransactionEnd.ABORTED and not operation.error
        own = [other.ended_at for other in self._transactions if is_left and other.producer == operation.producer]
        return min((end for end in own if end > operation.ended_at), default=operation.ended_at) - operation.began_at

    def _check_calm_transactions(self) -> None:
        for operation in self._transactions:
            if operation.error:
                self._history.violated("CALM", str(operation))

    def _digest_of(self, outcome: Outcome) -> int:
        digest = 0
        for operation in self._transactions:
            digest = zlib.crc32(b"%d %s" % (operation.number, operation.end.name.encode()), digest)
        for records in outcome.committed.values():
            for record in records:
                digest = zlib.crc32(record.value or b"", digest)
        return digest
