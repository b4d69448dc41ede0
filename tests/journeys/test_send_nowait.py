"""`send_nowait` takes what can be appended at once, and says why it does not."""

import pytest

from aioproducer import (
    BufferFullError,
    MetadataNotReadyError,
    Outcome,
    Producer,
)
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.produced import until_refused, values

PRODUCE = Where(api=ApiKey.PRODUCE)


async def test_send_nowait_before_the_topic_is_known(producer: Producer) -> None:
    with pytest.raises(MetadataNotReadyError, match="'orders'") as caught:
        producer.send_nowait("orders", b"v")
    await producer.partitions_for("orders")

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert (await producer.send_nowait("orders", b"v")).offset == 0


async def test_send_nowait_without_room(one_broker: FakeCluster) -> None:
    """The error gives the sizes and names enqueue; nothing of the record is kept."""
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
