"""Requests of the commit to real coordinators: the methods of `_commit.TransactionCluster`. Needs no pyspark."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from aioproducer._admin.cluster_requests import AdminRequest, ClusterRequests, NoResponseError, raise_refusal
from aioproducer._admin.transactions import Transactions, end_request
from aioproducer._producer.connection_security import cluster_access
from aioproducer._protocol.error_codes import ErrorCode
from aioproducer._protocol.messages import (
    INIT_PRODUCER_ID,
    ProducerIdResponse,
    decode_init_producer_id_response,
    encode_init_producer_id_request,
)
from aioproducer._protocol.transaction_admin_messages import ONGOING
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    NO_OFFSET,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    CodeResponse,
    CoordinatorType,
    OffsetsResponse,
    PartitionsResponse,
    TransactionIdentity,
    decode_add_offsets_response,
    decode_offset_fetch_response,
    decode_txn_offset_commit_response,
    encode_add_offsets_request,
    encode_offset_fetch_request,
    encode_txn_offset_commit_request,
)
from aioproducer._shown_values import how_to_create
from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer._transactions.requests import TXN_OFFSET_COMMIT_V1
from aioproducer._transactions.states import FIRST_V2
from aioproducer.errors import BrokerError, ConfigurationError, KafkaError, ProducerFencedError
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aioproducer.spark._commit import ENDED, FENCED, OpenedTransaction, SinkCommit
from aioproducer.spark._decision_record import Decision, SinkIds
from aioproducer.spark._options import COMMIT_TIMEOUT_MS, FIRST_ANSWER_TIMEOUT_S, TRANSACTION_TIMEOUT_MS, SinkOptions
from aioproducer.spark._write_choice import Preparation

KeyT = TypeVar("KeyT")
ResultT = TypeVar("ResultT")

REQUEST_TIMEOUT_S: Final = 15.0
"""For an answer, retries included."""
ROUND_CONCURRENCY: Final = 64


class SinkCluster:
    """Carries out the requests of one sink's commit.

    Args:
        requests: to the cluster, connected.
        ids: of the sink.
        topic: whose group offsets keep the decision.
        transaction_timeout_ms: of the tasks: one that the brokers do not allow is refused here, before any task.
        commit_timeout_s: for each transaction of a decided batch.
    """

    def __init__(
        self,
        requests: ClusterRequests,
        ids: SinkIds,
        *,
        topic: str,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        commit_timeout_s: float = COMMIT_TIMEOUT_MS / 1_000,
    ) -> None:
        self._requests = requests
        self._transactions = Transactions(requests)
        self._ids = ids
        self._topic = topic
        self._transaction_timeout_ms = transaction_timeout_ms
        self._commit_timeout_s = commit_timeout_s

    @property
    def partitions(self) -> int:
        """Number of partitions of the decision's topic."""
        return self._requests.cluster.partition_count(self._topic) or 0

    async def init_producer_id(self, transactional_id: str) -> PreparedTransaction:
        """See `TransactionCluster`."""
        found = await self._initialise(transactional_id)
        version = FIRST_V2 if self._requests.transaction_version >= FIRST_V2 else 1
        return PreparedTransaction(transactional_id, found.producer_id, found.producer_epoch, version)

    async def fence(self, coordinator: PreparedTransaction) -> None:
        """See `TransactionCluster`."""
        with_fencing = self._initialise(coordinator.transactional_id, held=coordinator)
        await _or_fenced(with_fencing, FENCED)

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
        found = await _offsets_of_group(self._requests, self._ids.group)
        if 0 not in found.get(self._topic, {}):
            # Of all topics, a broker does not tell that the first offset of one is on its way.
            places = [(self._topic, number) for number in range(self.partitions)]
            found |= await _offsets_of_group(self._requests, self._ids.group, places)
        return found.get(_newest(found), {})

    async def forget_decisions(self, coordinator: PreparedTransaction) -> None:
        """See `TransactionCluster`."""
        topics = await _offsets_of_group(self._requests, self._ids.group)
        await self._write_offsets(coordinator, {TopicPartition(topic, 0): OffsetAndMetadata(0, "") for topic in topics})

    async def write_decision(
        self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PreparedTransaction:
        """See `TransactionCluster`."""
        places = {TopicPartition(self._topic, number): offset for number, offset in offsets.items()}
        return await self._write_offsets(coordinator, places)

    async def _write_offsets(
        self, coordinator: PreparedTransaction, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> PreparedTransaction:
        if coordinator.version < FIRST_V2:
            await _or_fenced(self._add_group(coordinator), FENCED)
        await _or_fenced(self._commit_offsets(coordinator, offsets), ENDED)
        request = end_request(coordinator, is_commit=True)
        end = self._requests.to_coordinator(coordinator.transactional_id, request)
        try:
            ended = await _or_fenced(end, ENDED)
        except BrokerError as error:  # an earlier attempt may have committed
            raise NoResponseError(str(error)) from error
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
        self, coordinator: PreparedTransaction, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> PartitionsResponse:
        def check(response: PartitionsResponse) -> None:
            for code in response.error_codes:
                raise_refusal(code, f"decision of sink {self._ids.sink_id!r}, offsets of topic {self._topic!r}")

        is_v2 = coordinator.version >= FIRST_V2
        request = AdminRequest(
            TXN_OFFSET_COMMIT if is_v2 else TXN_OFFSET_COMMIT._replace(max_version=TXN_OFFSET_COMMIT_V1),
            lambda version: encode_txn_offset_commit_request(
                version,
                identity=_identity(coordinator),
                member=ConsumerGroupMetadata(self._ids.group),
                offsets=offsets,
            ),
            lambda response: decode_txn_offset_commit_response(response.version, response.payload),
            check,
        )
        return await self._requests.to_coordinator(self._ids.group, request, kind=CoordinatorType.GROUP)

    async def end_transactions(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[KafkaError | None]:
        """See `TransactionCluster`."""

        async def end(transaction: PreparedTransaction) -> KafkaError | None:
            name, request = transaction.transactional_id, end_request(transaction, is_commit=commit)
            try:
                await self._requests.to_coordinator(name, request, timeout_s=self._commit_timeout_s)
            except KafkaError as error:
                return error
            return None

        await self._requests.find_coordinators([each.transactional_id for each in transactions])
        return await _side_by_side(end, transactions)

    async def abort_all(self, transactions: Mapping[str, OpenedTransaction]) -> None:
        """See `TransactionCluster`."""

        async def abort(name: str) -> None:
            each = transactions[name]
            with suppress(ProducerFencedError):  # its holder is another by now
                await self.fence(PreparedTransaction(name, each.producer_id, each.epoch, FIRST_V2))

        await self._requests.find_coordinators(transactions)
        await _side_by_side(abort, transactions)

    async def ongoing_ids(self, prefix: str) -> Collection[str]:
        """See `TransactionCluster`."""
        found, _ = await self._transactions.listed([ONGOING], prefix=prefix)
        return {each.transaction.transactional_id for each in found}

    async def describe(self, transactional_ids: Collection[str]) -> Mapping[str, OpenedTransaction]:
        """See `TransactionCluster`."""
        return {
            each.transactional_id: OpenedTransaction(each.producer_id, each.producer_epoch, each.state == ONGOING)
            for each in await self._transactions.all_described(transactional_ids)
        }


def with_sink(
    options: SinkOptions,
    ask: Callable[[SinkCommit], Awaitable[ResultT]],
    *,
    is_patient: bool = False,
    finds_topic: bool = False,
) -> ResultT:
    """Connect to the cluster, let a sink's commit do something, and return what it returns.

    Args:
        is_patient: wait for brokers that are away as long as `commitTimeout`; else 10 s for the first answer, and 15 s
            for each other.
        finds_topic: look up the option `topic` too, beside the topic of the decision.

    Raises:
        ConfigurationError: a topic does not exist.
        KafkaError: the cluster did not answer in time, or what `ask` raises.
    """

    async def session() -> ResultT:
        assert options.sink_id is not None
        ids, topic = SinkIds(options.sink_id), options.topic_of_decision
        async with _connected(options, is_patient=is_patient) as requests:
            if finds_topic:
                await _find_topic_of_rows(requests, options)
            if not finds_topic or options.topic != topic:
                await _find_topic(requests, topic, "decisionTopic" if options.decision_topic else "topic")
            cluster = SinkCluster(
                requests,
                ids,
                topic=topic,
                transaction_timeout_ms=options.transaction_timeout_ms,
                commit_timeout_s=options.commit_timeout_ms / 1_000,
            )
            return await ask(SinkCommit(ids, cluster, cluster.partitions))

    return asyncio.run(session())


def prepared(options: SinkOptions, *, is_running: bool = False) -> Preparation | None:
    """Look the topic up, and prepare a sink that is exactly once; on the driver, before any task.

    Args:
        is_running: it is a stream that has written before: it waits for brokers that are away.

    Raises:
        ConfigurationError: the topic does not exist.
        KafkaError: no broker answered in 10 s, or in `commitTimeout`; or as `SinkCommit.prepare`.
    """
    if options.exactly_once:
        return with_sink(options, SinkCommit.prepare, is_patient=is_running, finds_topic=True)

    async def look() -> None:
        async with _connected(options, is_patient=is_running) as requests:
            await _find_topic_of_rows(requests, options)

    asyncio.run(look())
    return None


@dataclass(frozen=True, slots=True)
class FoundSink:
    """A sink of a cluster."""

    ids: SinkIds
    topic: str
    """Whose group offsets keep its decision; empty if nothing was ever decided."""
    cluster: SinkCluster

    @property
    def commit(self) -> SinkCommit:
        """Commit of the sink's batches."""
        return SinkCommit(self.ids, self.cluster, self.cluster.partitions)

    async def decision(self) -> Decision | None:
        """Return what was decided last; changes nothing.

        Raises:
            KafkaError: the cluster did not answer in time, or refused.
        """
        return await self.commit.last_decision()


async def find_sink(requests: ClusterRequests, sink_id: str, topic: str | None) -> FoundSink:
    """Find the topic of a sink's decision by the offsets of its group, unless it is given.

    Raises:
        ConfigurationError: the name or the topic is wrong.
        KafkaError: the cluster did not answer in time, or refused.
    """
    ids = SinkIds(sink_id)
    if topic is None:
        topic = _newest(await _offsets_of_group(requests, ids.group))
    if topic:
        cluster = await requests.refresh([topic])
        if not cluster.partition_count(topic):
            raise _no_topic("topic", topic)
    return FoundSink(ids, topic, SinkCluster(requests, ids, topic=topic))


async def _offsets_of_group(
    requests: ClusterRequests, group: str, places: Sequence[tuple[str, int]] | None = None
) -> dict[str, dict[int, OffsetAndMetadata]]:
    """Return the offsets of a sink's group by topic and partition, as soon as no transaction may change them.

    Args:
        places: None for all.
    """

    def check(response: OffsetsResponse) -> None:
        for code in response.error_codes:
            raise_refusal(code, f"offsets of group {group!r}")

    request = AdminRequest(
        OFFSET_FETCH,
        lambda _: encode_offset_fetch_request(group, places, require_stable=True),
        lambda response: decode_offset_fetch_response(response.payload),
        check,
    )
    response = await requests.to_coordinator(group, request, kind=CoordinatorType.GROUP)
    found: dict[str, dict[int, OffsetAndMetadata]] = {}
    for each in response.offsets:
        if each.offset != NO_OFFSET:
            found.setdefault(each.topic, {})[each.partition] = OffsetAndMetadata(each.offset, each.metadata)
    return found


def _newest(found: Mapping[str, Mapping[int, OffsetAndMetadata]]) -> str:
    """Return the topic with the newest decision; empty if there is none."""
    revisions = [(offsets[0].offset, topic) for topic, offsets in found.items() if 0 in offsets]
    return max(revisions, default=(0, ""))[1]


@asynccontextmanager
async def _connected(options: SinkOptions, *, is_patient: bool) -> AsyncIterator[ClusterRequests]:
    config = options.producer_config()
    patience_s = options.commit_timeout_ms / 1_000
    async with ClusterRequests(
        config.bootstrap,
        patience_s if is_patient else REQUEST_TIMEOUT_S,
        client_id="aioproducer-spark",
        access=cluster_access(config),
    ) as requests:
        await requests.refresh(timeout_s=patience_s if is_patient else FIRST_ANSWER_TIMEOUT_S)
        yield requests


async def _find_topic_of_rows(requests: ClusterRequests, options: SinkOptions) -> None:
    if options.topic is not None:
        # Rows of files are those of `aioproducer load`, which has no such option.
        cure = ", or by the option createTopic=N:REPLICAS" if options.input is None else ""
        await _find_topic(requests, options.topic, "topic", cure=cure)


async def _find_topic(requests: ClusterRequests, topic: str, option: str, *, cure: str = "") -> None:
    cluster = await requests.refresh([topic])
    if not cluster.partition_count(topic):
        raise _no_topic(option, topic, cure)


def _no_topic(option: str, topic: str, cure: str = "") -> ConfigurationError:
    how = how_to_create(topic, "--partitions N")
    text = f"{option} {topic!r} does not exist, or may not be described; {how}{cure}"
    return ConfigurationError(text, option=option)


def _identity(transaction: PreparedTransaction) -> TransactionIdentity:
    return TransactionIdentity(transaction.transactional_id, transaction.producer_id, transaction.epoch)


async def _side_by_side(ask: Callable[[KeyT], Awaitable[ResultT]], keys: Collection[KeyT]) -> list[ResultT]:
    slots = asyncio.Semaphore(ROUND_CONCURRENCY)

    async def one(key: KeyT) -> ResultT:
        async with slots:
            return await ask(key)

    return await asyncio.gather(*map(one, keys))


async def _or_fenced(request: Awaitable[ResultT], codes: frozenset[ErrorCode]) -> ResultT:
    try:
        return await request
    except BrokerError as error:
        if error.code in codes:
            raise ProducerFencedError(str(error)) from error
        raise
