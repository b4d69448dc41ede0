"""Results of `send_many`: when and how often they are reported, and nothing that is not known."""

import asyncio
import gc
import itertools
import sys
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pytest

from aioproducer import BulkDelivery, BulkResult, OffsetRange, Producer, TopicPartition, UndeliveredError
from aioproducer.partitioners import partition_for_key
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.virtual_loop import in_virtual_time
from tests.produced import values

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29
NOT_ENOUGH_REPLICAS = 19
DUPLICATE = 46


async def test_failures_after_an_abandoned_wait_are_raised_by_flush(
    producer: Producer, one_broker: FakeCluster
) -> None:
    """A caller that gives up has not retrieved them; many attempts leave little memory behind."""
    stall = one_broker.faults.stall(PRODUCE)
    bulk = await producer.send_many("orders", [b"a", b"b"], partition=0)
    kept = []
    for _ in range(20):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await bulk
        kept.append(sys.getrefcount(bulk._shares[0].batch_result))  # noqa: SLF001  # each delivery of the batch holds it
    assert kept == kept[:1] * 20
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    one_broker.faults.remove(stall)

    with pytest.raises(UndeliveredError, match="2 records were not delivered"):
        await producer.flush()


async def test_waits_that_were_given_up_leave_nothing_behind(producer: Producer, one_broker: FakeCluster) -> None:
    one_broker.faults.stall(PRODUCE)
    bulk = await producer.send_many("orders", [b"a", b"b"], partition=0)
    before = waits()
    for _ in range(20):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await bulk

    assert waits() - before <= 1  # the last one's error has a frame that knows it


def waits() -> int:
    """Count the waits that something still refers to; earlier tests may have left some in the frames of errors."""
    gc.collect()
    return sum(type(each).__name__ == "_AllDone" for each in gc.get_objects())


async def test_failure_before_an_abandoned_wait_is_raised_by_flush(producer: Producer, one_broker: FakeCluster) -> None:
    """A waiter for all of them is notified of the failed one, whose failure stays unretrieved."""
    keys = [
        next(key for key in map(b"%d".__mod__, range(99)) if partition_for_key(key, 3) == place) for place in (0, 1)
    ]
    one_broker.faults.error(FORBIDDEN, Where(api=ApiKey.PRODUCE, topic="orders", partition=0))
    busy = one_broker.faults.error(
        NOT_ENOUGH_REPLICAS, Where(api=ApiKey.PRODUCE, topic="orders", partition=1), times=None
    )
    bulk = await producer.send_many("orders", [b"a", b"b"], keys=keys)
    waiting = asyncio.ensure_future(bulk)
    while not producer.statistics().records_failed:  # noqa: ASYNC110  # there is no notification
        await asyncio.sleep(0.001)
    waiting.cancel()
    one_broker.faults.remove(busy)

    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        await producer.flush()


async def test_refused_last_record_ends_no_wait_for_the_others(producer: Producer, one_broker: FakeCluster) -> None:
    """The batch is split, and the other records are still under way."""
    one_broker.faults.record_errors({4: "no key"}, PRODUCE)

    result = await (await producer.send_many("orders", [b"%d" % number for number in range(5)], partition=0))

    assert result.offsets == {TopicPartition("orders", 0): (0, 3, 4)}
    assert list(result.errors) == [4]


async def test_offsets_are_unknown_if_a_broker_omits_some(producer: Producer, one_broker: FakeCluster) -> None:
    """A broker that does not remember a duplicate's offset only says that the batch is there."""
    one_broker.faults.drop_connection(PRODUCE, after_append=True, skip=1)
    one_broker.faults.error(DUPLICATE, PRODUCE, skip=2)

    result = await (await producer.send_many("orders", [bytes(900_000)] * 2, partition=0))

    assert result.offsets == {TopicPartition("orders", 0): (-1, -1, 2)}
    assert len(values(one_broker, "orders")) == 2


# What a result says against what stands in the logs


def row(position: int) -> bytes:
    return b"%06d" % position + bytes(40 + position * 7 % 160)


def positions_in_logs(cluster: FakeCluster) -> dict[TopicPartition, dict[int, int]]:
    """Each partition's records of the call: position in the call -> offset; records of others are left out."""
    found: dict[TopicPartition, dict[int, int]] = {}
    for partition in range(3):
        records = cluster.records("orders", partition)
        own = [record for record in records if record.value is not None and record.value[:6].isdigit()]
        offsets = {int(record.value[:6]): record.offset for record in own if record.value is not None}
        assert len(offsets) == len(own), "a record was written twice"
        if offsets:
            found[TopicPartition("orders", partition)] = offsets
    return found


def check_result(result: BulkResult, cluster: FakeCluster, count: int) -> None:
    logged = positions_in_logs(cluster)
    expected = {
        place: OffsetRange(min(offsets.values()), max(offsets.values()), len(offsets))
        for place, offsets in logged.items()
    }
    written = sorted(itertools.chain.from_iterable(logged.values()))
    assert result.offsets == expected
    assert result.delivered == len(written)
    assert list(result.errors) == sorted(set(range(count)) - set(written))
    for offsets in logged.values():
        assert list(offsets) == sorted(offsets), "records of a partition keep the order of the call"


async def give_many(producer: Producer, form: str, count: int) -> BulkDelivery:
    rows = [row(position) for position in range(count)]
    keys = [None if position % 5 == 0 else b"%d" % (position % 11) for position in range(count)]
    if form == "table":
        return await producer.send_arrow("orders", pa.table({"value": rows, "key": pa.array(keys, pa.binary())}))
    if form == "typed":
        return await producer.topic("orders", key=bytes, value=bytes).send_many(rows, keys=keys)
    return await producer.send_many("orders", rows, keys=keys)


async def send_others(producer: Producer, count: int | None = None) -> None:
    for number in itertools.count() if count is None else range(count):
        await producer.enqueue("orders", b"other", partition=number % 3)
        if count is None:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("form", ["values", "table", "typed"])
@pytest.mark.parametrize("compression", ["none", "lz4"])
@in_virtual_time
async def test_result_is_true_when_memory_is_short(form: str, compression: Literal["none", "lz4"]) -> None:
    async with FakeCluster(2, topics={"orders": 3}) as cluster:
        cluster.faults.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, PRODUCE, skip=5, times=3)
        cluster.faults.error(ErrorCode.NOT_ENOUGH_REPLICAS, PRODUCE, skip=12, times=2)
        async with Producer(
            cluster.bootstrap_servers, buffer_memory=8_192, batch_size=1_500, compression_type=compression
        ) as producer:
            await send_others(producer, 3)  # so that the first batches do not begin with records of the call
            others = asyncio.create_task(send_others(producer))
            bulk = await give_many(producer, form, 1_500)
            await send_others(producer, 3)
            result = await bulk
            others.cancel()
            await asyncio.wait([others])

        assert (bulk.accepted, result.failed) == (1_500, 0)
        check_result(result, cluster, 1_500)


@pytest.mark.parametrize("form", ["values", "table", "typed"])
@in_virtual_time
async def test_result_is_true_when_batches_are_split(form: str) -> None:
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        cluster.create_topic("orders", 3, configs={"max.message.bytes": "1100"})
        async with Producer(cluster.bootstrap_servers, buffer_memory=65_536) as producer:
            result = await (await give_many(producer, form, 900))
            assert producer.statistics().batches_split > 0

        check_result(result, cluster, 900)


@pytest.mark.parametrize("form", ["values", "table", "typed"])
@in_virtual_time
async def test_result_is_true_when_some_batches_fail(form: str) -> None:
    async with FakeCluster(1, topics={"orders": 3}) as cluster:
        for partition, skip in ((0, 0), (1, 2), (2, 5)):
            refused = Where(api=ApiKey.PRODUCE, topic="orders", partition=partition)
            cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, refused, skip=skip, times=2)
        async with Producer(
            cluster.bootstrap_servers, buffer_memory=8_192, batch_size=1_500, max_in_flight_requests_per_connection=1
        ) as producer:
            result = await (await give_many(producer, form, 600))

        assert 0 < result.failed < 600
        check_result(result, cluster, 600)


@pytest.mark.parametrize("given", [1, 150, 299])
@in_virtual_time
async def test_result_is_true_when_the_producer_is_closed_meanwhile(given: int) -> None:
    async with FakeCluster(1, topics={"orders": 3}) as cluster:
        producer = await Producer(cluster.bootstrap_servers, buffer_memory=8_192, batch_size=1_500).start()
        closing = []

        def rows() -> Iterator[bytes]:
            for position in range(300):
                if position == given:
                    closing.append(asyncio.ensure_future(producer.close()))
                yield row(position)

        result = await (await producer.send_many("orders", rows()))
        await closing[0]

        check_result(result, cluster, 300)


@pytest.mark.parametrize("form", ["values", "table", "typed"])
@in_virtual_time
async def test_cancelled_call_has_sent_its_first_rows(form: str) -> None:
    async with FakeCluster(1, topics={"orders": 3}) as cluster:
        stall = cluster.faults.stall(PRODUCE)
        async with Producer(cluster.bootstrap_servers, buffer_memory=65_536, batch_size=4_096) as producer:
            giving = asyncio.create_task(give_many(producer, form, 3_000))
            while not producer.statistics().records_waiting:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.01)
            giving.cancel()
            await asyncio.wait([giving])
            cluster.faults.remove(stall)

        written = sorted(itertools.chain.from_iterable(positions_in_logs(cluster).values()))
        assert giving.cancelled()
        assert 0 < len(written) < 3_000
        assert written == list(range(len(written)))
