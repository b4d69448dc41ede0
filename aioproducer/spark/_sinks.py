"""Search for a sink of a cluster, for `aioproducer txn --sink`: its decision and transactions. Needs no pyspark."""

from collections.abc import Collection
from dataclasses import dataclass

from aioproducer._admin.cluster_requests import AdminRequest, ClusterRequests, raise_refusal
from aioproducer._protocol.offset_messages import (
    NO_OFFSET,
    OFFSET_FETCH,
    OffsetsResponse,
    decode_offset_fetch_response,
    encode_offset_fetch_request,
)
from aioproducer._protocol.transaction_messages import CoordinatorType
from aioproducer.errors import ConfigurationError
from aioproducer.spark._commit import SinkCommit
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.spark._decision import Decision, SinkIds


@dataclass(frozen=True, slots=True)
class FoundSink:
    """A sink of a cluster.

    Attributes:
        ids: its names there.
        topic: whose group offsets keep its decision; empty if nothing was ever decided.
        cluster: for its requests.
    """

    ids: SinkIds
    topic: str
    cluster: SinkCluster

    @property
    def commit(self) -> SinkCommit:
        """Commit of the sink's batches."""
        return SinkCommit(self.ids, self.cluster, self.cluster.partitions)

    async def decision(self) -> Decision | None:
        """Return what was decided last; changes nothing.

        Raises:
            KafkaError: the cluster did not answer in time, or refused.
        """
        return await self.commit.last_decision()


async def find_sink(requests: ClusterRequests, sink_id: str, topic: str | None) -> FoundSink:
    """Find the topic of a sink's decision by the offsets of its group, unless it is given.

    Raises:
        ConfigurationError: the name or the topic is wrong, or its group has offsets of several topics.
        KafkaError: the cluster did not answer in time, or refused.
    """
    ids = SinkIds(sink_id)
    if topic is None:
        topics = await _topics_with_offsets(requests, ids.group)
        if len(topics) > 1:
            raise ConfigurationError(
                f"sink {sink_id!r} has decisions in {', '.join(sorted(topics))}: say which with --topic"
            )
        topic = next(iter(topics), "")
    if topic:
        cluster = await requests.refresh([topic])
        if not cluster.partition_count(topic):
            raise ConfigurationError(f"topic {topic!r} does not exist, or may not be described", option="topic")
    return FoundSink(ids, topic, SinkCluster(requests, ids, topic=topic))


async def _topics_with_offsets(requests: ClusterRequests, group: str) -> Collection[str]:
    def check(response: OffsetsResponse) -> None:
        for code in response.error_codes:
            raise_refusal(code, f"offsets of group {group!r}")

    request = AdminRequest(
        OFFSET_FETCH,
        lambda _: encode_offset_fetch_request(group, None, require_stable=True),
        lambda response: decode_offset_fetch_response(response.payload),
        check,
    )
    found = await requests.to_coordinator(group, request, kind=CoordinatorType.GROUP)
    return {each.topic for each in found.offsets if each.offset != NO_OFFSET}
