"""Bad arguments and calls that fit no transaction: refused at the call by name, and a valid transaction works after."""

import re
from collections.abc import Awaitable, Callable

import pytest

from aioproducer import IllegalStateError, NoTransactionError, Producer, ProducerFencedError, TopicPartition
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.logs import LogCapture
from tests.fakes.transactional_cluster import V2_RELEASE, asked, cluster_of, committed, one_more, producer_of
from tests.fakes.virtual_loop import in_virtual_time

Call = Callable[[Producer], Awaitable[object]]

PLACE = TopicPartition("t", 0)

OFFSETS: list[tuple[object, object, type[Exception], str]] = [
    (5, "readers", TypeError, "offsets must be a mapping of (topic, partition) to the next offset, not int"),
    ([(PLACE, 1)], "readers", TypeError, "offsets must be a mapping"),
    ({"t": 1}, "readers", TypeError, r"the keys of offsets must be (topic, partition), not str"),
    ({("t",): 1}, "readers", TypeError, "the keys of offsets must be (topic, partition), not tuple"),
    ({("t", None): 1}, "readers", TypeError, "the partition is None"),
    ({("t", "0"): 1}, "readers", TypeError, "partition must be an int or None, not str"),
    ({("t", True): 1}, "readers", TypeError, "partition must be an int or None, not bool"),
    ({("t", -1): 1}, "readers", ValueError, "partition must be between 0 and"),
    ({("a b", 0): 1}, "readers", ValueError, "topic 'a b' has the character"),
    ({(5, 0): 1}, "readers", TypeError, "topic must be a str, not int"),
    ({PLACE: -1}, "readers", ValueError, "must be between 0 and 9223372036854775807, not -1"),
    ({PLACE: 2**63}, "readers", ValueError, "must be between 0 and 9223372036854775807"),
    ({PLACE: "1"}, "readers", TypeError, "must be an int, or (int, str), not str"),
    ({PLACE: 1.0}, "readers", TypeError, "must be an int, or (int, str), not float"),
    ({PLACE: True}, "readers", TypeError, "must be an int, or (int, str), not bool"),
    ({PLACE: None}, "readers", TypeError, "must be an int, or (int, str), not NoneType"),
    ({PLACE: (1, b"x")}, "readers", TypeError, "the metadata of"),
    ({PLACE: (1, "x" * 2**20)}, "readers", ValueError, "must be at most 32767 bytes long, not 1048576"),
    ({PLACE: 1}, "", ValueError, "must not be empty"),
    ({PLACE: 1}, None, TypeError, "group must be a group id or ConsumerGroupMetadata, not NoneType"),
    ({PLACE: 1}, 5, TypeError, "group must be a group id or ConsumerGroupMetadata, not int"),
    ({PLACE: 1}, b"readers", TypeError, "group must be a group id or ConsumerGroupMetadata, not bytes"),
    ({}, "", ValueError, "must not be empty"),
    ({PLACE: (1, "\ud800")}, "readers", ValueError, "cannot be encoded as UTF-8"),
    ({PLACE: 1}, "\ud800", ValueError, "group_id cannot be encoded as UTF-8"),
    ({PLACE: 1}, "g" * 40_000, ValueError, "group_id must be at most 32767 bytes long, not 40000"),
]


PARTITIONS: list[tuple[object, type[Exception], str]] = [
    (None, TypeError, "partitions must be an iterable of (topic, partition), not NoneType"),
    ("t", TypeError, "partitions must be an iterable of (topic, partition), not str"),
    (5, TypeError, "partitions must be an iterable of (topic, partition), not int"),
    (["t"], TypeError, "partitions must be (topic, partition), not str"),
    ([("t", None)], TypeError, "partitions must be (topic, partition): the partition is None"),
    ([("t", "0")], TypeError, "partition must be an int or None, not str"),
    ([("t", -1)], ValueError, "partition must be between 0 and 2147483647, not -1"),
    ([("a b", 0)], ValueError, "topic 'a b' has the character"),
]


@pytest.mark.parametrize("partitions, kind, message", PARTITIONS, ids=[repr(row[0]) for row in PARTITIONS])
@in_virtual_time
async def test_invalid_partitions_of_offsets_are_refused(
    partitions: object, kind: type[Exception], message: str
) -> None:
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        with pytest.raises(kind, match=re.escape(message)):
            await producer.committed_offsets("readers", partitions)  # type: ignore[arg-type]

        assert not any(seen.api is ApiKey.OFFSET_FETCH for seen in cluster.requests)
        assert await producer.committed_offsets("readers", iter([PLACE, ("t", 0)])) == {PLACE: None}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "offsets, group, kind, message", OFFSETS, ids=[f"{row[0]!r:.60}, {row[1]!r:.20}" for row in OFFSETS]
)
@in_virtual_time
async def test_offsets_that_cannot_be_are_refused_at_the_call(  # noqa: PLR0917  # one row
    offsets: object, group: object, kind: type[Exception], message: str
) -> None:
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            with pytest.raises(kind) as caught:
                await txn.send_offsets(offsets, group)  # type: ignore[arg-type]
            await txn.send_offsets({PLACE: 1}, "readers")
            await txn.send("t", b"v", partition=0)

        assert message in str(caught.value)
        assert asked(cluster).count("TXN_OFFSET_COMMIT") == 1
        assert committed(cluster) == [b"v"]


@in_virtual_time
async def test_no_offsets_are_nothing_to_do() -> None:
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        async with producer.transaction() as txn:
            await txn.send_offsets({}, "readers")

        assert asked(cluster) == ["INIT_PRODUCER_ID"]


VERBS: dict[str, Call] = {
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "send_offsets": lambda producer: producer.send_offsets({PLACE: 1}, "readers"),
}


@pytest.mark.parametrize("verb", VERBS)
@in_virtual_time
async def test_transaction_without_a_transactional_id_is_refused(verb: str) -> None:
    async with FakeCluster(1, topics={"t": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            await VERBS[verb](producer)
        with pytest.raises(IllegalStateError, match="transactional_id"):
            producer.transaction()

        await producer.send("t", b"v")


OUTSIDE: dict[str, Call] = {
    "commit_transaction": VERBS["commit_transaction"],
    "abort_transaction": VERBS["abort_transaction"],
    "send_offsets": VERBS["send_offsets"],
    "send": lambda producer: producer.send("t", b"v"),
    "send_and_wait": lambda producer: producer.send_and_wait("t", b"v"),
    "enqueue": lambda producer: producer.enqueue("t", b"v"),
    "send_nowait": lambda producer: producer.send_nowait("t", b"v"),
    "send_many": lambda producer: producer.send_many("t", [b"v"]),
    "topic": lambda producer: producer.topic("t", value=str).enqueue("v"),
}


@pytest.mark.parametrize("verb", OUTSIDE)
@in_virtual_time
async def test_call_outside_of_a_transaction_is_refused(verb: str) -> None:
    """Before the first, and between two; with and without hooks of the user."""
    for options in ({}, {"value_serializer": bytes}):
        async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, **options) as producer:  # type: ignore[arg-type]
            with pytest.raises(IllegalStateError, match="no transaction is open"):
                await OUTSIDE[verb](producer)
            await one_more(producer, cluster)
            with pytest.raises(IllegalStateError, match="no transaction is open"):
                await OUTSIDE[verb](producer)

            assert asked(cluster).count("PRODUCE") == 2


@in_virtual_time
async def test_second_begin_is_refused_and_the_first_goes_on() -> None:
    """Java does the same."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="a transaction is open already"):
            await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.commit_transaction()

        assert committed(cluster) == [b"v"]


@pytest.mark.parametrize("verb", list(VERBS | OUTSIDE))
@in_virtual_time
async def test_fenced_producer_says_so_in_every_call(verb: str) -> None:
    async with cluster_of(V2_RELEASE) as cluster:
        producer = await producer_of(cluster).start()
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.faults.error(90, Where(api=ApiKey.END_TXN))
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()

        with pytest.raises(
            ProducerFencedError, match="a newer producer has taken it over, or the transaction timed out"
        ):
            await (VERBS | OUTSIDE)[verb](producer)
        await producer.close()


@pytest.mark.parametrize("verb", list(VERBS | OUTSIDE))
@in_virtual_time
async def test_calls_before_the_start_and_after_the_end_are_refused(verb: str) -> None:
    async with cluster_of(V2_RELEASE) as cluster:
        producer = producer_of(cluster)
        call = (VERBS | OUTSIDE)[verb]
        with pytest.raises(IllegalStateError, match="is not started"):
            await call(producer)
        await producer.start()
        await producer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await call(producer)


@in_virtual_time
async def test_transaction_is_entered_once() -> None:
    """Each call of `transaction()` makes a new one."""
    async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster) as producer:
        block = producer.transaction()
        async with block as txn:
            await txn.send("t", b"v", partition=0)
        with pytest.raises(IllegalStateError, match="entered once"):
            async with block:
                pytest.fail("entered twice")

        with pytest.raises(NoTransactionError):
            await txn.send("t", b"w", partition=0)


@pytest.mark.parametrize(
    "options, is_told",
    [
        ({"transaction_timeout_ms": 5000, "delivery_timeout_ms": 60_000}, True),
        ({"transaction_timeout_ms": 60_000, "delivery_timeout_ms": 60_000}, False),
        ({"transaction_timeout_ms": 5000}, False),
    ],
)
@in_virtual_time
async def test_transaction_timeout_below_delivery_timeout_is_logged(options: dict[str, int], is_told: bool) -> None:  # noqa: FBT001
    with LogCapture() as log:
        async with cluster_of(V2_RELEASE) as cluster, producer_of(cluster, **options):  # type: ignore[arg-type]
            pass

    assert bool(log.naming("transaction_timeout_is_short")) is is_told
