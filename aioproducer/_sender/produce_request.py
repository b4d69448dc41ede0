"""One Produce request: its batches, and which part of the response belongs to which batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer._protocol.messages import PRODUCE
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer._protocol.produce import (
    BatchToSend,
    PartitionResponse,
    ProduceResponse,
    encode_produce_request,
    largest_produce_response,
)
from aioproducer.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer._accumulator.partition_queue import ProducerBatch
    from aioproducer._protocol.produce import Buffer
    from aioproducer.cluster import Cluster

LAST_VERSION_WITHOUT_ADDING: Final = 11
"""From version 12 on a Produce request adds its partitions to the transaction (KIP-890)."""
LAST_VERSION_BY_NAME: Final = 12  # from version 13 on topics are named by their ids (KIP-516)


class ProduceTransaction(NamedTuple):
    """The transaction of all batches of a request."""

    transactional_id: str
    is_v2: bool  # brokers add partitions when they are written to


class ProduceRequest:
    """Batches for one node, at most one per partition; `cluster` knows the topic ids."""

    def __init__(
        self,
        node_id: int,
        batches: Sequence[ProducerBatch],
        cluster: Cluster,
        *,
        transaction: ProduceTransaction | None = None,
    ) -> None:
        self.node_id = node_id
        self.batches = batches
        self._transaction = transaction
        self.version = 0  # version of request and response, set when the connection is known
        self.topic_ids: dict[str, bytes] = {}  # by name, from the metadata at the time of the request
        self._names: dict[bytes, str] = {}  # by id
        self._records = 0
        for batch in batches:
            self._records += batch.count
            topic = batch.queue.topic_partition.topic
            if topic not in self.topic_ids:
                view = cluster.topics.get(topic)
                self.topic_ids[topic] = topic_id = NO_TOPIC_ID if view is None else view.topic_id
                self._names[topic_id] = topic

    @property
    def highest_version(self) -> int:
        """The highest version that this request can use: topic ids may be unknown."""
        if self._transaction is not None and not self._transaction.is_v2:
            return LAST_VERSION_WITHOUT_ADDING
        return LAST_VERSION_BY_NAME if NO_TOPIC_ID in self._names else PRODUCE.max_version

    @property
    def largest_response(self) -> int:
        return largest_produce_response(len(self.batches), self._records)

    def encode(self, version: int, *, acks: int, timeout_ms: int) -> list[Buffer]:
        """Return the body in pieces, without a copy of the records."""
        transaction = self._transaction
        if transaction is not None and transaction.is_v2 and version <= LAST_VERSION_WITHOUT_ADDING:
            text = f"node {self.node_id} speaks Produce up to {version}, and transactions of its cluster need 12"
            raise UnsupportedVersionError(text)
        transactional_id = None if transaction is None else transaction.transactional_id
        return encode_produce_request(
            version, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id, batches=self._to_send()
        )

    def responses_by_partition(self, response: ProduceResponse) -> dict[tuple[str | None, int], PartitionResponse]:
        """Return the parts of the response by partition; of two for one partition the first counts."""
        found: dict[tuple[str | None, int], PartitionResponse] = {}
        for partition_response in response.partitions:
            found.setdefault((self._topic_of(partition_response), partition_response.partition), partition_response)
        return found

    def _topic_of(self, partition_response: PartitionResponse) -> str | None:
        if partition_response.topic is not None or partition_response.topic_id is None:
            return partition_response.topic
        return self._names.get(partition_response.topic_id)

    def _to_send(self) -> list[BatchToSend]:
        to_send = []
        for batch in self.batches:
            topic, partition = batch.queue.topic_partition
            records = batch.records()
            to_send.append(BatchToSend(topic, self.topic_ids[topic], partition, batch.header(records), records))
        return to_send


def topic_of(batch: ProducerBatch) -> str:
    return batch.queue.topic_partition.topic
