"""Callers of a producer: every method, patient or not, with everything that a call can be given, or must refuse.

Each caller is a task with its own chance, so that what one does hardly depends on what others do. Every record that a
caller tries to send has a `Operation`; every way in which a call can end is written down in it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from random import Random
from typing import Any, NamedTuple, TypeVar

from aioproducer import BufferTimeoutError, BulkResult, Delivery, KafkaError, RecordMetadata, UndeliveredError
from aioproducer._network.node_connection import LONGEST_THROTTLE_MS
from tests.programs.simulation.allowed_failures import may_be_taken_apart
from tests.programs.simulation.history import End, Operation, RecordId
from tests.programs.simulation.invariant_checkers import FlushChecker
from tests.programs.simulation.workload import TICK_S, Workload, headers_for

ResultT = TypeVar("ResultT")

CALL_ERRORS = (KafkaError, TypeError, ValueError)

_PATIENCE_S = 60.0
_PAUSES = 0.04  # records come in bursts: after this many there is a pause, in proportion
_LONGEST_PAUSE_S = 50.0  # less than a run that was closed waits for its callers


def callers_of(load: Workload) -> list["Caller"]:
    each, more = divmod(load.plan.records, load.plan.clients)
    return [Caller(load, number, each + (number < more)) for number in range(load.plan.clients)]


class Caller:
    def __init__(self, load: Workload, number: int, share: int) -> None:
        self._load = load
        self._rng = Random(f"{load.plan.family.name}-{load.plan.seed}-{number}")
        self._source = RecordSource(load, number, share=share, rng=self._rng)
        self._with_faults = load.plan.user_faults
        self._slow: list[Delivery] = []  # looked at much later, by a slow consumer of deliveries
        verbs = load.plan.family.verbs
        self._verbs = [getattr(self, f"verb_{name}") for name, weight in verbs.items() for _ in range(weight)]

    async def run(self) -> None:
        rng, verbs = self._rng, self._verbs
        while self._source.left > 0 and not self._load.is_closing:
            verb, sent = verbs[int(rng.random() * len(verbs))], self._source.sent
            self._source.choose_destination()
            if self._with_faults and rng.random() < self._load.plan.family.cancels:
                await self._with_cancellation(verb())
            else:
                await verb()
            await self._pause(self._source.sent - sent)
        for delivery in self._slow:
            if not delivery.done():
                await asyncio.wait([delivery])

    async def _pause(self, sent: int) -> None:
        pace = self._load.plan.pace_s
        if pace and self._rng.random() < _PAUSES * sent:
            now, pause_s = self._load.now(), min(self._rng.expovariate(_PAUSES / pace), _LONGEST_PAUSE_S)
            await asyncio.sleep(self._load.on_beat(now + pause_s) - now)
        elif self._rng.random() < 0.2:
            await asyncio.sleep(0)

    async def _with_cancellation(self, call: Coroutine[object, object, None]) -> None:
        """Make a call and cancel it at any moment, in one of the ways there are."""
        rng = self._rng
        patience_s = rng.choice((0.0, 0.001, 0.1)) * rng.random() * self._load.delivery_timeout_s
        if rng.random() < 0.3:
            try:
                async with asyncio.timeout(patience_s):
                    await call
            except TimeoutError:
                pass
            return
        task = asyncio.ensure_future(call)
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if rng.random() < 0.7:
            await asyncio.sleep(patience_s)
        for _ in range(rng.randint(1, 2)):
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    # The verbs

    async def verb_send(self) -> None:
        """`send`, and then nothing, or one of the many ways to wait for a delivery."""
        delivery = None
        for _ in range(self._source.group()):
            delivery = self._call(self._source.operation("send"), self._load.producer.send)
            if delivery is not None and self._rng.random() < 0.2:
                self._defer(delivery)
        if delivery is not None:
            await self._use_delivery(delivery)

    async def verb_nowait(self) -> None:
        for _ in range(self._source.group()):
            operation = self._source.operation("send_nowait")
            delivery = self._call(operation, self._load.producer.send_nowait)
            operation.is_left = delivery is not None and not operation.expects_callback

    async def verb_enqueue(self) -> None:
        for _ in range(self._source.group()):
            await self._enqueue()

    async def _enqueue(self) -> None:
        operation = self._source.operation("enqueue")
        arguments = self._source.arguments(operation)
        bound = min(self._load.max_block_s, self._load.record_timeout_s(operation))
        try:
            call = self._load.producer.enqueue(self._load.topic, **arguments)
            delivery = await self._bounded(operation, call, bound)
        except CALL_ERRORS as error:
            self._refused(operation, error)
            self._check_served(operation, error)
        else:
            self._accepted(operation, delivery)
            if self._rng.random() < 0.1:
                self._slow.append(delivery)

    async def verb_wait(self) -> None:
        """`send_and_wait`, which takes at most `delivery_timeout_ms` and what `enqueue` takes."""
        operation = self._source.operation("send_and_wait")
        call = self._load.producer.send_and_wait(self._load.topic, **self._source.arguments(operation))
        bound = max(self._load.max_block_s, self._load.delivery_timeout_s)
        if operation.deadline_s is not None:
            bound = self._load.record_timeout_s(operation)
        try:
            metadata = await self._bounded(operation, call, bound)
        except CALL_ERRORS as error:
            operation.fail(error, self._load.now())
        else:
            operation.acknowledge(metadata, self._load.now())

    async def verb_many(self) -> None:
        count = min(self._source.left, self._source.group() + self._source.group())
        destination = self._source.destination()
        operations: list[Operation] = []

        def values() -> Iterator[bytes | None]:
            for _ in range(count):  # one when its turn has come: that is its place among the calls
                operations.append(
                    self._source.operation_for("send_many", destination.partition, self._source.destination().key)
                )
                yield operations[-1].value

        keys = (operations[-1].key for _ in range(count))
        try:
            bulk = await self._load.producer.send_many(
                self._load.topic, values(), keys=keys, partition=destination.partition
            )
            result = await bulk
        except CALL_ERRORS as error:
            for operation in operations:
                operation.fail(error, self._load.now())
            return
        except asyncio.CancelledError:
            for operation in operations:
                operation.give_up(self._load.now())
            raise
        self._wait_for_result(operations, result)

    def _wait_for_result(self, operations: list[Operation], result: BulkResult) -> None:
        for position, operation in enumerate(operations):
            if position in result.errors:
                operation.fail(result.errors[position], self._load.now())
            else:
                operation.end, operation.ended_at, operation.ranges = End.ACKNOWLEDGED, self._load.now(), result.offsets

    async def verb_gather(self) -> None:
        deliveries = []
        for _ in range(min(self._source.left, 1 + self._source.group())):
            delivery = self._call(self._source.operation("send"), self._load.producer.send)
            if delivery is not None:
                deliveries.append(delivery)
        await asyncio.gather(*deliveries, return_exceptions=True)

    async def verb_flush(self) -> None:
        """`flush`: what was accepted before has ended then, within the time that records live."""
        load = self._load
        before = [
            operation
            for operation in load.deliveries
            if operation.delivery is not None and not operation.delivery.done()
        ]
        began = load.now()
        checker = FlushChecker(load.history.operations, load.now)
        timeout = self._rng.choice((None, None, None, 0.0, 0.05 * load.delivery_timeout_s))
        load.history.note("caller", "flush(%s)", timeout)
        try:
            await load.producer.flush(timeout)
        except TimeoutError:
            self._load.check_bound("flush", began, 0.0 if timeout is None else timeout)
            return
        except UndeliveredError as error:
            load.history.note_undelivered(error)
        except KafkaError:
            if load.is_closing:
                return
            raise
        late = [
            str(operation.record)
            for operation in before
            if operation.delivery is not None and not operation.delivery.done()
        ]
        if late:
            load.history.violated("FLUSH", f"flush returned before {', '.join(late)} had ended")
        # A batch may hold records of after the call: of its parts, if it is taken apart, the last may be theirs.
        if checker.overtime_s() > TICK_S and not may_be_taken_apart(load.plan):
            load.history.violated(
                "FLUSH", f"flush went on for {checker.overtime_s():.6f} s after all it waits for had ended"
            )
        self._load.check_bound("flush", began, max(load.delivery_timeout_s, load.max_block_s))

    def _call(self, operation: Operation, verb: Callable[..., Delivery]) -> Delivery | None:
        try:
            delivery = verb(self._load.topic, **self._source.arguments(operation))
        except CALL_ERRORS as error:
            self._refused(operation, error)
            return None
        self._accepted(operation, delivery)
        return delivery

    async def _bounded(self, operation: Operation, call: Awaitable[ResultT], bound_s: float) -> ResultT:
        """Await a call that has a time of its own to end in."""
        try:
            return await call
        except asyncio.CancelledError:
            operation.give_up(self._load.now())
            raise
        finally:
            self._load.check_bound(operation, operation.called_at, bound_s)

    def _check_served(self, operation: Operation, error: BaseException) -> None:
        """MEMORY: no call waits long for memory while brokers answer and have not asked for a pause."""
        has_patience = self._load.max_block_s >= _PATIENCE_S
        pause_s = 0.0 if self._load.plan.is_honest else LONGEST_THROTTLE_MS / 1000
        is_healthy = 0.0 < self._load.healthy_since < operation.called_at - pause_s
        if isinstance(error, BufferTimeoutError) and has_patience and is_healthy and operation.deadline_s is None:
            self._load.history.violated("MEMORY", f"{operation.record} found no memory on a healthy cluster: {error}")

    def _accepted(self, operation: Operation, delivery: Delivery) -> None:
        operation.delivery = delivery
        self._load.deliveries.append(operation)

    def _refused(self, operation: Operation, error: BaseException) -> None:
        operation.expects_callback = False
        if self._load.history.secrecy is not None:
            self._load.history.secrecy.check_error(error)
        operation.fail(error, self._load.now())
        self._load.history.note("caller", "%s is refused: %s", operation.record, operation.error)

    # What callers do with deliveries

    async def _use_delivery(self, delivery: Delivery) -> None:
        """Wait for it, in one of the ways there are, or do not."""
        dice = self._rng.random()
        if dice < 0.05:
            patience_s = None if dice < 0.02 else 0.01 * self._load.delivery_timeout_s
            await asyncio.gather(_awaited(delivery, patience_s), _awaited(delivery), return_exceptions=True)
        elif dice < 0.15:
            await asyncio.wait([delivery])
        elif dice < 0.2:
            await asyncio.wait([delivery], timeout=0.1 * self._load.delivery_timeout_s)
        elif dice < 0.4:
            self._defer(delivery)

    def _defer(self, delivery: Delivery) -> None:
        """Look later, or leave it to a callback, or give it up."""
        dice = self._rng.random()
        if dice < 0.5:
            self._slow.append(delivery)
        elif dice < 0.75 and self._with_faults:
            delivery.add_done_callback(_fail)
        elif self._with_faults:
            delivery.cancel()


async def _awaited(delivery: Delivery, patience_s: float | None = None) -> RecordMetadata:
    async with asyncio.timeout(patience_s):  # a caller that gives up leaves the others waiting
        return await delivery


def _fail(_: asyncio.Future[RecordMetadata]) -> None:
    raise RuntimeError("the caller's own done callback fails")


POISON = "a value that the serializer refuses"
_TEXT = b"the quick brown fox jumps over the lazy dog " * 2_000
_NOISE = Random(0).randbytes(90_000)
_HURRIED = 0.4  # share of the records with deadlines of their own, where the plan has them
_SAME_DESTINATION = 0.9
"""Share of the groups of records of one call, or of a few in a row, that go to one partition, or have one key."""


def serialize(value: object) -> bytes:
    """Serialize values of a producer that has a serializer; some cannot be."""
    if value == POISON:
        raise ValueError(POISON)
    assert isinstance(value, bytes)
    return value


class Destination(NamedTuple):
    partition: int | None
    key: bytes | None


class RecordSource:
    def __init__(self, load: Workload, number: int, *, share: int, rng: Random) -> None:
        plan = load.plan
        self.left = share
        self.sent = 0
        self.destination: Callable[[], Destination] = self._new_destination
        self._load = load
        self._number = number
        self._rng = rng
        self._with_faults = plan.user_faults
        self._has_serializer = plan.has_serializer
        high = min(plan.family.value_size[1], plan.number("buffer_memory") // 16)
        self._smallest = plan.family.value_size[0]
        self._largest = max(self._smallest, high)
        self._usual = max(self._smallest, min(self._largest, 150))
        self._has_partitioner = plan.has_partitioner
        self._goes_to_edges = plan.family.integer_edges
        self._hurry = Random(f"deadlines-{plan.family.name}-{plan.seed}-{number}")

    def group(self) -> int:
        """Draw how many records come together: sometimes one, usually some, more where the plan says so."""
        rng = self._rng
        size = 1 if rng.random() < 0.15 else 2 + int(rng.random() * self._load.plan.burst)
        return min(size, self.left)

    def choose_destination(self) -> None:
        """Decide where the next records go: all to one place, or each anywhere."""
        if self._rng.random() < _SAME_DESTINATION:
            destination = self._new_destination()
            self.destination = lambda: destination
        else:
            self.destination = self._new_destination

    def _new_destination(self) -> Destination:
        bits = self._rng.getrandbits(32)
        partition = (bits >> 8) % self._load.plan.partitions if bits & 1 else None
        key = b"k%d|" % ((bits >> 20) % 20) if bits & 0xE < 4 else None
        return Destination(partition, key)

    def operation(self, verb: str) -> Operation:
        """Begin the operation of the next record, which goes where the others of its group do."""
        destination = self.destination()
        return self.operation_for(verb, destination.partition, destination.key)

    def operation_for(self, verb: str, partition: int | None, key: bytes | None) -> Operation:
        load = self._load
        record = RecordId(self._number, 0, self.sent)
        self.sent += 1
        self.left -= 1
        operation = Operation(
            record,
            len(load.history.operations),
            load.topic,
            self._value(record),
            key,
            verb,
            load.now(),
            partition,
            is_free=partition is None and key is None,
            is_by_key=self._is_by_key(partition, key),
        )
        return load.history.begin(operation)

    def _is_by_key(self, partition: int | None, key: bytes | None) -> bool:
        return partition is None and key is not None and not self._has_partitioner

    def _value(self, record: RecordId) -> bytes:
        bits = self._rng.getrandbits(48)
        low, high = self._smallest, self._usual if bits & 0xF < 13 else self._largest
        size = low + (bits >> 8 & 0xFFFF) % (high - low + 1)
        filler = _TEXT if bits & 0xF0 < 0xA0 else _NOISE
        start = (bits >> 24) % 500
        return b"%d.%d.%d|" % record + filler[start : start + size]

    def arguments(self, operation: Operation) -> dict[str, Any]:
        """Return what a call for this record is given; what is not what the operation says must be refused."""
        rng = self._rng
        dice = rng.random()
        arguments: dict[str, Any] = {"value": operation.value, "key": operation.key, "partition": operation.partition}
        if dice < 0.5:
            arguments["on_delivery"] = self._callback(operation, misbehaves=self._with_faults and dice < 0.15)
        if 0.45 < dice < 0.55:
            operation.given_timestamp = arguments["timestamp"] = round(1_700_000_000_000 + rng.uniform(-1e6, 1e6))
        if 0.4 < dice < 0.6:
            arguments["headers"] = operation.headers = headers_for(operation)
        if self._load.plan.has_deadlines and self._hurry.random() < _HURRIED:
            share = 10 ** self._hurry.uniform(-3, 0)
            operation.deadline_s = arguments["deadline"] = share * self._load.delivery_timeout_s
            self._load.watch_deadline(operation)
        if self._goes_to_edges and rng.random() < 0.2:
            self._use_edge_values(operation, arguments)
        if self._with_faults and rng.random() < 0.05:
            self._make_invalid(arguments)
        return arguments

    def _use_edge_values(self, operation: Operation, arguments: dict[str, Any]) -> None:
        """Send a tombstone, or a time at the end of time."""
        if operation.key is None or operation.partition is not None:
            arguments["key"] = operation.key = b"%d.%d.%d|" % operation.record
            operation.is_free, operation.is_by_key = False, self._is_by_key(operation.partition, operation.key)
            if self._rng.random() < 0.5:
                arguments["value"] = operation.value = None
        if self._rng.random() < 0.5:
            operation.given_timestamp = arguments["timestamp"] = self._rng.choice((0, 1, 2**31, 2**62, 2**63 - 1))

    def _make_invalid(self, arguments: dict[str, Any]) -> None:
        """Make it a call that must be refused."""
        spoilt: list[tuple[str, object]] = [("partition", -1), ("key", 5), ("timestamp", -5), ("headers", [1])]
        if self._has_serializer:
            spoilt.append(("value", POISON))
        name, value = self._rng.choice(spoilt)
        arguments[name] = value

    def _callback(
        self, operation: Operation, *, misbehaves: bool
    ) -> Callable[[RecordMetadata | None, KafkaError | None], object]:
        operation.expects_callback = True

        def on_delivery(metadata: RecordMetadata | None, error: KafkaError | None) -> object:
            if operation.was_called_back:
                self._load.history.violated("ENDS_ONCE", f"{operation.record} was called back twice")
            operation.was_called_back = True
            if metadata is not None:
                operation.acknowledge(metadata, self._load.now())
                self._load.turns.called_back(operation)
            elif error is not None:
                operation.fail(error, self._load.now())
            self._load.check_bound(operation, operation.called_at, self._load.record_timeout_s(operation))
            self._load.history.note("caller", "%s is called back: %s", operation.record, operation.end)
            return _misbehave(operation.order) if misbehaves else None

        return on_delivery


def _misbehave(dice: int) -> object:
    """Misbehave as callbacks of users do: fail, return something, or be a coroutine function."""
    if dice % 2:
        raise RuntimeError("the caller's own callback fails")
    return "an unused result" if dice % 4 else _unawaited()


async def _unawaited() -> None:
    """Stands for what an async callback would have done."""
