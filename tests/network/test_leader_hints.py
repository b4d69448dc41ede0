"""Cost of taking the leaders that a Produce response names (KIP-951): there may be thousands in one."""

from typing import Any

from aioproducer._network.cluster_updates import merge
from aioproducer.cluster import Cluster, MetadataResponse, Node, Partitions, PartitionView, TopicView
from aioproducer.records import TopicPartition
from tests.fakes.metadata_refreshing import ID, Answers, refreshing
from tests.fakes.virtual_cluster import in_virtual_time

NODES = tuple(Node(number, f"host{number}", 9092) for number in (1, 2))


class _CountedView(TopicView):
    """A topic's view that counts how often one like it is made, with a copy of all its partitions."""

    copies = 0

    def _replace(self, **changes: Any) -> TopicView:
        type(self).copies += 1
        return super()._replace(**changes)


@in_virtual_time
async def test_leader_hints_copy_a_topics_partitions_once() -> None:
    count = 1000
    view = _CountedView("a", ID, Partitions.of([PartitionView(1, 5)] * count), 0)
    async with refreshing(Answers()) as (refresher, _):
        refresher.cluster = merge(Cluster(), MetadataResponse(1, NODES, (view,), "cluster", 1), 1.0)
        hints = {TopicPartition("a", number): PartitionView(2, 6) for number in range(count)}
        refresher.apply_leader_hints(hints, topic_ids={"a": ID})
        cluster = refresher.cluster

    assert {cluster.leader_of("a", number) for number in range(count)} == {2}
    assert _CountedView.copies == 1
