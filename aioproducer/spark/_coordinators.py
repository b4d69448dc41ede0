"""The requests of the commit, to real coordinators: what `commit.TransactionCluster` asks for."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from aioproducer._admin.cluster_requests import AdminRequest, ClusterRequests, raise_refusal
from aioproducer._producer.cluster_access import cluster_access
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    Api,
    ProducerIdResponse,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer._protocol.offset_messages import (
    NO_OFFSET,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    OffsetsResponse,
    decode_offset_fetch_response,
    decode_txn_offset_commit_response,
    encode_offset_fetch_request,
    encode_txn_offset_commit_request,
)
from aioproducer._protocol.transaction_admin_messages import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    ONGOING,
    TransactionDescriptions,
    decode_all_descriptions,
    decode_list_transactions_response,
    encode_describe_transactions_request,
    encode_list_transactions_request,
)
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    CodeResponse,
    CoordinatorType,
    EndTxnResponse,
    PartitionsResponse,
    TransactionIdentity,
    decode_add_offsets_response,
    decode_end_txn_response,
    encode_add_offsets_request,
    encode_end_txn_request,
)
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer._transactions.states import FIRST_V2
from aioproducer.config import ProducerConfig
from aioproducer.errors import BrokerError, ConfigurationError, KafkaError, ProducerFencedError
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aioproducer.spark._commit import OpenedTransaction, Preparation, SinkCommit
from aioproducer.spark._decision import SinkIds
from aioproducer.spark._options import SinkOptions

ResultT = TypeVar("ResultT")

REQUEST_TIMEOUT_S: Final = 15.0
"""For an answer, retries included."""
ROUND_CONCURRENCY: Final = 64
_LAST_BEFORE_V2: Final = {END_TXN: 4, TXN_OFFSET_COMMIT: 4}

_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
_OVERTAKEN: Final = _FENCED | {ErrorCode.INVALID_TXN_STATE}
"""Of the coordinator id's own transaction: another driver has initialised the id, which ended the transaction."""


class SinkCluster:
    """Carries out the requests of one sink's commit.

    Args:
        requests: to the cluster, connected.
        ids: of the sink.
        topic: whose group offsets keep the decision.
        options: of the write, for its time-outs.
    """

    def __init__(self, requests: ClusterRequests, ids: SinkIds, *, topic: str, options: SinkOptions) -> None:
        self._requests = requests
        self._ids = ids
        self._topic = topic
        # The tasks' own: a time-out that the brokers do not allow is refused here, before any task.
        self._transaction_timeout_ms = options.transaction_timeout_ms
        self._commit_timeout_s = options.commit_timeout_ms / 1_000

    @property
    def partitions(self) -> int:
        """Of the decision's topic."""
        return self._requests.cluster.partition_count(self._topic) or 0

    async def init_producer_id(self, transactional_id: str) -> PreparedTransaction:
        """See `TransactionCluster`."""
        found = await self._initialise(transactional_id)
        version = FIRST_V2 if self._requests.transaction_version >= FIRST_V2 else 1
        return PreparedTransaction(transactional_id, found.producer_id, found.producer_epoch, version)

    async def fence(self, coordinator: PreparedTransaction) -> None:
        """See `TransactionCluster`."""
        with_fencing = self._initialise(coordinator.transactional_id, held=coordinator)
        await _or_fenced(with_fencing, _FENCED)

    async def _initialise(self, transactional_id: str, held: PreparedTransaction | None = None) -> ProducerIdResponse:
        def check(response: ProducerIdResponse) -> None:
            if response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise ConfigurationError(
                    f"transactionTimeout={self._transaction_timeout_ms}ms: the brokers allow at most their "
                    "transaction.max.timeout.ms, 15m unless changed",
                    option="transactionTimeout",
                )
            raise_refusal(response.error_code, f"transactional id {transactional_id!r}")

        identity = {} if held is None else {"producer_id": held.producer_id, "producer_epoch": held.epoch}
        request = AdminRequest(
            INIT_PRODUCER_ID,
            lambda version: encode_init_producer_id_request(
                version,
                transactional_id=transactional_id,
                transaction_timeout_ms=self._transaction_timeout_ms,
                **identity,
            ),
            lambda response: decode_init_producer_id_response(response.version, response.payload),
            check,
        )
        return await self._requests.to_coordinator(transactional_id, request)

    async def fetch_decision(self) -> Mapping[int, OffsetAndMetadata]:
        """See `TransactionCluster`."""
        places = [(self._topic, number) for number in range(self.partitions)]

        def check(response: OffsetsResponse) -> None:
            for code in response.error_codes:
                raise_refusal(code, f"offsets of group {self._ids.group!r}")

        request = AdminRequest(
            OFFSET_FETCH,
            lambda _: encode_offset_fetch_request(self._ids.group, places, require_stable=True),
            lambda response: decode_offset_fetch_response(response.payload),
            check,
        )
        found = await self._requests.to_coordinator(self._ids.group, request, kind=CoordinatorType.GROUP)
        return {
            each.partition: OffsetAndMetadata(each.offset, each.metadata)
            for each in found.offsets
            if each.offset != NO_OFFSET
        }

    async def write_decision(
        self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PreparedTransaction:
        """See `TransactionCluster`."""
        if coordinator.version < FIRST_V2:
            await _or_fenced(self._add_group(coordinator), _FENCED)
        await _or_fenced(self._commit_offsets(coordinator, offsets), _OVERTAKEN)
        ended = await _or_fenced(self._end(coordinator, commit=True, timeout_s=REQUEST_TIMEOUT_S), _OVERTAKEN)
        if ended.producer_id < 0:
            return coordinator
        return coordinator._replace(producer_id=ended.producer_id, epoch=ended.producer_epoch)

    async def _add_group(self, coordinator: PreparedTransaction) -> CodeResponse:
        request = AdminRequest(
            ADD_OFFSETS_TO_TXN,
            lambda version: encode_add_offsets_request(version, _identity(coordinator), self._ids.group),
            lambda response: decode_add_offsets_response(response.version, response.payload),
            lambda response: raise_refusal(response.error_code, f"decision of sink {self._ids.sink_id!r}"),
        )
        return await self._requests.to_coordinator(coordinator.transactional_id, request)

    async def _commit_offsets(
        self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PartitionsResponse:
        def check(response: PartitionsResponse) -> None:
            for code in response.error_codes:
                raise_refusal(code, f"decision of sink {self._ids.sink_id!r}, offsets of topic {self._topic!r}")

        places = {TopicPartition(self._topic, number): offset for number, offset in offsets.items()}
        request = AdminRequest(
            _capped(TXN_OFFSET_COMMIT, coordinator.version),
            lambda version: encode_txn_offset_commit_request(
                version,
                identity=_identity(coordinator),
                member=ConsumerGroupMetadata(self._ids.group),
                offsets=places,
            ),
            lambda response: decode_txn_offset_commit_response(response.version, response.payload),
            check,
        )
        return await self._requests.to_coordinator(self._ids.group, request, kind=CoordinatorType.GROUP)

    async def end_transactions(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[KafkaError | None]:
        """See `TransactionCluster`."""
        await self._requests.find_coordinators([each.transactional_id for each in transactions])
        slots = asyncio.Semaphore(ROUND_CONCURRENCY)

        async def end(transaction: PreparedTransaction) -> KafkaError | None:
            async with slots:
                try:
                    await self._end(transaction, commit=commit, timeout_s=self._commit_timeout_s)
                except KafkaError as error:
                    return error
            return None

        return await asyncio.gather(*map(end, transactions))

    async def _end(self, transaction: PreparedTransaction, *, commit: bool, timeout_s: float) -> EndTxnResponse:
        request = AdminRequest(
            _capped(END_TXN, transaction.version),
            lambda version: encode_end_txn_request(version, _identity(transaction), is_commit=commit),
            lambda response: decode_end_txn_response(response.version, response.payload),
            lambda response: raise_refusal(response.error_code, f"transaction {transaction.transactional_id!r}"),
        )
        return await self._requests.to_coordinator(transaction.transactional_id, request, timeout_s=timeout_s)

    async def ongoing_ids(self, prefix: str) -> Collection[str]:
        """See `TransactionCluster`."""
        request = AdminRequest(
            LIST_TRANSACTIONS,
            lambda version: encode_list_transactions_request(
                version, states=[ONGOING], producer_ids=[], pattern=f"{re.escape(prefix)}.*"
            ),
            lambda response: decode_list_transactions_response(response.version, response.payload),
            lambda response: raise_refusal(response.error_code, "list of transactions"),
        )
        nodes = sorted(self._requests.cluster.nodes)
        responses = await asyncio.gather(*(self._requests.to_node(node_id, request) for node_id in nodes))
        return {
            found.transactional_id
            for response in responses
            for found in response.transactions
            if found.transactional_id.startswith(prefix)
        }

    async def describe(self, transactional_ids: Collection[str]) -> Mapping[str, OpenedTransaction]:
        """See `TransactionCluster`."""

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

        return {
            each.transactional_id: OpenedTransaction(each.producer_id, each.producer_epoch, each.state == ONGOING)
            for response in await self._requests.to_coordinators(transactional_ids, request_of)
            for each in response.transactions
            if each.error_code == ErrorCode.NONE
        }


def with_sink(options: SinkOptions, ask: Callable[[SinkCommit], Awaitable[ResultT]]) -> ResultT:
    """Connect to the cluster, let a sink's commit do something, and return what it returns.

    Raises:
        ConfigurationError: the decision's topic does not exist.
        KafkaError: the cluster did not answer in time, or what `ask` raises.
    """

    async def session() -> ResultT:
        assert options.sink_id is not None
        ids, topic = SinkIds(options.sink_id), options.topic_of_decision
        async with _connected(options) as requests:
            await _find_topic(requests, topic)
            cluster = SinkCluster(requests, ids, topic=topic, options=options)
            return await ask(SinkCommit(ids, cluster, cluster.partitions))

    return asyncio.run(session())


def prepared(options: SinkOptions) -> Preparation | None:
    """Look the topic up, and prepare a sink that is exactly once; on the driver, before any task.

    Raises:
        ConfigurationError: the topic does not exist.
        KafkaError: the cluster did not answer in 15 s; or as `SinkCommit.prepare`.
    """
    if options.exactly_once:
        return with_sink(options, SinkCommit.prepare)

    async def look() -> None:
        async with _connected(options) as requests:
            if options.topic is None:
                await requests.refresh()
            else:
                await _find_topic(requests, options.topic)

    asyncio.run(look())
    return None


def _connected(options: SinkOptions) -> ClusterRequests:
    config = ProducerConfig.from_kafka_properties(options.kafka)
    access = cluster_access(config)
    return ClusterRequests(config.bootstrap, REQUEST_TIMEOUT_S, client_id="aioproducer-spark", access=access)


async def _find_topic(requests: ClusterRequests, topic: str) -> None:
    await requests.refresh()
    cluster = await requests.refresh([topic])
    if not cluster.partition_count(topic):
        raise ConfigurationError(f"topic {topic!r} does not exist, or may not be described", option="topic")


def _identity(transaction: PreparedTransaction) -> TransactionIdentity:
    return TransactionIdentity(transaction.transactional_id, transaction.producer_id, transaction.epoch)


def _capped(api: Api, version: int) -> Api:
    """Return a request in the versions that fit the transaction's; Kafka lists v5 also where it refuses it."""
    return api if version >= FIRST_V2 else api._replace(max_version=_LAST_BEFORE_V2[api])


async def _or_fenced(request: Awaitable[ResultT], codes: frozenset[ErrorCode]) -> ResultT:
    try:
        return await request
    except BrokerError as error:
        if error.code in codes:
            raise ProducerFencedError(str(error)) from error
        raise
