"""What `send_many` tells of its records: when, how often, and nothing that is not known."""

import asyncio
import sys

import pytest

from aioproducer import Producer, TopicPartition, UndeliveredError
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.produced import values

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29
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
