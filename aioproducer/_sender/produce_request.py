"""One Produce request on its way: which batches it carries, and which answer belongs to which."""

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
    from collections.abc import Collection, Sequence

    from aioproducer._accumulator.partition_queue import ProducerBatch
    from aioproducer._protocol.produce import Buffer
    from aioproducer.cluster import Cluster

LAST_VERSION_WITHOUT_ADDING: Final = 11
"""From the next version on a Produce adds its partitions to the transaction itself (KIP-890)."""
LAST_VERSION_BY_NAME: Final = 12
"""From the next version on topics are named by their ids (KIP-516)."""


class ProduceTransaction(NamedTuple):
    """The transaction that all batches of a request belong to."""

    transactional_id: str
    is_v2: bool
    """Brokers add partitions as they are written to."""


class ProduceRequest:
    """Batches of different partitions, for one node.

    Args:
        node_id: the leader of all of them.
        batches: at most one a partition.
        cluster: for topic ids.
        transaction: that the batches belong to.
    """

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
        self.version = 0
        """Of the request as sent, so of its answer; set when the connection is known."""
        self.topic_ids: dict[str, bytes] = {}
        """By name, as metadata had them when the request was made."""
        for batch in batches:
            topic = batch.queue.topic_partition.topic
            if topic not in self.topic_ids:
                view = cluster.topics.get(topic)
                self.topic_ids[topic] = NO_TOPIC_ID if view is None else view.topic_id
        self._names = {topic_id: topic for topic, topic_id in self.topic_ids.items()}

    @property
    def topics(self) -> Collection[str]:
        """The topics it writes to."""
        return self.topic_ids.keys()

    @property
    def highest_version(self) -> int:
        """The last version that can say what must be said: topic ids may be unknown."""
        if self._transaction is not None and not self._transaction.is_v2:
            return LAST_VERSION_WITHOUT_ADDING
        return LAST_VERSION_BY_NAME if NO_TOPIC_ID in self._names else PRODUCE.max_version

    @property
    def largest_response(self) -> int:
        """Bytes that its answer may have."""
        return largest_produce_response(len(self.batches), sum(batch.count for batch in self.batches))

    def encode(self, version: int, *, acks: int, timeout_ms: int) -> list[Buffer]:
        """Return the body in pieces; the batches' records are not copied.

        Raises:
            UnsupportedVersionError: the version cannot say what its transaction needs.
        """
        transaction = self._transaction
        if transaction is not None and transaction.is_v2 and version <= LAST_VERSION_WITHOUT_ADDING:
            text = f"node {self.node_id} speaks Produce up to {version}, and transactions of its cluster need 12"
            raise UnsupportedVersionError(text)
        transactional_id = None if transaction is None else transaction.transactional_id
        return encode_produce_request(
            version, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id, batches=self._to_send()
        )

    def answers(self, response: ProduceResponse) -> dict[tuple[str | None, int], PartitionResponse]:
        """Return the answers by partition, without those that the response left out. The first answer counts."""
        found: dict[tuple[str | None, int], PartitionResponse] = {}
        for answer in response.partitions:
            found.setdefault((self._topic_of(answer), answer.partition), answer)
        return found

    def _topic_of(self, answer: PartitionResponse) -> str | None:
        if answer.topic is not None or answer.topic_id is None:
            return answer.topic
        return self._names.get(answer.topic_id)

    def _to_send(self) -> list[BatchToSend]:
        to_send = []
        for batch in self.batches:
            topic, partition = batch.queue.topic_partition
            records = batch.records()
            to_send.append(BatchToSend(topic, self.topic_ids[topic], partition, batch.header(records), records))
        return to_send

    def __repr__(self) -> str:
        """Show where it goes and how much it carries."""
        return f"<ProduceRequest node={self.node_id} batches={len(self.batches)}>"


def topic_of(batch: ProducerBatch) -> str:
    """The topic of a batch."""
    return batch.queue.topic_partition.topic
