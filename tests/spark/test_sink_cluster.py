"""The requests of a sink's commit, against the embedded cluster and real Kafka, as each release."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from aioproducer import (
    BrokerError,
    KafkaError,
    OffsetAndMetadata,
    PreparedTransaction,
    Producer,
    ProducerConfig,
    ProducerFencedError,
)
from aioproducer._admin import transactions
from aioproducer._admin.cluster_requests import ClusterRequests, NoResponseError
from aioproducer._protocol.transaction_admin_messages import decode_list_transactions_response
from aioproducer.spark._commit import (
    LostTransactionsError,
    SinkCommit,
    SupersededError,
    UncertainCommitError,
    UndecidedBatchError,
    UnfinishedCommitError,
    WrittenTask,
)
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.spark._decision_record import SinkIds, TaskEntry
from aioproducer.spark._write_choice import BatchAction, Preparation, WriteName, choose
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where

QUERY = "stream q"


class Sink:
    """A sink on one cluster, and what its tasks would do."""

    def __init__(self, bootstrap_servers: str, *, commit_timeout_s: float = 20.0) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.ids = SinkIds(f"sink-{uuid4().hex[:8]}")
        self.topic = self.ids.sink_id
        self.commit_timeout_s = commit_timeout_s

    @classmethod
    @asynccontextmanager
    async def on(cls, bootstrap_servers: str) -> "AsyncIterator[Sink]":
        """A sink whose topic exists."""
        sink = cls(bootstrap_servers)
        async with Producer(bootstrap_servers) as producer:  # creates the topic
            await producer.partitions_for(sink.topic)
        yield sink

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[SinkCluster]:
        """A driver's connection."""
        async with ClusterRequests(
            ProducerConfig(bootstrap_servers=self.bootstrap_servers).bootstrap, 20.0, client_id="test"
        ) as requests:
            await requests.refresh()
            await requests.refresh([self.topic])
            yield SinkCluster(requests, self.ids, topic=self.topic, commit_timeout_s=self.commit_timeout_s)

    async def prepared(
        self, task: int, value: bytes = b"v", *, lane: int = 0, timeout_ms: int = 60_000
    ) -> PreparedTransaction:
        """A task's transaction with one record; its producer is closed."""
        data_id = self.ids.data_id(lane, task, 0)
        async with Producer(
            self.bootstrap_servers, transactional_id=data_id, transaction_timeout_ms=timeout_ms
        ) as producer:
            await producer.begin_transaction()
            await producer.enqueue(self.topic, value, partition=0)
            return await producer.prepare_transaction()

    async def written(self, last: Preparation, task: int, value: bytes, *, batch: int = 0) -> WrittenTask:
        action, record = choose(last.last, WriteName(QUERY, "r", batch, self.topic), sink_id=self.ids.sink_id)
        assert action is BatchAction.WRITE
        prepared = await self.prepared(task, value, lane=last.lane)
        entry = TaskEntry.of(prepared, partition=task, attempt=0, rows=1)
        return WrittenTask(last, record, entry)

    async def committed(self, *, beside_open: bool = False) -> list[bytes]:
        """The values that a reader sees that is not ours, read_committed; perhaps in front of an open transaction."""
        found: list[bytes] = []
        place = TopicPartition(self.topic, 0)
        async with (
            AIOKafkaConsumer(bootstrap_servers=self.bootstrap_servers) as all_consumer,
            AIOKafkaConsumer(bootstrap_servers=self.bootstrap_servers, isolation_level="read_committed") as consumer,
        ):
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            async with asyncio.timeout(30):
                end = (await (consumer if beside_open else all_consumer).end_offsets([place]))[place]
                # The markers follow the answer to EndTxn.
                while not beside_open and (await consumer.end_offsets([place]))[place] < end:  # noqa: ASYNC110 - no events
                    await asyncio.sleep(0.02)
                while await consumer.position(place) < end:
                    records = await consumer.getmany(timeout_ms=100)
                    found += [record.value for batch in records.values() for record in batch]
        return sorted(found)


@pytest.fixture
async def sink(broker_of_release: tuple[str, str]) -> AsyncIterator[Sink]:
    async with Sink.on(broker_of_release[1]) as sink:
        yield sink


def batch_of(preparation: Preparation) -> int | None:
    return None if preparation.last is None else preparation.last.batch


def asked(fake: FakeCluster) -> list[str]:
    """Requests about transactions."""
    apis = {ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.END_TXN}
    return [seen.api.name for seen in fake.requests if seen.api in apis]


async def test_decision_is_kept_as_offsets_of_the_group(sink: Sink) -> None:
    async with sink.cluster() as cluster:
        assert await cluster.fetch_decision() == {}
        coordinator = await cluster.init_producer_id(sink.ids.coordinator)
        kept = {0: OffsetAndMetadata(1, "x" * 4_000)}
        following = await cluster.write_decision(coordinator, kept)
        assert await cluster.fetch_decision() == kept

        again = {0: OffsetAndMetadata(2, "y")}
        await cluster.write_decision(following, again)
        assert await cluster.fetch_decision() == again


async def test_refused_end_of_a_decision_leaves_it_uncertain() -> None:
    """An earlier attempt, whose answer was lost, may have committed it."""
    async with FakeCluster(1) as fake, Sink.on(fake.bootstrap_servers) as sink, sink.cluster() as cluster:
        commit = SinkCommit(sink.ids, cluster, cluster.partitions)
        task = await sink.written(await commit.prepare(), 0, b"v")
        fake.faults.error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Where(api=ApiKey.END_TXN))
        with pytest.raises(UncertainCommitError, match="no answer says whether the batch is decided") as met:
            await commit.commit([task])

    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in str(met.value)


async def test_decision_whose_answer_is_lost_is_made_once() -> None:
    async with FakeCluster(1) as fake, Sink.on(fake.bootstrap_servers) as sink, sink.cluster() as cluster:
        commit = SinkCommit(sink.ids, cluster, cluster.partitions)
        task = await sink.written(await commit.prepare(), 0, b"v")
        fake.faults.drop_connection(Where(api=ApiKey.END_TXN), after_append=True)
        await commit.commit([task])

        assert batch_of(await commit.prepare()) == 0
        assert await sink.committed() == [b"v"]


async def test_decision_of_an_overtaken_driver_is_refused(sink: Sink) -> None:
    async with sink.cluster() as cluster:
        old = await cluster.init_producer_id(sink.ids.coordinator)
        new = await cluster.init_producer_id(sink.ids.coordinator)
        with pytest.raises(ProducerFencedError):
            await cluster.write_decision(old, {0: OffsetAndMetadata(1, "old")})
        with pytest.raises(ProducerFencedError):
            await cluster.fence(old)
        assert await cluster.fetch_decision() == {}

        await cluster.write_decision(new, {0: OffsetAndMetadata(1, "new")})
        assert await cluster.fetch_decision() == {0: OffsetAndMetadata(1, "new")}


async def test_decision_that_may_still_be_written_is_waited_for(sink: Sink) -> None:
    async with (
        sink.cluster() as cluster,
        Producer(sink.bootstrap_servers, transactional_id=sink.ids.coordinator) as driver,
    ):
        await driver.begin_transaction()
        await driver.send_offsets({(sink.topic, 0): OffsetAndMetadata(7, "x")}, sink.ids.group)
        fetching = asyncio.ensure_future(cluster.fetch_decision())
        await asyncio.wait([fetching], timeout=0.5)
        assert not fetching.done()

        await driver.commit_transaction()
        assert await fetching == {0: OffsetAndMetadata(7, "x")}


async def test_held_coordinator_is_fenced_by_itself(sink: Sink) -> None:
    async with sink.cluster() as cluster:
        held = await cluster.init_producer_id(sink.ids.coordinator)
        await cluster.fence(held)
        with pytest.raises(ProducerFencedError):
            await cluster.write_decision(held, {0: OffsetAndMetadata(1, "late")})


async def test_transactions_are_ended_once_and_for_all(sink: Sink) -> None:
    transactions = [await sink.prepared(task, b"%d" % task) for task in range(3)]
    async with sink.cluster() as cluster:
        assert await cluster.end_transactions(transactions[:2], commit=True) == [None, None]
        assert await cluster.end_transactions(transactions[:2], commit=True) == [None, None]
        assert await cluster.end_transactions(transactions[2:], commit=False) == [None]
        (committed, aborted) = await cluster.end_transactions(transactions[1:], commit=True)
        assert committed is None
        assert isinstance(aborted, BrokerError)
        assert not isinstance(aborted, TimeoutError)
        assert await cluster.end_transactions([], commit=True) == []
    assert await sink.committed() == [b"0", b"1"]


async def test_transaction_ended_by_another_cannot_be_committed(sink: Sink) -> None:
    transaction = await sink.prepared(0)
    async with sink.cluster() as cluster:
        await cluster.init_producer_id(transaction.transactional_id)
        (error,) = await cluster.end_transactions([transaction], commit=True)
    assert isinstance(error, KafkaError)
    assert not isinstance(error, TimeoutError)
    assert await sink.committed() == []


async def test_transaction_that_timed_out_cannot_be_committed(sink: Sink) -> None:
    transaction = await sink.prepared(0, timeout_ms=1_000)
    async with sink.cluster() as cluster:
        async with asyncio.timeout(30):
            while await cluster.ongoing_ids(sink.ids.prefix):  # noqa: ASYNC110 - brokers send no events
                await asyncio.sleep(0.1)
        (error,) = await cluster.end_transactions([transaction], commit=True)
        described = await cluster.describe([transaction.transactional_id])
    assert isinstance(error, KafkaError)
    assert not isinstance(error, TimeoutError)
    assert not described[transaction.transactional_id].is_ongoing


async def test_open_transactions_are_listed_and_described(sink: Sink) -> None:
    transactions = [await sink.prepared(task) for task in range(3)]
    names = [each.transactional_id for each in transactions]
    async with sink.cluster() as cluster:
        assert sorted(await cluster.ongoing_ids(sink.ids.prefix)) == names
        assert await cluster.ongoing_ids(f"{sink.ids.prefix}nothing") == set()
        assert await cluster.describe([]) == {}
        described = await cluster.describe([*names, f"{sink.ids.prefix}unknown"])
        assert described == {each.transactional_id: (each.producer_id, each.epoch, True) for each in transactions}
        await cluster.end_transactions(transactions, commit=False)
        assert not any(each.is_ongoing for each in (await cluster.describe(names)).values())


async def test_prefix_is_no_pattern(sink: Sink) -> None:
    """The dots of a prefix stand for themselves."""
    transaction = await sink.prepared(0)
    async with sink.cluster() as cluster:
        assert await cluster.ongoing_ids(sink.ids.prefix.replace("-", ".")) == set()
        await cluster.end_transactions([transaction], commit=False)


# The commit over them


async def test_batches_are_committed_once(sink: Sink) -> None:
    async with sink.cluster() as cluster:
        commit = SinkCommit(sink.ids, cluster, cluster.partitions)
        for batch in range(3):
            last = await commit.prepare()
            assert batch_of(last) == (batch - 1 if batch else None)
            tasks = [await sink.written(last, task, b"%d-%d" % (batch, task), batch=batch) for task in range(2)]
            await commit.commit(tasks)
    assert await sink.committed() == [b"%d-%d" % (batch, task) for batch in range(3) for task in range(2)]


async def test_driver_that_dies_after_the_decision_is_rolled_forward(sink: Sink) -> None:
    async with sink.cluster() as cluster:
        commit = SinkCommit(sink.ids, cluster, cluster.partitions)
        last = await commit.prepare()
        tasks = [await sink.written(last, task, b"%d" % task) for task in range(2)]

        async def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        cluster.end_transactions = die  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            await commit.commit(tasks)
    assert await sink.committed(beside_open=True) == []

    async with sink.cluster() as cluster:
        found = await SinkCommit(sink.ids, cluster, cluster.partitions).prepare()
        assert found.last is not None
        assert (found.last.batch, found.last.query) == (0, QUERY)
        assert await cluster.ongoing_ids(sink.ids.prefix) == set()
    assert await sink.committed() == [b"0", b"1"]


async def test_driver_that_dies_before_the_decision_leaves_nothing(sink: Sink) -> None:
    async with sink.cluster() as cluster:
        last = await SinkCommit(sink.ids, cluster, cluster.partitions).prepare()
        tasks = [await sink.written(last, task, b"%d" % task) for task in range(2)]
    async with sink.cluster() as cluster:
        commit = SinkCommit(sink.ids, cluster, cluster.partitions)
        assert await commit.resolve() is None
        with pytest.raises(UndecidedBatchError):
            await commit.commit(tasks)
    assert await sink.committed() == []


async def test_overtaken_driver_decides_nothing(sink: Sink) -> None:
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(sink.cluster())
        new = await stack.enter_async_context(sink.cluster())
        zombie, commit = SinkCommit(sink.ids, old, old.partitions), SinkCommit(sink.ids, new, new.partitions)
        old_last = await zombie.prepare()
        last = await commit.prepare()
        late = [await sink.written(old_last, 1, b"late")]
        newer = [await sink.written(last, 0, b"v")]
        with pytest.raises(SupersededError):
            await zombie.commit(late)
        await zombie.abort(late)
        await commit.commit(newer)
    assert await sink.committed() == [b"v"]


async def test_rows_lost_after_the_decision_are_named(sink: Sink) -> None:
    async with sink.cluster() as cluster:
        commit = SinkCommit(sink.ids, cluster, cluster.partitions)
        last = await commit.prepare()
        tasks = [await sink.written(last, task, b"%d" % task) for task in range(2)]
        end = cluster.end_transactions

        async def late(transactions: list[PreparedTransaction], *, commit: bool) -> object:
            await cluster.init_producer_id(transactions[1].transactional_id)
            return await end(transactions, commit=commit)

        cluster.end_transactions = late  # type: ignore[method-assign,assignment]
        with pytest.raises(LostTransactionsError, match="1 rows are missing") as met:
            await commit.commit(tasks)
    assert [entry.partition for entry in met.value.entries] == [1]
    assert await sink.committed() == [b"0"]


@pytest.mark.parametrize("code", [53, -1])
async def test_refusal_that_ends_nothing_loses_nothing(code: int) -> None:
    """As a right that is missing: the next start commits."""
    async with FakeCluster(1) as fake, Sink.on(fake.bootstrap_servers) as sink, sink.cluster() as cluster:
        commit = SinkCommit(sink.ids, cluster, cluster.partitions)
        task = await sink.written(await commit.prepare(), 0, b"v")
        decision = cluster.write_decision

        async def refused_from_here(*arguments: object) -> object:
            found = await decision(*arguments)  # type: ignore[arg-type]
            fake.faults.error(code, Where(api=ApiKey.END_TXN), times=1)
            return found

        cluster.write_decision = refused_from_here  # type: ignore[method-assign,assignment]
        with pytest.raises(UnfinishedCommitError, match="is decided, and 1 of its 1 transactions could not be"):
            await commit.commit([task])
        assert batch_of(await commit.prepare()) == 0
        assert await sink.committed() == [b"v"]


async def test_commit_without_an_answer_may_still_succeed() -> None:
    """A TimeoutError tells the commit so."""
    sink = Sink("127.0.0.1:1", commit_timeout_s=1.0)
    async with ClusterRequests([("127.0.0.1", 1)], 1.0, client_id="test") as requests:
        cluster = SinkCluster(requests, sink.ids, topic=sink.topic, commit_timeout_s=sink.commit_timeout_s)
        (error,) = await cluster.end_transactions([PreparedTransaction("t", 1, 0, 2)], commit=True)
    assert isinstance(error, NoResponseError)
    assert isinstance(error, TimeoutError)


# How often the cluster is asked


@pytest.mark.parametrize("profile, lookups", [("4.4.0", 1), ("3.9.1", 1), ("2.8", 6)])
async def test_coordinators_of_all_tasks_are_looked_up_at_once(profile: str, lookups: int) -> None:
    async with FakeCluster(3, profile=profile) as fake, Sink.on(fake.bootstrap_servers) as sink:
        transactions = [await sink.prepared(task) for task in range(6)]
        names = [each.transactional_id for each in transactions]
        async with sink.cluster() as cluster:
            fake.requests.clear()
            assert await cluster.end_transactions(transactions, commit=True) == [None] * 6
            assert asked(fake).count("FIND_COORDINATOR") == lookups
            if profile != "2.8":  # which has no DescribeTransactions
                fake.requests.clear()
                assert len(await cluster.describe(names)) == 6
                assert set(asked(fake)) == {"DESCRIBE_TRANSACTIONS"}
                assert len(asked(fake)) <= 3


@pytest.mark.parametrize("code", [15, 16])
async def test_coordinator_that_has_moved_is_looked_up_again(code: int) -> None:
    async with FakeCluster(2) as fake, Sink.on(fake.bootstrap_servers) as sink:
        transactions = [await sink.prepared(task) for task in range(2)]
        names = [each.transactional_id for each in transactions]
        async with sink.cluster() as cluster:
            await cluster.describe(names)
            fake.requests.clear()
            fake.faults.error(code, Where(api=ApiKey.END_TXN), times=1)
            fake.faults.error(code, Where(api=ApiKey.DESCRIBE_TRANSACTIONS), times=1)
            assert len(await cluster.describe(names)) == 2
            assert await cluster.end_transactions(transactions, commit=True) == [None, None]
            assert asked(fake).count("FIND_COORDINATOR") == 2


@pytest.mark.parametrize("profile", ["3.9.1", "4.4.0"])
async def test_only_transactions_of_the_sink_travel(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the broker filters by a pattern; before that, what it lists is filtered here."""
    listed: list[str] = []

    def decode(version: int, payload: bytes) -> object:
        found = decode_list_transactions_response(version, payload)
        listed.extend(each.transactional_id for each in found.transactions)
        return found

    monkeypatch.setattr(transactions, "decode_list_transactions_response", decode)
    async with FakeCluster(1, profile=profile) as fake, Sink.on(fake.bootstrap_servers) as sink:
        own = (await sink.prepared(0)).transactional_id
        async with Producer(fake.bootstrap_servers, transactional_id=f"another.{own}") as other:
            await other.begin_transaction()
            await other.enqueue(sink.topic, b"v", partition=0)
            await other.flush()
            async with sink.cluster() as cluster:
                assert await cluster.ongoing_ids(sink.ids.prefix) == {own}
            await other.abort_transaction()
        assert sorted(listed) == ([own] if profile == "4.4.0" else sorted([own, f"another.{own}"]))


async def test_strays_are_aborted_side_by_side() -> None:
    async with FakeCluster(1) as fake, Sink.on(fake.bootstrap_servers) as sink:
        for task in range(6):
            await sink.prepared(task)
        async with sink.cluster() as cluster:
            fake.requests.clear()
            await SinkCommit(sink.ids, cluster, cluster.partitions).resolve()
            assert await cluster.ongoing_ids(sink.ids.prefix) == set()
        assert asked(fake).count("FIND_COORDINATOR") == 3  # of the coordinator id, the group, and all strays
