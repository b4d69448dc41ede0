"""Common part of the callers of one run, and the outcomes of what they sent; code and headers of the user.

The user's interceptor and partitioner may fail; headers are of all sizes.
"""

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Final

from aioproducer import Producer, RecordFilteredError
from aioproducer._accumulator.delivery_deadlines import GRAIN_S
from aioproducer.cluster import Cluster
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.records import Headers, ProducerRecord, RecordMetadata, TopicPartition
from tests.programs.simulation.allowed_failures import check_ends
from tests.programs.simulation.history import End, History, Operation
from tests.programs.simulation.invariant_checkers import CallbackOrderChecker
from tests.programs.simulation.plan import Plan

TICK_S = 0.002  # tolerance of a deadline: one timer tick, and the following turns of the loop


class Workload:
    """Shared by all callers of one run."""

    def __init__(
        self, plan: Plan, producer: Producer, history: History, *, topic: str, on_beat: Callable[[float], float]
    ) -> None:
        self.plan = plan
        self.producer = producer
        self.history = history
        self.topic = topic
        self.on_beat = on_beat
        self.deliveries: list[Operation] = []  # operations with a delivery, in the order in which these were given
        self.is_closing = False
        self.healthy_since = 0.0  # virtual seconds; 0.0 while things go wrong
        self.now = history.clock
        self.turns = CallbackOrderChecker(plan, history)
        self.delivery_timeout_s = plan.number("delivery_timeout_ms") / 1000
        self.max_block_s = plan.number("max_block_ms") / 1000

    def check_bound(self, what: str | Operation, began: float, bound_s: float) -> None:
        """ENDS_ONCE: what has a time of its own to end in has ended by then."""
        took = self.now() - began
        if took > bound_s + TICK_S:
            name = what if isinstance(what, str) else f"{what.verb} {what.record}"
            self.history.violated("ENDS_ONCE", f"{name} took {took:.6f} s, more than {bound_s:.6f}")

    def record_timeout_s(self, operation: Operation) -> float:
        return self.delivery_timeout_s if operation.deadline_s is None else operation.deadline_s + GRAIN_S

    def watch_deadline(self, operation: Operation) -> None:
        """ENDS_ONCE: look at a record when its own deadline is over."""
        asyncio.get_running_loop().call_later(
            self.record_timeout_s(operation) + TICK_S, self._check_deadline, operation
        )

    def _check_deadline(self, operation: Operation) -> None:
        if operation.delivery is not None and not operation.delivery.done():
            self.history.violated(
                "ENDS_ONCE", f"{operation.record} is open past its deadline of {operation.deadline_s} s"
            )

    def resolve(self) -> None:
        for operation in self.deliveries:
            delivery = operation.delivery
            assert delivery is not None
            if delivery.cancelled():
                operation.give_up(self.now())
                continue
            if not delivery.done():
                continue
            told = (operation.end, operation.offset)
            error = delivery.exception()
            if error is not None and self.history.secrecy is not None:
                self.history.secrecy.check_error(error)
            if error is None:
                operation.acknowledge(delivery.result(), operation.ended_at)
            else:
                operation.fail(error, operation.ended_at)
            if told[0] is not End.OPEN and told[0] is not End.GIVEN_UP and told != (operation.end, operation.offset):
                self.history.violated(
                    "ENDS_ONCE", f"{operation.record} ended twice: {told}, {(operation.end, operation.offset)}"
                )
        healed_at = self.healthy_since - self.delivery_timeout_s if self.healthy_since else math.inf
        for violation in check_ends(self.history.operations, self.plan, healed_at):
            self.history.violated(*violation)
        self._check_told()

    def _check_told(self) -> None:
        """FLUSH: what failed unseen, flushes and closes have said; but for what was dropped on purpose."""
        filtered = RecordFilteredError.__name__
        failed = [operation for operation in self.history.operations if operation.is_left and operation.error]
        left = [operation for operation in failed if not operation.error.startswith(filtered)]
        if len(left) > self.history.undelivered and not self.plan.family.closes_early:
            told = self.history.undelivered
            self.history.violated("FLUSH", f"{len(left)} records failed unseen, and {told} were told: {left[0].record}")


_DROPS = 0.03
_FAILS = 0.03


class UsersInterceptor(ProducerInterceptor):
    def __init__(self, rng: Random, *, errs: bool = True) -> None:
        self._rng = rng
        self._errs = errs
        self._passed = 0
        self._told = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        if self._errs and self._rng.random() < _DROPS:
            return None
        self._passed += 1
        self._fail()
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, headers: Headers) -> None:
        del metadata, headers
        self._told += 1
        self._fail()

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: Headers) -> None:
        del topic_partition, error, headers
        self._told += 1
        self._fail()

    def check(self, violated: Callable[[str, str], None]) -> None:
        """ENDS_ONCE: each passed record is notified once; call it when all have ended."""
        if self._told != self._passed:
            violated("ENDS_ONCE", f"the interceptor let {self._passed} records pass, and was told of {self._told} ends")

    def _fail(self) -> None:
        if self._errs and self._rng.random() < _FAILS:
            raise RuntimeError("the caller's own interceptor fails")


# A partitioner of the user's own: it puts records anywhere, and may fail or name partitions that do not exist.

_NAMES_NONE = 0.03


class UsersPartitioner:
    def __init__(self, rng: Random, *, errs: bool) -> None:
        self._rng = rng
        self._errs = errs

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Return a partition; the number behind the last now and then, if it errs."""
        del key, key_bytes, value, value_bytes
        count = cluster.partition_count(topic)
        assert count is not None, "the partitioner was asked before the topic was known"
        dice = self._rng.random() if self._errs else 1.0
        if dice < _FAILS:
            raise RuntimeError("the caller's own partitioner fails")
        return count if dice < _FAILS + _NAMES_NONE else self._rng.randrange(count)


# Headers of records: none, one or several, short and long, with and without a value.

_NAMES: Final = ("trace", "", "\u00e9t\u00e9", "n" * 63, "n" * 64)
"""Among them those whose lengths are the last of one byte, and the first of two."""

_LONGEST: Final = 300


def headers_for(operation: Operation) -> tuple[tuple[str, bytes | None], ...]:
    number = operation.record.number
    return tuple(
        (_NAMES[(number + each) % len(_NAMES)], None if (number + each) % 7 == 0 else _value(number, each))
        for each in range(number % 4)
    )


def _value(number: int, each: int) -> bytes:
    return b"%d.%d" % (number, each) * (number * 13 % _LONGEST // 8)
