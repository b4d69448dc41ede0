"""Records and requests that reached the embedded cluster."""

from collections.abc import Callable
from typing import TypeVar

from aioproducer import Producer, RecordMetadata
from aioproducer.testing import ApiKey, FakeCluster

ErrorT = TypeVar("ErrorT", bound=Exception)

VERBS = ("send", "send_and_wait", "enqueue", "send_nowait")


def produce_requests(cluster: FakeCluster) -> int:
    return sum(seen.api is ApiKey.PRODUCE for seen in cluster.requests)


def values(cluster: FakeCluster, topic: str) -> list[bytes | None]:
    partitions = cluster.model.topics.named(topic)
    assert partitions is not None
    return [record.value for number in range(len(partitions.partitions)) for record in cluster.records(topic, number)]


def until_refused(send: Callable[[], object], kind: type[ErrorT], *, most: int = 100_000) -> tuple[int, ErrorT]:
    """Send until it is refused: how many were accepted, and the error."""
    for accepted in range(most):
        try:
            send()
        except kind as error:
            return accepted, error
    raise AssertionError(f"{most} records were accepted")


async def give(producer: Producer, verb: str, *arguments: object, **options: object) -> RecordMetadata:
    given = getattr(producer, verb)(*arguments, **options)
    if verb == "enqueue":
        given = await given
    metadata: RecordMetadata = await given
    return metadata
