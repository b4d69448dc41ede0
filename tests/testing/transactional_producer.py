"""A transactional producer of a model cluster, made of single requests to the right brokers."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import NamedTuple

from aioproducer.testing import ApiKey
from tests.contracts.odd_batches import odd_batch, record
from tests.testing.model_network import WALL_CLOCK_MS, ModelClient, ModelNetwork

TRANSACTIONAL = 0x10


class Identity(NamedTuple):
    """The error, and what the producer has by now."""

    error: int
    producer_id: int
    epoch: int


class ModelProducer:
    """A producer with transactional id `x` that sends single requests to the model's brokers."""

    def __init__(self, network: ModelNetwork, transactional_id: str = "x") -> None:
        self.network = network
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self._clients: dict[int, ModelClient] = {}

    def client(self, node_id: int) -> ModelClient:
        if node_id not in self._clients:
            self._clients[node_id] = self.network.client(node_id)
        return self._clients[node_id]

    def coordinator(self) -> int:
        asked = self.client(self.network.model.live_nodes()[0])
        return int(asked.ask(ApiKey.FIND_COORDINATOR, 2, key=self.transactional_id, key_type=1).node_id)

    def _ask(self, api: ApiKey, version: int, **fields: object):  # noqa: ANN202 - one of kio's classes
        asked = self.client(self.coordinator())
        return asked.ask(api, version, transactional_id=self.transactional_id, **fields)

    def _identity(self) -> dict[str, object]:
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch}

    def init(self, *, timeout_s: float = 60.0) -> Identity:
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, 4, transaction_timeout=timedelta(seconds=timeout_s))
        if int(answer.error_code) == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return Identity(int(answer.error_code), answer.producer_id, answer.producer_epoch)

    def add_partition(self, topic: str = "t", partition: int = 0) -> int:
        """Send AddPartitionsToTxn; returns the error."""
        topics = import_module("kio.schema.add_partitions_to_txn.v3.request").AddPartitionsToTxnTopic
        answer = self.client(self.coordinator()).ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(topics(name=topic, partitions=(partition,)),),
        )
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(self, sequence: int = 0, *, version: int = 11, acks: int = -1) -> int:
        self.send_produce(sequence, version=version, acks=acks)
        return self.produced(version)

    def send_produce(self, sequence: int = 0, *, version: int = 11, acks: int = -1) -> None:
        message = import_module(f"kio.schema.produce.v{version}.request")
        batch = odd_batch(
            [record(0)],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
            timestamp=WALL_CLOCK_MS,
        )
        part = message.PartitionProduceData(index=0, records=batch)
        data = message.TopicProduceData(name="t", partition_data=(part,))
        fields = {"transactional_id": self.transactional_id, "acks": acks, "timeout": timedelta(seconds=5)}
        leader = self.client(self.network.partition().leader)
        leader.send_message(ApiKey.PRODUCE, version, topic_data=(data,), **fields)

    def has_answer(self) -> bool:
        return bool(self.client(self.network.partition().leader).received)

    def produced(self, version: int = 11) -> int:
        answer = self.client(self.network.partition().leader).answer(ApiKey.PRODUCE, version)
        return int(answer.responses[0].partition_responses[0].error_code)

    def end(self, *, commit: bool, version: int = 4) -> Identity:
        answer = self._ask(ApiKey.END_TXN, version, committed=commit, **self._identity())
        found = Identity(
            int(answer.error_code), getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1)
        )
        if found.error == 0 and found.producer_id >= 0:
            self.producer_id, self.epoch = found.producer_id, found.epoch
        return found

    @property
    def state(self) -> str:
        entry = self.network.model.transactions.entry(self.transactional_id)
        assert entry is not None
        return entry.state.value
