"""Interceptors, serializers, partitioners and callbacks: each may fail, and fails nothing but its own record."""

import asyncio
import dataclasses

import pytest

from aioproducer import (
    BufferFullError,
    JsonSerializer,
    KafkaError,
    MetadataNotReadyError,
    Outcome,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    RecordFilteredError,
    RecordMetadata,
    RecordTooLargeError,
    SerializationError,
    StringSerializer,
    TopicPartition,
    UndeliveredError,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.log_capture import LogCapture
from tests.produced import VERBS, give, produce_requests, until_refused, values

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29

# Callbacks


async def test_callbacks_run_in_record_order_before_awaiters(producer: Producer, one_broker: FakeCluster) -> None:
    """Success and failure, on every verb."""
    told: list[object] = []

    def note(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        told.append(metadata.offset if metadata is not None else type(error).__name__)

    for verb in VERBS:
        await give(producer, verb, "orders", b"v", partition=0, on_delivery=note)
        told.append("awaited")
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    for _ in range(3):
        producer.send("orders", b"v", partition=0, on_delivery=note)
    await producer.flush()  # the callback has been told: nothing is unseen

    expected: list[object] = []
    for offset in range(4):
        expected += [offset, "awaited"]
    assert told == [*expected, *["TopicAuthorizationError"] * 3]


async def test_callbacks_that_err_keep_nobody_from_theirs(producer: Producer) -> None:
    """Whatever they raise; they are logged, without payloads."""
    told: list[str] = []

    def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    async def mistaken(*_: object) -> None:
        told.append("never")

    with LogCapture() as log:
        deliveries = [
            producer.send("orders", b"v", partition=0, on_delivery=lambda *_: 1 / 0),
            producer.send("orders", b"v", partition=0, on_delivery=cancelled),
            producer.send("orders", b"v", partition=0, on_delivery=mistaken),
            producer.send("orders", b"v", partition=0, on_delivery=lambda *_: told.append("last")),
        ]
        metadata = await asyncio.wait_for(asyncio.gather(*deliveries), 2)

    assert [each.offset for each in metadata] == [0, 1, 2, 3]
    assert told == ["last"]
    failures = log.naming("on_delivery_failed")
    assert [word for word in ("ZeroDivisionError", "CancelledError", "must not be async") if word in str(failures)] == [
        "ZeroDivisionError",
        "CancelledError",
        "must not be async",
    ]


async def test_callback_may_send(producer: Producer, one_broker: FakeCluster) -> None:
    """The next record, for example; and start a flush or close in a task."""
    sent: list[asyncio.Future[RecordMetadata]] = []

    def send_next(metadata: RecordMetadata | None, _error: object) -> None:
        assert metadata is not None
        sent.append(producer.send("orders", b"next", partition=0))
        sent.append(asyncio.ensure_future(producer.flush()))  # type: ignore[arg-type]

    await producer.send("orders", b"first", partition=0, on_delivery=send_next)
    await asyncio.wait_for(asyncio.gather(*sent), 2)

    assert values(one_broker, "orders") == [b"first", b"next"]


# Interceptors


class Noting(ProducerInterceptor):
    """Adds a header, and notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Add a header."""
        return dataclasses.replace(record, headers=(*record.headers, ("seen", b"1")))

    def on_acknowledgement(self, metadata: RecordMetadata, headers: object) -> None:
        """Note where it is."""
        self.told.append((metadata.offset, headers))

    def on_error(self, topic_partition: TopicPartition, error: Exception, headers: object) -> None:
        """Note why it is not."""
        self.told.append((topic_partition, type(error), headers))

    def close(self) -> None:
        """Note the end."""
        self.told.append("closed")


async def test_interceptor_sees_a_records_whole_life(one_broker: FakeCluster) -> None:
    """Before callbacks; acknowledgements, failures, failures at the call, and the end."""
    noting = Noting()
    seen = (("seen", b"1"),)
    producer = Producer(one_broker.bootstrap_servers, interceptors=[noting], value_serializer=StringSerializer())
    async with producer:
        await producer.send(
            "orders", "v", partition=0, headers=[("own", None)], on_delivery=lambda *_: noting.told.append("callback")
        )
        one_broker.faults.error(FORBIDDEN, PRODUCE)
        with pytest.raises(KafkaError):
            await producer.send("orders", "v", partition=0)
        with pytest.raises(SerializationError):
            producer.send("orders", 5)
        with pytest.raises(RecordTooLargeError):
            producer.send("orders", "x" * 2_000_000, partition=1)
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("elsewhere", "v")

    kinds = [entry[1].__name__ if isinstance(entry, tuple) and len(entry) == 3 else entry for entry in noting.told]
    assert kinds == [
        (0, (("own", None), ("seen", b"1"))),
        "callback",
        "TopicAuthorizationError",
        "SerializationError",
        "RecordTooLargeError",
        "MetadataNotReadyError",
        "closed",
    ]
    assert noting.told[2] == (TopicPartition("orders", 0), noting.told[2][1], seen)  # type: ignore[index]
    assert values(one_broker, "orders") == [b"v"]


async def test_failing_interceptor_is_logged_once_and_skipped(one_broker: FakeCluster) -> None:
    """Each of its methods; the others go on."""

    class Failing(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ZeroDivisionError(str(len(record.topic)))

        def on_acknowledgement(self, metadata: RecordMetadata, headers: object) -> None:  # noqa: ARG002
            raise ZeroDivisionError

    noting = Noting()
    with LogCapture() as log:
        async with Producer(one_broker.bootstrap_servers, interceptors=[Failing(), noting]) as producer:
            for _ in range(5):
                await producer.send("orders", b"v", partition=0)
            failures = producer.statistics().interceptor_failures

    assert (failures, len(log.naming("interceptor_failed"))) == (10, 2)
    assert [dict(record.headers) for record in one_broker.records("orders", 0)] == [{"seen": b"1"}] * 5
    assert noting.told[-1] == "closed"


@pytest.mark.parametrize("verb", VERBS)
async def test_dropped_record_is_an_error_of_its_own(one_broker: FakeCluster, verb: str) -> None:
    """By the delivery; not sent, counted, and not raised by flush."""

    class Dropping(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
            return None if record.value == b"drop" else record

    async with Producer(one_broker.bootstrap_servers, interceptors=[Dropping()]) as producer:
        with pytest.raises(RecordFilteredError, match="'orders'") as caught:
            await give(producer, verb, "orders", b"drop")
        producer.send("orders", b"drop")
        await producer.flush()
        assert (caught.value.outcome, producer.statistics().records_filtered) == (Outcome.NOT_WRITTEN, 2)
        assert produce_requests(one_broker) == 0
        await producer.send("orders", b"keep")

    assert values(one_broker, "orders") == [b"keep"]


async def test_interceptor_that_returns_nonsense_is_skipped(one_broker: FakeCluster) -> None:
    """It counts as failing."""

    class Nonsense(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record.topic  # type: ignore[return-value]

    async with Producer(one_broker.bootstrap_servers, interceptors=[Nonsense()]) as producer:
        await producer.send("orders", b"v")
        assert producer.statistics().interceptor_failures == 1


# Serializers


def raises(_value: object) -> bytes:
    """Fail.

    Raises:
        KeyError: always.
    """
    raise KeyError("inner")


def returns_text(_value: object) -> bytes:
    """Forget to encode."""
    return "text"  # type: ignore[return-value]


def returns_coroutine(_value: object) -> bytes:
    """Be async in disguise."""
    return asyncio.sleep(0)  # type: ignore[return-value]


def returns_number(_value: object) -> bytes:
    """Return what is no bytes."""
    return 5  # type: ignore[return-value]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
@pytest.mark.parametrize(
    "serializer, message",
    [
        (raises, "KeyError: 'inner'"),
        (returns_text, "returned str"),
        (returns_coroutine, "returned a coroutine"),
        (returns_number, "returned int"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_bad_serializer_is_an_error_at_the_call(  # noqa: PLR0917  # the parts of a row
    one_broker: FakeCluster, verb: str, option: str, serializer: object, message: str
) -> None:
    """That names option and function, with the original as its cause; nothing is sent."""
    async with Producer(one_broker.bootstrap_servers, **{option: serializer}) as producer:  # type: ignore[arg-type]
        await producer.partitions_for("orders")
        with pytest.raises(SerializationError, match=f"{option} {serializer.__name__}.*{message}") as caught:  # type: ignore[attr-defined]
            await give(producer, verb, "orders", b"v", key=b"k")

        assert isinstance(caught.value.__cause__, KeyError) == (serializer is raises)
        assert produce_requests(one_broker) == 0
        await producer.send("orders")  # null key and value need no serializer


async def test_serializer_may_make_a_null(one_broker: FakeCluster) -> None:
    """A tombstone."""
    async with Producer(one_broker.bootstrap_servers, value_serializer=lambda _value: None) as producer:
        await producer.send("orders", b"v")

    assert values(one_broker, "orders") == [None]


async def test_serializers_are_given_topic_and_value(one_broker: FakeCluster) -> None:
    """And the key decides the partition by its bytes."""
    async with Producer(
        one_broker.bootstrap_servers, key_serializer=StringSerializer(), value_serializer=JsonSerializer()
    ) as typed:
        first = await typed.send("orders", {"a": [1]}, key="k")
        second = await typed.send("orders", None, key="k")

    assert first.topic_partition == second.topic_partition
    assert values(one_broker, "orders") == [b'{"a":[1]}', None]


# Partitioners


class Chosen:
    """A partitioner that chooses what it is told, or raises it."""

    def __init__(self, choice: object) -> None:
        self.choice = choice
        self.batches: list[tuple[str, int]] = []
        self.is_closed = False

    def partition(self, *_: object) -> int:
        """Choose."""
        if isinstance(self.choice, Exception):
            raise self.choice
        return self.choice  # type: ignore[return-value]

    def on_new_batch(self, topic: str, _cluster: object, previous: int) -> None:
        """Note it."""
        self.batches.append((topic, previous))

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("choice", [99, -1, None, "0", True, 1.0, ZeroDivisionError("inner"), KeyError("k")], ids=repr)
async def test_bad_choice_is_a_value_error_that_names_the_partitioner(
    one_broker: FakeCluster, choice: object, *, is_known: bool
) -> None:
    """At the call, or by the delivery while the topic was unknown; the producer goes on."""
    async with Producer(one_broker.bootstrap_servers, partitioner=Chosen(choice)) as producer:
        if is_known:
            await producer.partitions_for("orders")
        with pytest.raises(ValueError, match=r"Chosen\.partition") as caught:
            await producer.send("orders", b"v")
        with pytest.raises(ValueError, match=r"Chosen\.partition"):
            await producer.enqueue("orders", b"v")

        assert isinstance(caught.value, KafkaError)
        assert caught.value.outcome is Outcome.NOT_WRITTEN
        assert produce_requests(one_broker) == 0
        await producer.send("orders", b"valid", partition=1)


async def test_partitioner_chooses_and_is_told_of_batches(one_broker: FakeCluster) -> None:
    """And closed with the producer."""
    chosen = Chosen(2)
    async with Producer(one_broker.bootstrap_servers, partitioner=chosen, batch_size=500) as producer:
        for _ in range(20):
            await producer.enqueue("orders", bytes(100))
        metadata = await producer.send("orders", b"v")

    assert metadata.partition == 2
    assert chosen.batches != []
    assert set(chosen.batches) == {("orders", 2)}
    assert chosen.is_closed


async def test_partitioner_that_errs_elsewhere_stops_nobody(one_broker: FakeCluster) -> None:
    """Told of a batch, or closed: logged."""

    class Failing(Chosen):
        def on_new_batch(self, *_: object) -> None:
            raise ZeroDivisionError

        def close(self) -> None:
            raise ZeroDivisionError

    with LogCapture() as log:
        async with Producer(one_broker.bootstrap_servers, partitioner=Failing(0), batch_size=500) as producer:
            for _ in range(20):
                await producer.enqueue("orders", bytes(100))

    assert len(values(one_broker, "orders")) == 20
    assert len(log.naming("partitioner_failed")) >= 2


async def test_partitioner_may_send_when_told_of_a_batch(one_broker: FakeCluster) -> None:
    """Into a record that is just being written it must not reach."""
    producers: list[Producer] = []

    class Sending(Chosen):
        def on_new_batch(self, *_: object) -> None:
            producers[0].send("orders", b"other", partition=1, headers=[("other", b"header" * 50)])

    producer = Producer(one_broker.bootstrap_servers, partitioner=Sending(0), batch_size=500)
    producers.append(producer)
    async with producer:
        for _ in range(20):
            await producer.enqueue("orders", bytes(100), headers=[("own", b"1")])

    assert {tuple(record.headers) for record in one_broker.records("orders", 0)} == {(("own", b"1"),)}
    assert len(one_broker.records("orders", 1)) > 0


# send_nowait


async def test_send_nowait_before_the_topic_is_known(producer: Producer) -> None:
    """It asks; a little later it works."""
    with pytest.raises(MetadataNotReadyError, match="'orders'") as caught:
        producer.send_nowait("orders", b"v")
    await producer.partitions_for("orders")

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert (await producer.send_nowait("orders", b"v")).offset == 0


async def test_send_nowait_without_room(one_broker: FakeCluster) -> None:
    """Says so, with the sizes, and names enqueue; nothing of it is left behind."""
    stall = one_broker.faults.stall(PRODUCE)
    async with Producer(one_broker.bootstrap_servers, buffer_memory=100_000, batch_size=10_000) as small:
        await small.partitions_for("orders")
        accepted, error = until_refused(lambda: small.send_nowait("orders", bytes(1_000)), BufferFullError)
        one_broker.faults.remove(stall)
        await small.flush()

    assert error.outcome is Outcome.NOT_WRITTEN
    assert "buffer_memory=100000" in str(error)
    assert "enqueue" in str(error)
    assert len(values(one_broker, "orders")) == accepted


async def test_unseen_failures_of_intercepted_records_are_raised(one_broker: FakeCluster) -> None:
    """An interceptor that was told is not somebody who looked."""
    producer = await Producer(one_broker.bootstrap_servers, interceptors=[Noting()]).start()
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    producer.send("orders", b"v")

    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        await producer.flush()
    await producer.close()
