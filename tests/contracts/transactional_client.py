"""A transactional producer made of single requests: what contract tests of transactions ask with."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from importlib import import_module
from typing import NamedTuple

from aioproducer.testing import ApiKey
from tests.contracts.odd_batches import odd_batch, record
from tests.contracts.raw_client import RawClient

TRANSACTIONAL = 0x10
CONCURRENT_TRANSACTIONS = 51
_STILL_STARTING = frozenset({14, 15, 16})
_PATIENCE_S = 15.0


class Identity(NamedTuple):
    """The error, and what the producer has by now."""

    error: int
    producer_id: int
    epoch: int


class TransactionalClient:
    """One transactional id on one connection; remembers producer id and epoch."""

    def __init__(self, client: RawClient, transactional_id: str) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1

    async def init(self, *, timeout_s: float = 60.0, expected: tuple[int, int] = (-1, -1)) -> Identity:
        """Send InitProducerId 4, repeated while an earlier transaction is completing; keeps the identity."""
        while True:
            identity = await self.init_once(timeout_s=timeout_s, expected=expected)
            if identity.error not in {CONCURRENT_TRANSACTIONS, *_STILL_STARTING}:
                return identity
            await self.find_coordinator()
            await asyncio.sleep(0.02)

    async def init_once(self, *, timeout_s: float = 60.0, expected: tuple[int, int] = (-1, -1)) -> Identity:
        """Send InitProducerId 4."""
        answer = await self.client.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=self.transactional_id,
            transaction_timeout=timedelta(seconds=timeout_s),
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        if int(answer.error_code) == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return Identity(int(answer.error_code), answer.producer_id, answer.producer_epoch)

    async def find_coordinator(self) -> int:
        """Send FindCoordinator 2; returns the error. A fresh real broker creates its transaction topic at the first."""
        answer = await self.client.ask(ApiKey.FIND_COORDINATOR, 2, key=self.transactional_id, key_type=1)
        return int(answer.error_code)

    async def add_partitions(self, topic: str, partition: int = 0, *, version: int = 3) -> int:
        """Send AddPartitionsToTxn; returns the error."""
        topics = import_module(f"kio.schema.add_partitions_to_txn.v{version}.request").AddPartitionsToTxnTopic
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": (topics(name=topic, partitions=(partition,)),),
        }
        answer = await self._until_settled(ApiKey.ADD_PARTITIONS_TO_TXN, version, fields)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    async def produce(self, topic: str, sequence: int = 0, *, version: int, value: bytes = b"v") -> int:
        """Produce one record of the transaction to partition 0; returns the error."""
        message = import_module(f"kio.schema.produce.v{version}.request")
        batch = odd_batch(
            [record(0, value=value)],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
        )
        part = message.PartitionProduceData(index=0, records=batch)
        data = message.TopicProduceData(name=topic, partition_data=(part,))
        fields = {"transactional_id": self.transactional_id, "acks": -1, "topic_data": (data,)}
        answer = await self.client.ask(ApiKey.PRODUCE, version, **fields)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def end(self, *, commit: bool, version: int, epoch: int | None = None) -> Identity:
        """Send EndTxn; keeps the identity that version 5 returns."""
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch if epoch is None else epoch,
            "committed": commit,
        }
        answer = await self._until_settled(ApiKey.END_TXN, version, fields)
        identity = Identity(
            int(answer.error_code), getattr(answer, "producer_id", -1), getattr(answer, "producer_epoch", -1)
        )
        if identity.error == 0 and identity.producer_id >= 0:
            self.producer_id, self.epoch = identity.producer_id, identity.epoch
        return identity

    async def add_offsets(self, group: str, *, version: int = 3) -> int:
        """Send AddOffsetsToTxn; returns the error."""
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "group_id": group,
        }
        return int((await self._until_settled(ApiKey.ADD_OFFSETS_TO_TXN, version, fields)).error_code)

    async def commit_offset(
        self, group: str, topic: str, offset: int, *, version: int, metadata: str = "note", **member: object
    ) -> int:
        """Send TxnOffsetCommit of partition 0; returns the error."""
        message = import_module(f"kio.schema.txn_offset_commit.v{version}.request")
        part = message.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        topics = (message.TxnOffsetCommitRequestTopic(name=topic, partitions=(part,)),)
        answer = await self.client.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=topics,
            **member,
        )
        return int(answer.topics[0].partitions[0].error_code)

    async def committed_offset(self, group: str, topic: str, *, stable: bool = True) -> tuple[int, int]:
        """Return error and offset from OffsetFetch 7 for partition 0."""
        message = import_module("kio.schema.offset_fetch.v7.request")
        topics = (message.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,)),)
        answer = await self.client.ask(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=stable)
        found = answer.topics[0].partitions[0]
        return int(found.error_code), found.committed_offset

    async def state(self) -> str:
        """Return the state of the id in DescribeTransactions, once it is not completing."""
        for _ in range(500):
            answer = await self.client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(self.transactional_id,))
            found = str(answer.transaction_states[0].transaction_state)
            if not found.startswith("Prepare"):
                break
            await asyncio.sleep(0.01)
        return found

    async def _until_settled(self, api: ApiKey, version: int, fields: dict[str, object]):  # noqa: ANN202 - kio's
        """Send, and repeat while an earlier end is completing."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = await self.client.ask(api, version, **fields)
            is_pending = "<ErrorCode.concurrent_transactions" in repr(answer)
            if not is_pending or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(0.01)
