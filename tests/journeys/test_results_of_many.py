"""What `send_many` tells of its records: when, how often, and nothing that is not known."""

import asyncio
import gc
import sys

import pytest

from aioproducer import Producer, TopicPartition, UndeliveredError
from aioproducer.partitioners import partition_for_key
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.produced import values

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29
NOT_ENOUGH_REPLICAS = 19
DUPLICATE = 46


async def test_failures_after_a_wait_that_was_given_up_are_raised_by_flush(
    producer: Producer, one_broker: FakeCluster
) -> None:
    """Whoever gives up has not seen them; and however often it is tried, little is left of it."""
    stall = one_broker.faults.stall(PRODUCE)
    bulk = await producer.send_many("orders", [b"a", b"b"], partition=0)
    kept = []
    for _ in range(20):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await bulk
        kept.append(sys.getrefcount(bulk._shares[0].home))  # noqa: SLF001  # each delivery of the batch holds it
    assert kept == kept[:1] * 20
    one_broker.faults.error(FORBIDDEN, PRODUCE)
    one_broker.faults.remove(stall)

    with pytest.raises(UndeliveredError, match="2 records were not delivered"):
        await producer.flush()


async def test_waits_that_were_given_up_leave_nothing_behind(producer: Producer, one_broker: FakeCluster) -> None:
    """A program that looks every second, for minutes."""
    one_broker.faults.stall(PRODUCE)
    bulk = await producer.send_many("orders", [b"a", b"b"], partition=0)
    for _ in range(20):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await bulk
    gc.collect()

    left = sum(type(each).__name__ == "_AllDone" for each in gc.get_objects())
    assert left <= 1  # the last one's error has a frame that knows it


async def test_failure_before_a_wait_for_others_was_given_up_is_raised_by_flush(
    producer: Producer, one_broker: FakeCluster
) -> None:
    """What waits for all of them is called with the one that has failed, and nobody has looked at that."""
    keys = [
        next(key for key in map(b"%d".__mod__, range(99)) if partition_for_key(key, 3) == place) for place in (0, 1)
    ]
    one_broker.faults.error(FORBIDDEN, Where(api=ApiKey.PRODUCE, topic="orders", partition=0))
    busy = one_broker.faults.error(
        NOT_ENOUGH_REPLICAS, Where(api=ApiKey.PRODUCE, topic="orders", partition=1), times=None
    )
    bulk = await producer.send_many("orders", [b"a", b"b"], keys=keys)
    waiting = asyncio.ensure_future(bulk)
    while not producer.statistics().records_failed:  # noqa: ASYNC110  # nothing tells without a look
        await asyncio.sleep(0.001)
    waiting.cancel()
    one_broker.faults.remove(busy)

    with pytest.raises(UndeliveredError, match="1 record was not delivered"):
        await producer.flush()


async def test_refused_record_at_the_end_of_a_batch_ends_no_wait_for_the_others(
    producer: Producer, one_broker: FakeCluster
) -> None:
    """The batch is taken apart, and what is left of it is on its way still."""
    one_broker.faults.record_errors({4: "no key"}, PRODUCE)

    result = await (await producer.send_many("orders", [b"%d" % number for number in range(5)], partition=0))

    assert result.offsets == {TopicPartition("orders", 0): (0, 3, 4)}
    assert list(result.errors) == [4]


async def test_offsets_are_not_told_where_a_broker_has_not_told_all(
    producer: Producer, one_broker: FakeCluster
) -> None:
    """A broker that has known a batch for too long to say where it is says that it is there."""
    one_broker.faults.drop_connection(PRODUCE, after_append=True, skip=1)
    one_broker.faults.error(DUPLICATE, PRODUCE, skip=2)

    result = await (await producer.send_many("orders", [bytes(900_000)] * 2, partition=0))

    assert result.offsets == {TopicPartition("orders", 0): (-1, -1, 2)}
    assert len(values(one_broker, "orders")) == 2
