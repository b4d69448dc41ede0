"""A transaction manager whose brokers and whose clock are in the hands of the test."""

import random
from collections.abc import Collection, Mapping

import pytest

from aioproducer._accumulator.partition import Partition, Topic
from aioproducer._protocol.messages import ProducerIdResponse
from aioproducer._protocol.transaction_admin_messages import TransactionDescription
from aioproducer._protocol.transaction_messages import (
    CodeResponse,
    CoordinatorResponse,
    EndTxnResponse,
    PartitionResult,
    PartitionsResponse,
)
from aioproducer._timing.retry_backoff import ExponentialBackoff
from aioproducer._transactions.identity import TransactionalIdentity
from aioproducer._transactions.manager import TransactionManager
from aioproducer._transactions.requests import OffsetsToSend, TransactionRequest, TransactionResponse
from aioproducer._transactions.states import TransactionState
from aioproducer.errors import BrokerConnectionError
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

State = TransactionState
LOST = BrokerConnectionError("lost")
OFFSETS = {TopicPartition("orders", 0): OffsetAndMetadata(7)}
READERS = ConsumerGroupMetadata("readers")
STRAY_DELAY_S = 30.0


class Scene:  # noqa: PLR0904  # all that a test does to a manager
    """A manager, the brokers' side in the hands of the test, and a clock that it sets."""

    def __init__(self, *, version: int = 2) -> None:
        self.now = 1000.0
        self.coordinator = 1  # the node that FindCoordinator names from now on
        self.described = "CompleteAbort", (77, 0)  # answer of DescribeTransactions: the state, and (producer id, epoch)
        self.version = version
        self.identity = TransactionalIdentity()
        backoff = ExponentialBackoff(100, 1000, jitter=0.0, random=random.Random(1))
        self.joined: list[Partition] = []
        self.manager = TransactionManager(
            "billing-1",
            timeout_ms=60_000,
            identity=self.identity,
            backoff=backoff,
            stray_delay_s=STRAY_DELAY_S,
            on_joined=self.joined.extend,
        )

    def partition(self, number: int = 0, topic: str = "t") -> Partition:
        return Partition(Topic(topic, is_adaptive=True), number, self.identity.of_partition(), max_in_flight=5)

    def ask(self) -> TransactionRequest:
        """Return the request that goes out now; its coordinator is looked up on the way."""
        request = self.manager.next_request(self.now)
        assert request is not None, f"nothing is asked: {self.manager!r}"
        if request.api.name == "FindCoordinator":
            self.found(request)
            return self.ask()
        self.manager.sent(request)
        return request

    def found(self, request: TransactionRequest) -> None:
        self.manager.sent(request)
        self.manager.answered(request, CoordinatorResponse(0, 0, self.coordinator, "h", 9092), self.now)

    def asked(self) -> str | None:
        request = self.manager.next_request(self.now)
        return None if request is None else request.api.name

    def answer(self, request: TransactionRequest, code: int = 0) -> None:
        self.manager.answered(request, self._answer_to(request, code), self.now)

    def _answer_to(self, request: TransactionRequest, code: int) -> TransactionResponse:
        match request.api.name:
            case "InitProducerId":
                epoch = self.identity.first_epoch + 1 if self.identity.producer_id is not None else 0
                return ProducerIdResponse(0, code, -1 if code else 77, -1 if code else epoch)
            case "EndTxn":
                has_next = self.version >= 2 and not code
                return EndTxnResponse(0, code, *((77, self.identity.first_epoch + 1) if has_next else (-1, -1)))
            case "DescribeTransactions":
                state, claimant = self.described
                return TransactionDescription(code, "billing-1", "" if code else state, 60_000, -1, *claimant, [])
            case "AddOffsetsToTxn" | "FindCoordinator":
                return CodeResponse(0, code)
        asked = request.subject.offsets if isinstance(request.subject, OffsetsToSend) else request.subject
        assert isinstance(asked, Collection)
        return PartitionsResponse(0, [PartitionResult(place.topic, place.partition, code) for place in asked])

    def do(self, name: str, code: int = 0) -> TransactionRequest:
        """Have a request go out, which must be that one, and answer it."""
        request = self.ask()
        assert request.api.name == name
        self.answer(request, code)
        return request

    def lose(self, after_s: float = 1.0) -> TransactionRequest:
        """Have a request go out whose answer never comes, and let time pass."""
        request = self.ask()
        self.manager.unanswered(request, LOST, was_sent=True, now=self.now)
        self.pass_time(after_s)
        return request

    def look_and_renew(self) -> TransactionRequest:
        """Have the coordinator say what is open there, and give another epoch."""
        self.do("DescribeTransactions")
        return self.do("InitProducerId")

    def ready(self) -> "Scene":
        self.manager.initialize()
        self.do("InitProducerId")
        return self

    def begun(self, *partitions: int) -> "Scene":
        """Have a transaction open that writes to these partitions, all of them added, with a record on the way."""
        if self.manager.state is State.UNINITIALIZED:
            self.ready()
        assert self.manager.begin(self.version)
        opened = [self.partition(number) for number in partitions]
        for partition in opened:
            self.manager.use(partition, self.now)
        if partitions and self.version < 2:
            self.do("AddPartitionsToTxn")
        for partition in opened:
            if partition.identity.can_stamp:
                partition.identity.stamp(1)
        return self

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> OffsetsToSend:
        """Add offsets of a group that the transaction has, where V1 must add them first."""
        sending = self.manager.send_offsets(OffsetsToSend(offsets, group))
        if self.version < 2:
            self.do("AddOffsetsToTxn")
        return sending

    def commit(self) -> None:
        """Ask for the commit when every record has its outcome."""
        self.manager.commit()
        self.manager.flushed()

    def abort(self) -> None:
        """Ask for the abort when every record has its outcome."""
        self.manager.abort()
        self.manager.flushed()

    def is_in(self, state: TransactionState) -> bool:
        return self.manager.state is state

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


def on_both() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", [0, 2], ids=["V1", "V2"])
