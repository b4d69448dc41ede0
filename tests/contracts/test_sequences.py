"""Producer ids, epochs and sequences: the embedded cluster and real Kafka answer alike."""

from collections.abc import Callable, Sequence

import pytest

from tests.contracts.odd_batches import NOW_MS, odd_batch
from tests.contracts.raw_client import RawClient

GAP, OLD_EPOCH, NEXT = 45, 47, 0
LAST = 2**31 - 1

Step = tuple[int, int, int]  # epoch, sequence of the first of two records, error

STORIES: dict[str, Sequence[Step]] = {
    "in order": [(0, 0, NEXT), (0, 2, NEXT), (0, 4, NEXT)],
    "a gap": [(0, 0, NEXT), (0, 3, GAP), (0, 2, NEXT)],
    "a higher epoch begins at zero": [(0, 0, NEXT), (1, 2, GAP), (1, 0, NEXT), (0, 2, OLD_EPOCH)],
    "epochs may be left out": [(0, 0, NEXT), (5, 0, NEXT)],
    "an unknown producer begins anywhere": [(0, 70, NEXT), (0, 72, NEXT)],
    "sequences go round": [(0, LAST - 1, NEXT), (0, 0, NEXT)],
    "after no epoch any sequence goes": [(-1, 0, NEXT), (-1, 7, NEXT), (3, 5, NEXT), (3, 5 + 4, GAP)],
    "a batch may reach over the end": [(0, LAST, NEXT), (0, 1, NEXT)],
}


@pytest.mark.parametrize("story", STORIES)
async def test_sequence_story(client: RawClient, topic: str, story: str) -> None:
    await client.create_topic(topic)
    producer_id = await client.new_producer_id()
    errors = []
    for epoch, sequence, _ in STORIES[story]:
        answer = await client.produce(topic, odd_batch(producer_id=producer_id, epoch=epoch, sequence=sequence))
        errors.append(answer.error_code)
    end, _ = await client.offset(topic, -1)

    assert errors == [error for _, _, error in STORIES[story]]
    assert end == 2 * errors.count(0)


@pytest.mark.parametrize("batches_back, answer", [(0, (0, 12)), (4, (0, 4)), (5, (45, -1)), (6, (45, -1))])
async def test_duplicate(client: RawClient, topic: str, *, batches_back: int, answer: tuple[int, int]) -> None:
    await client.create_topic(topic)
    producer_id = await client.new_producer_id()
    batch: Callable[[int], bytes] = lambda sequence: odd_batch(producer_id=producer_id, epoch=0, sequence=sequence)  # noqa: E731
    for sequence in range(0, 14, 2):
        await client.produce(topic, batch(sequence))

    again = await client.produce(topic, batch(12 - 2 * batches_back))

    assert again[:2] == answer


@pytest.mark.parametrize("keeps", ["CreateTime", "LogAppendTime"])
async def test_copy_is_answered_with_the_time_of_what_is_there(client: RawClient, topic: str, keeps: str) -> None:
    """A duplicate gets the time of the original; a batch that another log takes at that offset gets its own."""
    await client.create_topic(topic, {"message.timestamp.type": keeps})
    batch = odd_batch(producer_id=await client.new_producer_id(), epoch=0, sequence=0)

    taken = await client.produce(topic, batch)
    copy = await client.produce(topic, batch)

    assert (copy.error_code, copy.base_offset) == (0, 0)
    if keeps == "CreateTime":
        assert (taken.log_append_time, copy.log_append_time) == (-1, NOW_MS)
    else:
        assert taken.log_append_time == copy.log_append_time > NOW_MS


async def test_size_and_time_are_checked_before_duplicates(client: RawClient, topic: str) -> None:
    """A batch that was taken once is refused when it comes again with a wrong time."""
    await client.create_topic(topic, {"message.timestamp.after.max.ms": "3600000"})
    producer_id = await client.new_producer_id()
    await client.produce(topic, odd_batch(producer_id=producer_id, epoch=0, sequence=0))

    again = await client.produce(topic, odd_batch(producer_id=producer_id, epoch=0, sequence=0, timestamp=2**42))

    assert again.error_code == 32
