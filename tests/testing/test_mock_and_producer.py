"""One suite for `Producer`, on the embedded cluster, and `MockProducer`: users' code must not see which one it has."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Protocol

import pytest

from aioproducer import (
    ConfigurationError,
    IllegalStateError,
    InvalidPartitionError,
    JsonSerializer,
    NoTransactionError,
    Outcome,
    Producer,
    ProducerClosedError,
    ProducerInterceptor,
    ProducerOptions,
    ProducerRecord,
    PurgedError,
    RecordFilteredError,
    RecordMetadata,
    SerializationError,
    StringSerializer,
    TopicPartition,
    TransactionAbortableError,
    TransactionAbortedError,
    UndeliveredError,
)
from aioproducer.testing import FakeCluster, MockProducer
from tests.produced import VERBS, give
from tests.test_bad_inputs import BAD_RECORDS, name_of

TOPICS: Mapping[str, int] = {"orders": 3, "log": 1}


class Make(Protocol):
    """Makes a producer with options."""

    def __call__(self, **options: object) -> Producer: ...


@pytest.fixture(params=["Producer", "MockProducer"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Makes producers of the kind, with options."""
    if request.param == "MockProducer":
        yield lambda **options: MockProducer(topics=TOPICS, **options)
        return
    async with FakeCluster(1, topics=TOPICS) as cluster:
        yield lambda **options: Producer(cluster.bootstrap_servers, **options)


@contextlib.asynccontextmanager
async def started(make: Make, **options: object) -> AsyncIterator[Producer]:
    """Start a producer that knows its topics."""
    async with make(**options) as producer:
        await producer.partitions_for("orders")
        yield producer


# Arguments


@pytest.mark.parametrize("arguments, kind, message", BAD_RECORDS, ids=name_of)
async def test_bad_record_is_refused_and_the_next_accepted(  # noqa: PLR0917  # a fixture, and the parts of a row
    make: Make, arguments: dict[str, object], kind: type[Exception], message: str
) -> None:
    record = {"topic": "orders", "value": b"bad", **arguments}
    topic = record.pop("topic")
    async with started(make) as producer:
        for verb in VERBS:
            with pytest.raises(kind, match=f"(?s){message}"):
                await give(producer, verb, topic, **record)

        assert (await give(producer, "send", "orders", b"valid", partition=1)).offset == 0


@pytest.mark.parametrize(
    "options",
    [{"linger_ms": -1}, {"acks": 7}, {"no_such_option": 1}, {"transactional_id": "t", "enable_idempotence": False}],
    ids=str,
)
async def test_bad_option_is_refused(make: Make, options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        make(**options)


async def test_bad_arguments_of_other_methods_are_refused(make: Make) -> None:
    async with started(make, transactional_id="t") as producer:
        with pytest.raises(TypeError, match="topic"):
            await producer.partitions_for(5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timeout"):
            await producer.flush(-1)
        with pytest.raises(TypeError, match="group"):
            await producer.committed_offsets(5, [])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="values"):
            await producer.send_many("orders", {"a": b""})
        with pytest.raises(TypeError, match="offsets"):
            await producer.send_offsets(5, "group")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="topic"):
            producer.purge(5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="prepared"):
            await producer.complete_transaction("t")  # type: ignore[arg-type]


# Records


@pytest.mark.parametrize("verb", VERBS)
async def test_record_gets_its_place(make: Make, verb: str) -> None:
    async with started(make) as producer:
        first = await give(producer, verb, "orders", b"v", key=b"customer-7", timestamp=5, headers=[("h", b"1")])
        second = await give(producer, verb, "orders", None, partition=first.partition)

    assert (first.topic, first.partition, first.offset, first.timestamp) == ("orders", 1, 0, 5)
    assert (second.offset, second.timestamp > 5) == (1, True)


async def test_delivery_is_pending_until_the_loop_turns(make: Make) -> None:
    told: list[object] = []
    async with started(make) as producer:
        delivery = producer.send("log", b"v", on_delivery=lambda metadata, error: told.append((metadata, error)))
        assert (delivery.done(), told) == (False, [])

        metadata = await delivery
        await asyncio.sleep(0)

    assert told == [(metadata, None)]
    assert delivery.result() == metadata


async def test_order_of_callbacks_is_that_of_the_records(make: Make) -> None:
    told: list[int] = []
    async with started(make) as producer:
        for number in range(200):
            producer.send(
                "log", b"%d" % number, on_delivery=lambda found, _: told.append(found.offset if found else -1)
            )
        await producer.flush()
        await asyncio.sleep(0)

    assert told == list(range(200))


async def test_many_and_typed_records_are_accepted(make: Make) -> None:
    async with started(make) as producer:
        topic = producer.topic("orders", key=str, value=dict[str, int])
        done = await (await topic.send_many([{"a": 1}, {"a": 2}], keys=["k", "k"]))
        more = await (await producer.send_many("log", [b"1", b"2", b"3"]))
        one = await topic.send({"a": 3}, key="k")

    assert (done.delivered, more.delivered, one.offset) == (2, 3, 2)


async def test_topic_not_named_before_is_made_on_first_use(make: Make) -> None:
    async with started(make) as producer:
        assert (await producer.send("new", b"v")).offset == 0
        assert (await producer.partitions_for("newer"))[0] == 0


async def test_threads_may_send(make: Make) -> None:
    async with started(make) as producer:
        metadata = await asyncio.to_thread(lambda: producer.send_threadsafe("log", b"v").result(10))

    assert metadata.offset == 0


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("topic", ["orders", "new"])
async def test_record_with_a_deadline_is_delivered_before_it(make: Make, topic: str, verb: str) -> None:
    async with started(make) as producer:
        for deadline, kind in (("1", TypeError), (True, TypeError), (0, ValueError), (10_000, ValueError)):
            with pytest.raises(kind, match="deadline"):
                await give(producer, verb, topic, b"bad", deadline=deadline)
        if verb == "send_nowait":
            await producer.partitions_for(topic)

        assert (await give(producer, verb, topic, b"v", partition=0, deadline=20)).offset == 0
        assert (await give(producer, verb, topic, b"v", partition=0)).offset == 1


async def test_purged_records_were_never_sent(make: Make) -> None:
    async with started(make, linger_ms=100) as producer:
        purged = [producer.send("orders", b"1", partition=0) for _ in range(3)]
        kept = producer.send("log", b"2")

        assert producer.purge("orders") == 3
        errors = [delivery.exception() for delivery in purged]
        assert (await kept).offset == 0
        assert (await producer.send("orders", b"3", partition=0)).offset == 0
        assert producer.purge() == 0

    assert [(type(error), error.outcome) for error in errors if isinstance(error, PurgedError)] == [
        (PurgedError, Outcome.NOT_WRITTEN)
    ] * 3


# The user's code


async def test_serializer_that_fails_fails_its_call(make: Make) -> None:
    async with started(make, value_serializer=JsonSerializer(), key_serializer=StringSerializer()) as producer:
        with pytest.raises(SerializationError, match="orders"):
            producer.send("orders", object())
        with pytest.raises(SerializationError, match="key"):
            producer.send("orders", {}, key=5)

        assert (await producer.send("orders", {"a": 1}, key="k")).offset == 0


async def test_asynchronous_serializers_keep_the_order(make: Make) -> None:
    async def later(value: object) -> bytes:
        await asyncio.sleep(0.01 if value == 1 else 0)
        return str(value).encode()

    async with started(make, value_serializer=later) as producer:
        with pytest.raises(SerializationError, match="asynchronous"):
            producer.send("log", 0)
        places = await asyncio.gather(*(producer.send_and_wait("log", number) for number in (1, 2, 3)))

    assert [place.offset for place in places] == [0, 1, 2]


class Last:
    """A partitioner."""

    def partition(self, *arguments: object) -> int:
        """Choose by the value."""
        return {b"bad": 9}.get(arguments[4], 2)  # type: ignore[call-overload,no-any-return]


async def test_partitioner_chooses(make: Make) -> None:
    async with started(make, partitioner=Last()) as producer:
        with pytest.raises(InvalidPartitionError):
            producer.send("orders", b"bad")

        assert (await producer.send("orders", b"v")).partition == 2


class Listening(ProducerInterceptor):
    """Drops, changes and counts."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Drop a record without a value, and add a header to others."""
        return None if record.value is None else replace(record, headers=(*record.headers, ("seen", b"1")))

    def on_acknowledgement(self, metadata: RecordMetadata, headers: object) -> None:
        """Note it."""
        self.told.append(f"delivered {metadata.topic} {headers}")

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: object) -> None:
        """Note it."""
        self.told.append(f"{error} {topic_partition} {headers}")


async def test_interceptors_change_and_drop(make: Make) -> None:
    listening = Listening()
    async with started(make, interceptors=[listening]) as producer:
        with pytest.raises(RecordFilteredError):
            await producer.send("log", None)
        await producer.send("log", b"v")
        await producer.flush()

    assert listening.told == ["delivered log (('seen', b'1'),)"]


# States


async def test_calls_before_the_start_and_after_the_close_are_refused(make: Make) -> None:
    producer = make()
    with pytest.raises(IllegalStateError, match="not started"):
        producer.send("log", b"v")
    await producer.start()
    await producer.start()
    await producer.close()
    await producer.close()

    with pytest.raises(ProducerClosedError):
        producer.send("log", b"v")
    with pytest.raises(ProducerClosedError):
        await producer.flush()
    with pytest.raises(ProducerClosedError):
        await producer.start()


async def test_close_delivers(make: Make) -> None:
    async with started(make) as producer:
        delivery = producer.send("log", b"v")

    assert delivery.result().offset == 0
    assert producer.statistics().records_acknowledged == 1
    assert producer.statistics().records_pending == 0
    assert producer.explain().waiting == ()


# Transactions


async def test_transaction_commits_and_aborts(make: Make) -> None:
    async with started(make, transactional_id="t") as producer:
        with pytest.raises(NoTransactionError):
            producer.send("log", b"v")
        async with producer.transaction() as txn:
            kept = await txn.send("log", b"kept")
            await txn.send_offsets({("orders", 0): 5, ("orders", 1): (6, "note")}, "readers")
            with pytest.raises(NoTransactionError, match="block is open"):
                producer.send("log", b"v")
        with pytest.raises(NoTransactionError, match="over"):
            txn.send("log", b"late")
        with contextlib.suppress(LookupError):
            async with producer.transaction() as txn:
                await txn.send_offsets({("orders", 0): 7}, "readers")
                lost = txn.send("log", b"lost")
                raise LookupError
        committed = await producer.committed_offsets("readers", [TopicPartition("orders", n) for n in range(3)])

        assert isinstance(lost.exception(), TransactionAbortedError)

    assert kept.offset == 0
    assert committed == {("orders", 0): (5, ""), ("orders", 1): (6, "note"), ("orders", 2): None}


async def test_transaction_with_purged_records_must_be_aborted(make: Make) -> None:
    async with started(make, transactional_id="t", linger_ms=100) as producer:
        await producer.begin_transaction()
        producer.send("log", b"1")
        assert producer.purge() == 1
        with pytest.raises(TransactionAbortableError, match="purge"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction() as txn:
            kept = txn.send("log", b"2")

    assert kept.result().topic == "log"


async def test_transaction_methods_of_java_are_refused_out_of_turn(make: Make) -> None:
    async with started(make, transactional_id="t") as producer:
        await producer.init_transactions()
        for early in (producer.commit_transaction, producer.abort_transaction, producer.prepare_transaction):
            with pytest.raises(IllegalStateError):
                await early()
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="open"):
            await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="nothing to prepare"):
            await producer.prepare_transaction()
        producer.send("log", b"1")
        await producer.commit_transaction()
        await producer.begin_transaction()
        producer.send("log", b"2")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.commit_transaction()


async def test_producer_without_an_id_has_no_transactions(make: Make) -> None:
    async with started(make) as producer:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="transactional_id"):
            await producer.send_offsets({("orders", 0): 5}, "readers")


async def test_prepared_transaction_is_completed_later(make: Make) -> None:
    async with started(make, transactional_id="t") as producer:
        await producer.begin_transaction()
        producer.send("log", b"1")
        prepared = await producer.prepare_transaction()
        with pytest.raises(NoTransactionError, match="prepared"):
            producer.send("log", b"2")
        await producer.complete_transaction(prepared)
        await producer.complete_transaction(prepared)
        await producer.begin_transaction()
        producer.send("log", b"3")
        await producer.commit_transaction()

    assert (prepared.transactional_id, prepared.version) == ("t", 2)


async def test_close_aborts_an_open_transaction(make: Make) -> None:
    async with started(make, transactional_id="t") as producer:
        await producer.begin_transaction()
        delivery = producer.send("log", b"v")
        with contextlib.suppress(UndeliveredError):  # the record may have been acknowledged before
            await producer.close()

        assert delivery.done()


def test_options_of_both_are_the_same() -> None:
    """As positional argument, a `ProducerConfig` or addresses; by name, the options of `ProducerOptions`."""
    options: ProducerOptions = {"linger_ms": 0, "client_id": "c"}

    assert MockProducer("h:1", **options).config == Producer("h:1", **options).config
    assert MockProducer(Producer("h:1").config).config == Producer("h:1").config
