"""`MockProducer`: what was sent, and how the test decides how it ends."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from aioproducer import (
    BrokerError,
    BytesSerializer,
    DeliveryTimeoutError,
    IllegalStateError,
    JsonSerializer,
    KafkaError,
    Outcome,
    ProducerClosedError,
    ProducerFencedError,
    RecordMetadata,
    StringSerializer,
    TransactionAbortableError,
    TransactionAbortedError,
    UndeliveredError,
    partition_for_key,
)
from aioproducer.testing import ErrorCode, MockProducer
from tests.fakes.virtual_loop import in_virtual_time


def shown(producer: MockProducer) -> list[tuple[str, object]]:
    return [(record.topic, record.value) for record in producer.history()]


async def test_history_has_what_a_consumer_would_read() -> None:
    async with MockProducer(topics={"orders": 6}) as producer:
        producer.send("orders", b"v", key=b"customer-7", timestamp=5, headers=[("h", b"1"), ("n", None)])
        producer.send("log", None)

        first, second = producer.history()

    assert (first.topic, first.value, first.key, first.timestamp) == ("orders", b"v", b"customer-7", 5)
    assert first.headers == (("h", b"1"), ("n", None))
    assert first.partition == partition_for_key(b"customer-7", 6)
    assert (second.topic, second.value, second.key, second.partition, second.headers) == ("log", None, None, 0, ())


async def test_history_has_the_order_of_the_calls_across_partitions() -> None:
    sent = [(f"t{number % 3}", b"%d" % number) for number in range(500)]
    async with MockProducer(topics={"t0": 4, "t1": 1}) as producer:
        for topic, value in sent:
            await producer.enqueue(topic, value)

        assert shown(producer) == sent


async def test_history_has_objects_where_serializers_run() -> None:
    """Also if a serializer sends a record of its own, and for a record that fails."""
    inner: list[MockProducer] = []

    def with_echo(value: object) -> bytes:
        if value == {"a": 2}:
            inner[0].send("echo", {"of": value})
        return repr(value).encode()

    async with MockProducer(value_serializer=with_echo, key_serializer=StringSerializer()) as producer:
        inner.append(producer)
        producer.send("t", {"a": 1}, key="k")
        with pytest.raises(TypeError):
            producer.send("t", {"a": 9}, headers=5)  # type: ignore[arg-type]
        producer.send("t", {"a": 2})
        await producer.send_many("t", [{"a": 3}, {"a": 4}])

        records = producer.history()

    assert [record.value for record in records] == [{"a": 1}, {"of": {"a": 2}}, b"{'a': 2}", {"a": 3}, {"a": 4}]
    assert records[0].key == "k"


async def test_history_has_objects_of_asynchronous_serializers() -> None:
    async def later(value: object) -> bytes:
        await asyncio.sleep(0.001 if value == 1 else 0)
        return str(value).encode()

    async with MockProducer(value_serializer=later) as producer:
        await asyncio.gather(*(producer.send_and_wait("a" if number % 2 else "b", number) for number in range(6)))

        assert sorted(record.value for record in producer.history()) == list(range(6))  # type: ignore[type-var]


async def test_records_end_one_by_one_in_their_order() -> None:
    async with MockProducer(auto_complete=False, topics={"orders": 3}) as producer:
        deliveries = [producer.send("orders", b"%d" % number, partition=number % 2) for number in range(5)]
        await asyncio.sleep(0.01)
        assert ([delivery.done() for delivery in deliveries], producer.pending) == ([False] * 5, 5)

        producer.complete_next()
        producer.error_next(BrokerError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved", outcome=Outcome.UNKNOWN))
        producer.complete_next()

        assert [delivery.done() for delivery in deliveries] == [True, True, True, False, False]
        assert [(place.partition, place.offset) for place in (deliveries[0].result(), deliveries[2].result())] == [
            (0, 0),
            (0, 1),
        ]
        with pytest.raises(BrokerError, match="moved") as caught:
            await deliveries[1]
        assert (caught.value.topic, caught.value.partition, caught.value.outcome) == ("orders", 1, Outcome.UNKNOWN)
        assert (producer.pending, producer.flushed, len(producer.history())) == (2, False, 5)

        await producer.flush()
        assert ((await deliveries[3]).offset, producer.flushed) == (1, True)


async def test_waiter_and_callback_hear_of_an_end() -> None:
    told: list[object] = []
    async with MockProducer(auto_complete=False) as producer:
        first = asyncio.create_task(producer.send_and_wait("t", b"1"))
        await asyncio.sleep(0)
        producer.send("t", b"2", on_delivery=lambda _, error: told.append(type(error)))
        await asyncio.sleep(0)
        producer.complete_next()
        producer.error_next(KafkaError("no"))
        await first
        await asyncio.sleep(0)

    assert told == [KafkaError]


async def test_failure_that_is_not_seen_is_raised_by_the_flush() -> None:
    async with MockProducer(auto_complete=False) as producer:
        producer.send("t", b"1")
        producer.send("t", b"2")
        producer.error_next(KafkaError("no"))

        with pytest.raises(UndeliveredError, match="1 record"):
            await producer.flush()


@pytest.mark.parametrize("auto_complete", [True, False])
async def test_record_completed_twice_is_an_error(auto_complete: bool) -> None:  # noqa: FBT001
    async with MockProducer(auto_complete=auto_complete) as producer:
        await producer.flush()
        with pytest.raises(IllegalStateError, match=r"complete_next: .*0 were sent"):
            producer.complete_next()
        producer.send("t", b"1")
        producer.complete_next()
        for end in (producer.complete_next, lambda: producer.error_next(KafkaError("no"))):
            with pytest.raises(IllegalStateError, match="1 were sent, and all have ended"):
                end()


@pytest.mark.parametrize("error", ["no", ValueError("no"), KafkaError, None])
async def test_error_of_another_kind_is_refused(error: object) -> None:
    async with MockProducer(auto_complete=False) as producer:
        producer.send("t", b"1")
        with pytest.raises(TypeError, match="error must be a KafkaError"):
            producer.error_next(error)  # type: ignore[arg-type]
        assert producer.pending == 1


@pytest.mark.parametrize(
    "arguments, kind",
    [
        ({"topics": ["orders"]}, TypeError),
        ({"topics": {"orders": "3"}}, TypeError),
        ({"topics": {"orders": 0}}, ValueError),
        ({"topics": {"a b": 1}}, ValueError),
        ({"auto_complete": 1}, TypeError),
        ({"auto_complete": None}, TypeError),
    ],
    ids=str,
)
def test_bad_argument_is_named(arguments: dict[str, object], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"topic|auto_complete"):
        MockProducer(**arguments)  # type: ignore[arg-type]


async def test_flush_leaves_what_is_sent_meanwhile() -> None:
    async with MockProducer(auto_complete=False) as producer:
        before = producer.send("t", b"1")
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        after = producer.send("t", b"2")
        await flushing

        assert (before.done(), after.done(), producer.pending) == (True, False, 1)


async def test_close_with_no_time_fails_the_rest() -> None:
    producer = await MockProducer(auto_complete=False).start()
    delivery = producer.send("t", b"1")
    before = producer.closed

    with pytest.raises(UndeliveredError):
        await producer.close(0)

    error = delivery.exception()
    assert (before, producer.closed) == (False, True)
    assert isinstance(error, ProducerClosedError)
    assert error.outcome is Outcome.NOT_WRITTEN


@in_virtual_time
async def test_record_at_its_deadline_was_never_sent() -> None:
    async with MockProducer(auto_complete=False, topics={"t": 1}) as producer:
        first, due, *later = [
            producer.send("t", b"%d" % number, deadline=1 if number == 1 else None) for number in range(4)
        ]
        waited = producer.send("new", b"due", deadline=1)
        producer.complete_next()
        ended = producer.send("t", b"4", deadline=1)
        await asyncio.sleep(0.5)
        assert not due.done()
        await asyncio.sleep(1)

        for delivery in (due, waited, ended):
            error = delivery.exception()
            assert isinstance(error, DeliveryTimeoutError)
            assert (error.outcome, "deadline=1:" in str(error)) == (Outcome.NOT_WRITTEN, True)
        assert (producer.pending, shown(producer)) == (2, [("t", b"0"), ("t", b"2"), ("t", b"3")])
        await producer.flush()
        assert [delivery.result().offset for delivery in (first, *later)] == [0, 1, 2]
        assert (await send_and_complete(producer)).offset == 3


async def send_and_complete(producer: MockProducer) -> RecordMetadata:
    delivery = producer.send("t", b"last", deadline=1)
    producer.complete_next()
    await asyncio.sleep(2)  # its deadline changes nothing
    return delivery.result()


async def test_purge_takes_the_records_of_the_topic_out_of_the_history() -> None:
    async with MockProducer(auto_complete=False) as producer:
        deliveries = [producer.send(topic, b"v") for topic in ("a", "a", "a", "b", "a")]
        producer.complete_next()

        assert (producer.purge("a"), producer.pending) == (3, 1)
        assert shown(producer) == [("a", b"v"), ("b", b"v")]
        assert sum(delivery.done() and delivery.exception() is not None for delivery in deliveries) == 3
        after = producer.send("a", b"v")
        await producer.flush()

    assert after.result().offset == 1


async def test_clear_forgets_and_the_rest_still_ends() -> None:
    async with MockProducer(auto_complete=False) as producer:
        delivery = producer.send("t", b"1")
        producer.clear()
        assert (producer.history(), producer.pending) == ([], 1)
        producer.complete_next()

        assert (await delivery).offset == 0
        assert (await asyncio.gather(producer.send_and_wait("t", b"2"), producer.flush()))[0].offset == 1
        assert shown(producer) == [("t", b"2")]


async def test_uncommitted_records_are_apart_until_the_commit() -> None:
    async with MockProducer(transactional_id="t", value_serializer=JsonSerializer()) as producer:
        assert (producer.transaction_initialized, producer.transaction_in_flight) == (True, False)
        async with producer.transaction() as txn:
            await txn.send("t", {"a": 1})
            await txn.send_offsets({("in", 0): 5}, "readers")

            assert producer.transaction_in_flight
            assert [record.value for record in producer.uncommitted_records()] == [{"a": 1}]
            assert producer.uncommitted_offsets() == {"readers": {("in", 0): (5, "")}}
            assert (producer.history(), producer.consumer_group_offsets()) == ([], {})

        assert (shown(producer), producer.uncommitted_records()) == ([("t", {"a": 1})], [])
        assert (producer.uncommitted_offsets(), producer.consumer_group_offsets()) == (
            {},
            {"readers": {("in", 0): (5, "")}},
        )
        await producer.begin_transaction()
        producer.send("t", {"a": 2})
        await producer.abort_transaction()

    assert (len(producer.history()), producer.commit_count, producer.abort_count) == (1, 1, 1)


async def test_failed_record_fails_its_transaction() -> None:
    async with MockProducer(transactional_id="t", auto_complete=False) as producer:
        await producer.begin_transaction()
        producer.send("t", b"1")
        producer.error_next(KafkaError("no"))
        with pytest.raises(TransactionAbortableError, match="no"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction() as txn:
            txn.send("t", b"2")

    assert (shown(producer), producer.commit_count, producer.abort_count) == ([("t", b"2")], 1, 1)


async def test_close_aborts_an_open_transaction() -> None:
    async with MockProducer(transactional_id="t", auto_complete=False) as producer:
        await producer.begin_transaction()
        delivery = producer.send("t", b"1")
        with pytest.raises(UndeliveredError, match="aborted"):
            await producer.close()

    assert isinstance(delivery.exception(), TransactionAbortedError)
    assert (producer.history(), producer.uncommitted_records(), producer.abort_count) == ([], [], 1)


async def test_fenced_producer_can_only_be_closed() -> None:
    async with MockProducer(transactional_id="t", auto_complete=False) as producer:
        await producer.begin_transaction()
        delivery = producer.send("t", b"1")
        producer.fence_producer()

        for call in (producer.commit_transaction, producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(ProducerFencedError):
                await call()
        with pytest.raises(ProducerFencedError):
            producer.send("t", b"2")
        with pytest.raises(KafkaError):
            await delivery
    async with MockProducer() as other:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            other.fence_producer()


async def test_prepared_transaction_of_others_is_unknown() -> None:
    async with MockProducer(transactional_id="t") as one, MockProducer(transactional_id="u") as other:
        await one.begin_transaction()
        one.send("t", b"1")
        prepared = await one.prepare_transaction()
        with pytest.raises(IllegalStateError, match="prepared itself"):
            await other.complete_transaction(prepared)


async def test_many_records_of_one_run_end_one_by_one() -> None:
    """Regression: finding the part of a record took a step for each part."""
    async with MockProducer(auto_complete=False, batch_size=1_000_000, value_serializer=BytesSerializer()) as plain:
        plain.send("t", b"1")
        plain.complete_next()
    async with MockProducer(auto_complete=False, batch_size=1_000_000) as producer:
        deliveries = [producer.send("t", b"") for _ in range(20_000)]
        for _ in deliveries:
            producer.complete_next()

    assert [delivery.result().offset for delivery in deliveries] == list(range(20_000))


async def test_finalizer_that_sends_inside_a_send_is_served_later() -> None:
    """One append at a time: the record of a topic not used before waits for the one around it."""

    class Sending:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            producer.send("other", b"inner", headers=[("h", b"x" * 100)])

    class Pairs(list[tuple[str, bytes]]):
        def __iter__(self) -> Iterator[tuple[str, bytes]]:
            Sending()
            gc.collect()
            return super().__iter__()

    async with MockProducer(topics={"t": 1}) as producer:
        producer.send("t", b"outer", headers=Pairs([("a", b"1")]))
        await producer.flush()

        assert sorted(shown(producer)) == [("other", b"inner"), ("t", b"outer")]


async def test_started_without_waiting_it_knows_topics_soon() -> None:
    producer = await MockProducer(topics={"t": 2}).start(wait=False)
    assert (await producer.send("t", b"1", partition=1)).partition == 1
    assert (await producer.send("u", b"1")).partition == 0
    await producer.close()
