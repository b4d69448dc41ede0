"""One run: a plan is executed, everything is healed and must end, and then outcomes are compared with the logs."""

import asyncio
import marshal
import zlib
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from random import Random

from aioproducer import KafkaError, Producer, UndeliveredError
from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer.testing.fake_broker.broker import Broker
from aioproducer.testing.fake_broker.cluster import ModelCluster
from aioproducer.testing.fake_broker.settings import ClusterSettings, counted_from
from aioproducer.testing.fake_broker.topics import TopicRequest
from aioproducer.testing.fake_broker.version_profiles import profile_named
from tests.programs.simulation.allowed_failures import is_end_by_lies
from tests.programs.simulation.caller import callers_of, serialize
from tests.programs.simulation.fault_injector import FaultInjector
from tests.programs.simulation.faults import TOPIC
from tests.programs.simulation.history import End, History, Operation, Violation
from tests.programs.simulation.log_checker import Guarantees, KeptLog, LogKeeper, check_history
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.producer_checker import ProducerChecker
from tests.programs.simulation.secured import security_of
from tests.programs.simulation.session_checker import SessionChecker
from tests.programs.simulation.simulated_loop import LONGEST_JOB_S, SimulatedLoop
from tests.programs.simulation.simulated_network import PORT, SimulatedNetwork
from tests.programs.simulation.simulated_tls import BOOTSTRAP_NAME
from tests.programs.simulation.wire_checker import WireChecker
from tests.programs.simulation.workload import UsersInterceptor, UsersPartitioner, Workload

WALL_CLOCK_MS = 1_700_000_000_000

_PLAIN = 2  # version of marshal's format: later ones write an object that has several references in another way


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    plan: Plan
    violations: tuple[Violation, ...]
    digest: int
    turns: int
    records: int
    ends: Counter[str]
    faults: Counter[str]
    error_codes: Counter[tuple[str, int]]
    states: Counter[str]
    events: tuple[str, ...] = ()


class Run:
    """One execution of a plan."""

    def __init__(self, plan: Plan, loop: SimulatedLoop, history: History) -> None:
        self._plan = plan
        self._loop = loop
        self._history = history
        self._keeper = LogKeeper()
        self._wire_checker = self._make_wire_checker()
        self._network = self._make_network()
        self._injector = FaultInjector(plan, self._network, self._keeper, history)
        if plan.mechanism:
            secured = self._injector.secured
            self._sessions = SessionChecker(plan, secured, history, was_served=self._wire_checker.was_served)
            self._network.secure(secured, self._sessions)
        self._interceptor = UsersInterceptor(Random(f"interceptor-{plan.seed}"), errs=plan.user_faults)
        self._producer = self._make_producer()
        self._load = Workload(plan, self._producer, history, topic=TOPIC, on_beat=self._network.on_beat)
        self._checker = ProducerChecker(self._producer, self._load, loop)
        loop.set_exception_handler(self._unhandled)

    def _make_wire_checker(self) -> WireChecker:
        return WireChecker(self._history, self._plan, self._loop.time)

    def _make_network(self) -> SimulatedNetwork:
        plan, loop = self._plan, self._loop
        model = ModelCluster(
            plan.brokers,
            self._settings(),
            random=Random(f"cluster-{plan.seed}"),
            wake=lambda: loop.network.wake_soon(),  # noqa: PLW0108  # the network is not there yet
        )
        model.brokers = {number: Broker(number, model) for number in plan.nodes}
        model.observe = self._wire_checker.observe
        loop.network = SimulatedNetwork(loop, model, Random(f"network-{plan.seed}"), self._wire_checker)
        loop.network.beat_s = plan.beat_s
        for node in loop.network.nodes.values():
            node.latency_s, node.jitter_s = plan.latency_s, plan.jitter_s
        limit = plan.max_message_bytes
        configs = {} if limit is None else {"max.message.bytes": str(limit)}
        if plan.keeps_append_time:
            configs["message.timestamp.type"] = "LogAppendTime"
        topic = model.topics.create(TopicRequest(name=TOPIC, partitions=plan.partitions, configs=configs))
        self._keeper.adopt_all(topic)
        return loop.network

    def _settings(self) -> ClusterSettings:
        plan = self._plan
        return ClusterSettings(
            profile=profile_named(plan.profile),
            replication_factor=plan.replication,
            min_insync_replicas=plan.min_insync,
            auto_create_topics=False,
            replication_delay_s=plan.replication_delay_s,
            failover_delay_s=plan.failover_delay_s,
            wall_clock=counted_from(WALL_CLOCK_MS),
            security=security_of(plan),
        )

    def _make_producer(self) -> Producer:
        hosts = [f"{node.host}:{PORT}" for node in self._network.nodes.values()]
        options = {**self._plan.options, **(self._injector.secured.options() if self._plan.mechanism else {})}
        if self._plan.has_serializer:
            options["value_serializer"] = serialize
        if self._plan.has_partitioner:
            rng = Random(f"partitioner-{self._plan.seed}")
            options["partitioner"] = UsersPartitioner(rng, errs=self._plan.user_faults)
        if self._plan.has_interceptor:
            options["interceptors"] = [self._interceptor]
        servers = [f"{BOOTSTRAP_NAME}:{PORT}"] if self._plan.uses_bootstrap_name else hosts
        producer = Producer(servers, client_id="simulated", **options)  # type: ignore[arg-type]  # drawn
        return producer._use_sources(random=Random(f"producer-{self._plan.seed}"), wall_clock=self._wall_clock_ms)

    def _wall_clock_ms(self) -> int:
        return WALL_CLOCK_MS + round(self._loop.time() * 1000) + self._injector.wall_clock_shift_ms

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        del loop
        error = context.get("exception")
        if not (isinstance(error, RuntimeError) and "caller's own" in str(error)):
            self._history.violated("EXCEPTION", f"{context.get('message')}: {error!r}")

    # The run

    async def execute(self) -> None:
        plan = self._plan
        if not plan.starts_before_faults:
            self._injector.begin()
        await self._start()
        if plan.family.integer_edges:
            await self._checker.use_edge_values(self._keeper, self._network)
        if plan.starts_before_faults:
            self._injector.begin()
        began = self._loop.time()
        callers = [asyncio.ensure_future(caller.run()) for caller in callers_of(self._load)]
        self._checker.begin()
        if plan.family.closes_early:
            await self._checker.close_during_sends(self._injector, callers)
            return
        await asyncio.sleep(plan.chaos_s)
        await self._healed(callers)
        self._history.note("run", "callers are done %.3f s after the start", self._loop.time() - began)
        await self._end()

    async def _start(self) -> None:
        wait = self._plan.seed % 4 != 0
        began = self._loop.time()
        try:
            await self._producer.start(wait=wait)
        except KafkaError as error:
            self._history.note("caller", "start: %r", error)
            self._injector.heal()
            self._producer = self._load.producer = self._checker.producer = self._make_producer()
            await self._producer.start(wait=False)
        took, bound = self._loop.time() - began, self._plan.number("max_block_ms") / 1000
        if took > bound + (2 * LONGEST_JOB_S if self._plan.tls else 0.0) + 0.01:  # files are loaded before
            self._history.violated("TIMEOUT", f"start took {took} s, more than max_block_ms")

    def _check_authentication(self) -> None:
        """SASL: nothing but tokens comes between a handshake and its last token.

        A token of OAUTHBEARER that a broker does not take, such as one that has expired on its way, was not the last:
        the broker waits for one that says so.
        """
        if self._plan.mechanism == "OAUTHBEARER":
            return
        for request in self._network.model.intruders:
            self._history.violated("SASL", f"{request.api.name} on connection {request.connection_id} amid tokens")

    async def _healed(self, callers: Sequence[asyncio.Future[None]]) -> None:
        self._injector.heal()
        self._load.healthy_since = self._loop.time() + self._plan.longest_pause_s + self._load.delivery_timeout_s
        left = self._load.delivery_timeout_s + self._load.max_block_s
        bound = (1 + self._plan.records) * left  # callers go on sending; each call has its own, tighter bound
        await self._within(bound, asyncio.wait(callers), "the callers")
        for caller in callers:
            error = caller.exception() if caller.done() and not caller.cancelled() else None
            if error is not None and not is_end_by_lies(error, self._plan):
                self._history.violated("EXCEPTION", f"a call raised {type(error).__name__}: {error}")
        await self._within(left + 1, self._flush(), "flush after healing")
        await self._probe()
        await self._checker.wait_until_idle()
        await self._checker.probe_memory()
        await self._checker.wait_until_idle()

    async def _within(self, bound_s: float, call: Awaitable[object], what: str) -> None:
        try:
            async with asyncio.timeout(bound_s):
                await call
        except TimeoutError:
            self._history.violated("TIMEOUT", f"{what} did not end within {bound_s:.3f} s after healing")

    async def _flush(self) -> None:
        try:
            await self._producer.flush()
        except UndeliveredError as error:
            self._history.note_undelivered(error)

    async def _probe(self) -> None:
        if not self._plan.is_honest:
            return  # a caller that got invalid leader epochs waits for them
        partitions = range(self._plan.partitions)
        at_once = max(1, self._plan.number("buffer_memory") // SMALLEST_CHUNK)
        # More of them would stand in line for memory, a round trip each, until it is too late for the last.
        for first in partitions[::at_once]:
            await asyncio.gather(*map(self._checker.probe, partitions[first : first + at_once]))

    async def _end(self) -> None:
        self._checker.check_quiet()
        await self._checker.check_rest(self._network)
        try:
            async with asyncio.timeout(5):
                await self._producer.close(1)
        except UndeliveredError as error:
            self._history.note_undelivered(error)
        except TimeoutError:
            self._history.violated("TIMEOUT", "close(1) did not end within 5 s")
        await asyncio.sleep(0.2)
        self._checker.check_gone(self._network)
        self._check_authentication()

    # The result

    def check(self) -> RunResult:
        """Compare the operations with the logs."""
        history, plan = self._history, self._plan
        self._load.resolve()
        for operation in history.operations:
            if operation.end is End.GIVEN_UP and operation.expects_callback and not operation.was_called_back:
                history.violated(
                    "ENDS_ONCE", f"{operation.record} ({operation.verb}) was withdrawn, and was not called back"
                )
        self._interceptor.check(history.violated)
        logs = self._keeper.logs()
        guarantees = Guarantees(
            acks=plan.acks,
            is_idempotent=plan.is_idempotent,
            keeps_order=plan.acks != 0,
            is_honest=plan.is_honest,
            keeps_append_time=plan.keeps_append_time,
            keeps_all="lost producer state" not in plan.enabled and not plan.family.integer_edges,
            partitions=None if "topic changes" in plan.enabled else plan.partitions,
        )
        for violation in check_history(history.operations, logs, guarantees):
            history.violated(*violation)
        if not plan.enabled and not plan.family.closes_early:
            self._check_calm()
        return RunResult(
            plan=plan,
            violations=tuple(history.violations),
            digest=_digest(history.operations, logs, has_times=not plan.tls),
            turns=self._loop.turns,
            records=len(history.operations),
            ends=Counter([operation.end for operation in history.operations]),
            faults=self._wire_checker.faults,
            error_codes=self._wire_checker.error_codes,
            states=self._checker.states,
            events=tuple(history.lines()),
        )

    def _check_calm(self) -> None:
        """Check that without faults nothing fails except for want of memory or of time in a queue."""
        for operation in self._history.operations:
            is_allowed = any(word in operation.error for word in ("BufferFull", "BufferTimeout", "MetadataNotReady"))
            if operation.end is not End.ACKNOWLEDGED and not is_allowed:
                self._history.violated("CALM", f"{operation.record}: {operation.end.value} {operation.error:.200}")


def _digest(operations: list[Operation], logs: list[KeptLog], *, has_times: bool) -> int:
    """Return a digest of what became of the records.

    Args:
        operations: the calls.
        logs: of the brokers.
        has_times: whether times count. Over TLS they do not: a signature by an elliptic curve has a byte or two more
            or less, and so takes longer.
    """
    text = ",".join([operation.end for operation in operations])
    told = [(*operation.record, operation.offset) for operation in operations]
    written = [
        (record.offset, record.timestamp if has_times else 0, record.value) for log in logs for record in log.records
    ]
    return zlib.crc32(marshal.dumps((text, told, written), _PLAIN))
