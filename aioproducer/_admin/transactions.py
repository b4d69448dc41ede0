"""Lists, describes and ends transactions, and finds hanging ones.

A coordinator ends every transaction that it knows, at its time-out or earlier. A transaction that is open in a
partition for longer than any transaction may be, and unknown to all coordinators, hangs: it stays open, and readers of
committed records wait for it forever. The cause is a Produce that arrived after the end of its transaction: on brokers
before 3.6, or from a client that broke the protocol. Source: kafka-transactions.sh find-hanging (KIP-664).
"""

import asyncio
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from aioproducer._admin.cluster_requests import AdminRequest, ClusterRequests, raise_refusal
from aioproducer._admin.topics import NoSuchTopicError
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer._protocol.transaction_admin_messages import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    NO_TRANSACTION,
    WRITE_TXN_MARKERS,
    ActiveProducer,
    ListedTransaction,
    MarkersResponse,
    PartitionProducers,
    ProducersResponse,
    TransactionDescription,
    TransactionDescriptions,
    TransactionMarker,
    decode_all_descriptions,
    decode_describe_producers_response,
    decode_describe_transactions_response,
    decode_list_transactions_response,
    decode_write_txn_markers_response,
    encode_describe_producers_request,
    encode_describe_transactions_request,
    encode_list_transactions_request,
    encode_write_txn_markers_request,
)
from aioproducer._protocol.transaction_messages import EndTxnResponse, decode_end_txn_response
from aioproducer._shown_values import how_to_create
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer._transactions.prepared_completion import encode_end_txn, end_txn_api
from aioproducer.errors import KafkaError

OVER: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""States of a transactional id without a transaction."""

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""All states. Source: TransactionState.ALL_STATES of Apache Kafka."""

LOOK_EVERY_S: Final = 0.05
FENCING_TIMEOUT_MS: Final = 1
"""The identity that fences begins no transactions, so its time-out does not matter."""

LONGEST_TRANSACTION_S = 900.0
"""`transaction.max.timeout.ms` of a broker, unless changed."""


class IdleTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    producer: ActiveProducer
    open_s: float
    """Seconds since its last record there; the time of the first is not known."""


def idle_transactions(
    found: Iterable[PartitionProducers], *, now_ms: int, for_longer_than_s: float
) -> Iterator[IdleTransaction]:
    """Yield transactions that wrote nothing for this long."""
    for partition in found:
        for producer in partition.producers:
            open_s = (now_ms - producer.last_timestamp_ms) / 1000
            if producer.transaction_start_offset != NO_TRANSACTION and open_s > for_longer_than_s:
                yield IdleTransaction(partition.topic, partition.partition, producer, open_s)


def hanging(
    candidates: Iterable[IdleTransaction],
    *,
    transactional_ids: Mapping[int, str],
    descriptions: Collection[TransactionDescription],
) -> list[IdleTransaction]:
    """Return the candidates, open for longer than a transaction may be, that no coordinator knows.

    Those of Kafka's own topics are the last: who waits for an offset that hangs writes again once it is gone, and what
    a topic still has of the transaction would be committed with that.

    Args:
        transactional_ids: by producer id, from the coordinators.
        descriptions: of these ids.
    """
    known = {
        (transactional_ids[described.producer_id], topic_partition)
        for described in descriptions
        if described.producer_id in transactional_ids
        for topic_partition in described.partitions
    }
    unknown = [
        candidate
        for candidate in candidates
        if (transactional_ids.get(candidate.producer.producer_id), (candidate.topic, candidate.partition)) not in known
    ]
    return sorted(unknown, key=lambda each: each.topic.startswith("__"))


def end_request(prepared: PreparedTransaction, *, is_commit: bool) -> AdminRequest[EndTxnResponse]:
    """Return the request to its coordinator that ends a prepared transaction."""
    return AdminRequest(
        end_txn_api(prepared),
        partial(encode_end_txn, prepared, is_commit=is_commit),
        lambda response: decode_end_txn_response(response.version, response.payload),
        lambda response: raise_refusal(response.error_code, f"transaction {prepared.transactional_id!r}"),
    )


class CoordinatedTransaction(NamedTuple):
    """A listed transaction and its coordinator."""

    transaction: ListedTransaction
    coordinator: int


class NoSuchTransactionError(KafkaError):
    """No transaction or transactional id with that name exists."""


class Transactions:
    """The transactions of one cluster."""

    def __init__(self, requests: ClusterRequests) -> None:
        self._requests = requests

    async def listed(
        self, states: Sequence[str] = (), producer_ids: Sequence[int] = (), *, prefix: str = ""
    ) -> tuple[list[CoordinatedTransaction], Collection[str]]:
        """Ask every broker; returns the transactions by id, and states that brokers do not know.

        Args:
            states: only transactions in one of these; all if empty. Likewise the producer ids.
            prefix: only those whose ids begin so; brokers without version 2 of the request send all.

        Raises:
            KafkaError: a broker does not respond.
        """
        pattern = f"{re.escape(prefix)}.*" if prefix else None
        request = AdminRequest(
            LIST_TRANSACTIONS,
            lambda version: encode_list_transactions_request(
                version, states=states, producer_ids=producer_ids, pattern=pattern
            ),
            lambda response: decode_list_transactions_response(response.version, response.payload),
            lambda response: raise_refusal(response.error_code, "list of transactions"),
        )
        nodes = sorted(self._requests.cluster.nodes)
        responses = await asyncio.gather(*(self._requests.to_node(node_id, request) for node_id in nodes))
        found = [
            CoordinatedTransaction(transaction, node_id)
            for node_id, response in zip(nodes, responses, strict=True)
            for transaction in response.transactions
            if transaction.transactional_id.startswith(prefix)
        ]
        return sorted(found), {name for response in responses for name in response.unknown_state_filters}

    async def described(self, transactional_id: str) -> TransactionDescription:
        """Ask the coordinator of a transactional id.

        Raises:
            NoSuchTransactionError: the coordinator does not know it.
            KafkaError: it does not respond.
        """

        def check(described: TransactionDescription) -> None:
            if described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise NoSuchTransactionError(f"there is no transactional id {transactional_id!r}")
            raise_refusal(described.error_code, f"transactional id {transactional_id!r}")

        request = AdminRequest(
            DESCRIBE_TRANSACTIONS,
            lambda _: encode_describe_transactions_request([transactional_id]),
            lambda response: decode_describe_transactions_response(response.payload, transactional_id=transactional_id),
            check,
        )
        return await self._requests.to_coordinator(transactional_id, request)

    async def all_described(self, transactional_ids: Collection[str]) -> list[TransactionDescription]:
        """Ask each coordinator once for all of its ids; those that it does not know are left out.

        Raises:
            KafkaError: a coordinator does not answer, or refuses.
        """

        def check(response: TransactionDescriptions) -> None:
            for described in response.transactions:
                if described.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise_refusal(described.error_code, f"transactional id {described.transactional_id!r}")

        def request_of(names: Sequence[str]) -> AdminRequest[TransactionDescriptions]:
            return AdminRequest(
                DESCRIBE_TRANSACTIONS,
                lambda _: encode_describe_transactions_request(names),
                lambda response: decode_all_descriptions(response.payload),
                check,
            )

        responses = await self._requests.to_coordinators(transactional_ids, request_of)
        return [each for response in responses for each in response.transactions if each.error_code == ErrorCode.NONE]

    async def producers(self, partitions: Iterable[tuple[str, int]]) -> list[PartitionProducers]:
        """Ask the leaders of partitions for their producers; partitions without a leader are left out.

        Raises:
            KafkaError: a leader does not answer, or refuses.
        """
        by_leader: dict[int, list[tuple[str, int]]] = {}
        topic_partitions = list(partitions)
        if unknown := {topic for topic, _ in topic_partitions} - set(self._requests.cluster.topics):
            await self._requests.refresh(sorted(unknown))
        for topic, partition in topic_partitions:
            leader = self._requests.cluster.leader_of(topic, partition)
            if leader is not None:
                by_leader.setdefault(leader, []).append((topic, partition))
        responses = await asyncio.gather(*(self._producers_on(leader, led) for leader, led in by_leader.items()))
        return sorted(found for response in responses for found in response.partitions)

    async def _producers_on(self, leader: int, led: Sequence[tuple[str, int]]) -> ProducersResponse:
        def check(found: ProducersResponse) -> None:
            for partition in found.partitions:
                raise_refusal(partition.error_code, f"producers of {partition.topic}[{partition.partition}]")

        request = AdminRequest(
            DESCRIBE_PRODUCERS,
            lambda _: encode_describe_producers_request(led),
            lambda response: decode_describe_producers_response(response.payload),
            check,
        )
        return await self._requests.to_node(leader, request)

    async def hanging(self, topics: Sequence[str] | None, *, longest_s: float) -> list[IdleTransaction]:
        """Find hanging transactions.

        Args:
            topics: to search; None for all.
            longest_s: how long a transaction of this cluster may be open.

        Raises:
            NoSuchTopicError: one of `topics` does not exist.
            KafkaError: a broker does not respond.
        """
        cluster = await self._requests.refresh(topics)
        for name in topics or ():
            if cluster.partition_count(name) is None:
                raise NoSuchTopicError(f"topic {name!r} does not exist; {how_to_create(name)}")
        topic_partitions = [
            (name, number)
            for name in (cluster.topics if topics is None else topics)
            for number in range(cluster.partition_count(name) or 0)
        ]
        now_ms = time.time_ns() // 1_000_000
        candidates = list(
            idle_transactions(await self.producers(topic_partitions), now_ms=now_ms, for_longer_than_s=longest_s)
        )
        if not candidates:
            return []
        found, _ = await self.listed(producer_ids=sorted({each.producer.producer_id for each in candidates}))
        ids = {each.transaction.producer_id: each.transaction.transactional_id for each in found}
        descriptions = await self.all_described(ids.values())
        return hanging(candidates, transactional_ids=ids, descriptions=descriptions)

    async def fence(self, transactional_id: str) -> TransactionDescription:
        """Take a transactional id over: its producer can write no more, and its open transaction is aborted.

        Returns:
            Its description before.

        Raises:
            NoSuchTransactionError: the id does not exist.
            KafkaError: the coordinator does not answer, or refuses.
        """
        before = await self.described(transactional_id)

        request = AdminRequest(
            INIT_PRODUCER_ID,
            lambda version: encode_init_producer_id_request(
                version, transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
            ),
            lambda response: decode_init_producer_id_response(response.version, response.payload),
            lambda response: raise_refusal(response.error_code, f"taking over {transactional_id!r}"),
        )
        await self._requests.to_coordinator(transactional_id, request)
        while (await self.described(transactional_id)).state not in OVER:  # noqa: ASYNC110 - brokers send no events
            await asyncio.sleep(LOOK_EVERY_S)
        return before

    async def abort_hanging(self, topic: str, partition: int, start_offset: int) -> None:
        """Write the marker that ends a hanging transaction, as a coordinator would.

        Raises:
            NoSuchTransactionError: no transaction begins there.
            KafkaError: the leader does not answer, or refuses.
        """
        await self._requests.refresh([topic])
        leader = self._requests.cluster.leader_of(topic, partition)
        if leader is None:
            raise NoSuchTransactionError(f"partition {topic}[{partition}] does not exist, or has no leader")
        for found in await self.producers([(topic, partition)]):
            for producer in found.producers:
                if producer.transaction_start_offset == start_offset:
                    epoch = max(producer.coordinator_epoch, 0)
                    marker = TransactionMarker(producer.producer_id, producer.producer_epoch, epoch, topic, partition)
                    await self._write(leader, marker)
                    return
        raise NoSuchTransactionError(f"no open transaction begins at offset {start_offset} of {topic}[{partition}]")

    async def _write(self, leader: int, marker: TransactionMarker) -> None:
        def check(response: MarkersResponse) -> None:
            for code in response.error_codes:
                raise_refusal(code, f"marker in {marker.topic}[{marker.partition}]")

        request = AdminRequest(
            WRITE_TXN_MARKERS,
            lambda _: encode_write_txn_markers_request(marker),
            lambda response: decode_write_txn_markers_response(response.payload),
            check,
        )
        await self._requests.to_node(leader, request)
