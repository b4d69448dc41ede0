"""Asks for a topic's partitions, and waits until some broker has described it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.waiting_lines import still_unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.running_producer import RunningProducer


async def partitions_of(topic: str, *, open_running: Callable[[], RunningProducer], max_block_ms: int) -> list[int]:
    """Return the partitions of a topic, from what is known, else from the next answers.

    Args:
        topic: its name was checked.
        open_running: the parts of a producer that takes records; raises when it does not any more.
        max_block_ms: for how long.

    Raises:
        BrokerError: brokers will never describe it to us.
        MetadataTimeoutError: the topic is still unknown.
    """
    running = open_running()
    deadline = running.loop.time() + max_block_ms / 1000
    while (count := running.metadata.cluster.partition_count(topic)) is None:
        running.metadata.add_topic(topic, running.loop.time())
        error = running.metadata_waits.topic_refusal(topic)
        if error is not None:
            raise error
        is_answered = await running.metadata_waits.next_answer(deadline)
        open_running()  # closed or failed meanwhile: raises
        if not is_answered:
            trouble = running.metadata_waits.topic_trouble(topic)
            late = still_unknown(topic, f"max_block_ms={max_block_ms}", trouble)
            raise late
    return list(range(count))
