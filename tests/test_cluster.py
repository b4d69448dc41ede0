"""Old news must not replace newer knowledge of the cluster."""

from collections.abc import Iterable, Iterator, KeysView, Sequence
from dataclasses import replace

import pytest

from aioproducer._network.cluster_updates import SAME_BROKER_S, merge, with_leader_hints, without_topics
from aioproducer._protocol.primitives import NO_TOPIC_ID
from aioproducer.cluster import (
    NO_EPOCH,
    NO_LEADER,
    Cluster,
    MetadataResponse,
    Node,
    Partitions,
    PartitionView,
    TopicView,
)
from aioproducer.records import TopicPartition

ID, OTHER_ID = b"1" * 16, b"2" * 16
NODES = tuple(Node(number, f"host{number}", 9092) for number in (1, 2, 3))


def seen(*partitions: tuple[int, int], topic_id: bytes = ID, error_code: int = 0) -> TopicView:
    return TopicView("a", topic_id, Partitions.of(PartitionView(*each) for each in partitions), error_code)


def answer(*topics: TopicView, from_node: int = 1, nodes: tuple[Node, ...] = NODES) -> MetadataResponse:
    return MetadataResponse(from_node, nodes, topics, "cluster", 1)


def knowing(*topics: TopicView) -> Cluster:
    return merge(Cluster(), answer(*topics), 1.0)


def test_nothing_is_known_at_first() -> None:
    cluster = Cluster()

    assert cluster.leader_of("a", 0) is None
    assert cluster.partition_count("a") is None
    assert cluster.topic_id("a") == NO_TOPIC_ID


def test_answer_names_leaders() -> None:
    cluster = knowing(seen((1, 5), (2, 6)))

    assert [cluster.leader_of("a", number) for number in (0, 1, 2, -1)] == [1, 2, None, None]
    assert [view.leader_epoch for view in cluster.topics["a"].partitions] == [5, 6]
    assert cluster.partition_count("a") == 2
    assert cluster.topic_id("a") == ID
    assert (cluster.cluster_id, cluster.controller_id, cluster.updated_at) == ("cluster", 1, 1.0)


def test_leader_that_is_no_known_node_counts_as_none() -> None:
    assert knowing(seen((99, 5))).leader_of("a", 0) is None
    assert knowing(seen((NO_LEADER, 5))).leader_of("a", 0) is None


def test_old_metadata_names_no_other_leader() -> None:
    """`testLeaderMetadataInconsistentWithBrokerMetadata`: the node returned as leader, and the response is too old."""
    before = knowing(seen((1, 10)))
    stale = merge(before, answer(seen((2, 8)), from_node=2, nodes=NODES[1:]), 2.0)
    after = merge(stale, answer(seen((1, 10))), 3.0)

    assert [cluster.leader_of("a", 0) for cluster in (before, stale, after)] == [1, None, 1]
    assert stale.topics["a"].partitions[0].leader_epoch == 10


def test_unusable_nodes_are_left_out() -> None:
    cluster = merge(Cluster(), answer(nodes=(Node(1, "", 1), Node(2, "h", 70_000), Node(3, "h", 1))), 1.0)

    assert list(cluster.nodes) == [3]


@pytest.mark.parametrize(
    "epoch, expected", [(4, 1), (5, 2), (6, 2), (NO_EPOCH, 2)], ids=["lower", "same", "higher", "none given"]
)
def test_leader_epoch_never_goes_back(epoch: int, expected: int) -> None:
    cluster = merge(knowing(seen((1, 5))), answer(seen((2, epoch))), 2.0)

    assert cluster.leader_of("a", 0) == expected


def test_lower_epoch_is_old_for_a_suspect_with_its_id() -> None:
    """A topic that was created again would have another id."""
    cluster = knowing(seen((1, 5)))
    for from_node in (1, 2, 3):
        cluster = merge(cluster, answer(seen((2, 4)), from_node=from_node), 2.0, suspected={"a"})

    assert cluster.leader_of("a", 0) == 1


def test_omitted_partition_has_no_leader_and_keeps_its_epoch() -> None:
    left_out = PartitionView()
    cluster = merge(knowing(seen((1, 5), (1, 5))), answer(seen(left_out, (1, 5))), 2.0)
    later = merge(cluster, answer(seen((2, 4), (1, 5))), 3.0)

    assert (cluster.leader_of("a", 0), cluster.topics["a"].partitions[0].leader_epoch) == (None, 5)
    assert later.leader_of("a", 0) is None
    assert merge(later, answer(seen((3, 6), (1, 5))), 4.0).leader_of("a", 0) == 3


def test_new_topic_id_replaces_everything() -> None:
    cluster = merge(knowing(seen((1, 50), (1, 50))), answer(seen((2, 0), topic_id=OTHER_ID)), 2.0)

    assert cluster.leader_of("a", 0) == 2
    assert cluster.partition_count("a") == 1
    assert cluster.topic_id("a") == OTHER_ID


def test_id_learned_later_is_no_new_topic() -> None:
    cluster = merge(knowing(seen((1, 5), topic_id=NO_TOPIC_ID)), answer(seen((2, 5))), 2.0)

    assert cluster.leader_of("a", 0) == 2
    assert cluster.topic_id("a") == ID


def test_id_that_comes_with_old_news_is_not_learnt() -> None:
    """The id may be an earlier or a later topic's: with it no lower epoch would ever be believed."""
    cluster = merge(knowing(seen((1, 5), topic_id=NO_TOPIC_ID)), answer(seen((2, 4))), 2.0)

    assert cluster.leader_of("a", 0) == 1
    assert cluster.topic_id("a") == NO_TOPIC_ID


def test_id_once_known_is_kept() -> None:
    cluster = merge(knowing(seen((1, 5))), answer(seen((2, 6), topic_id=NO_TOPIC_ID)), 2.0)

    assert (cluster.topic_id("a"), cluster.leader_of("a", 0)) == (ID, 2)


def test_partitions_are_added_never_removed() -> None:
    cluster = merge(knowing(seen((1, 5))), answer(seen((1, 5), (2, 0))), 2.0)
    assert cluster.partition_count("a") == 2

    assert merge(cluster, answer(seen((1, 5))), 3.0).partition_count("a") == 2


def test_topic_in_error_keeps_what_was_known() -> None:
    """A broker that has just restarted may not know the topic yet."""
    cluster = merge(knowing(seen((1, 5))), answer(seen(topic_id=NO_TOPIC_ID, error_code=3)), 2.0)

    assert (cluster.leader_of("a", 0), cluster.topics["a"].error_code) == (1, 3)
    assert merge(cluster, answer(seen((1, 5))), 3.0).topics["a"].error_code == 0


def test_topics_not_named_stay_and_nodes_not_named_go() -> None:
    cluster = merge(knowing(seen((1, 5))), answer(nodes=NODES[1:]), 2.0)

    assert cluster.partition_count("a") == 1
    assert list(cluster.nodes) == [2, 3]


def test_nothing_of_another_cluster_holds() -> None:
    """Leader epochs and topics are different there, also without topic ids."""
    other = TopicView("b", OTHER_ID, Partitions.of([PartitionView(1, 0)]), 0)
    known = knowing(seen((2, 9), topic_id=NO_TOPIC_ID), other)

    cluster = merge(known, answer(seen((1, 0), topic_id=NO_TOPIC_ID))._replace(cluster_id="another"), 2.0)

    assert cluster.cluster_id == "another"
    assert cluster.topics == {"a": seen((1, 0), topic_id=NO_TOPIC_ID)}


def test_answer_without_a_cluster_id_is_of_the_same_cluster() -> None:
    known = knowing(seen((2, 9)))

    cluster = merge(known, answer()._replace(cluster_id=None), 2.0)

    assert (cluster.cluster_id, cluster.topics) == ("cluster", known.topics)


def test_unchanged_topic_is_the_same_object() -> None:
    """Holders of a view can compare it with the current one."""
    cluster = knowing(seen((1, 5)))

    assert merge(cluster, answer(seen((1, 5))), 2.0).topics["a"] is cluster.topics["a"]


class TestWithoutTopicIds:
    """Brokers before 2.8: a recreated topic cannot be told from old news."""

    OLD = seen((1, 5), topic_id=NO_TOPIC_ID)
    LOWER = seen((2, 0), topic_id=NO_TOPIC_ID)

    def after(self, *steps: tuple[int, bool], nodes: tuple[Node, ...] = NODES) -> int | None:
        cluster = merge(Cluster(), answer(self.OLD, nodes=nodes), 1.0)
        for from_node, is_suspected in steps:
            suspected = {"a"} if is_suspected else set[str]()
            cluster = merge(cluster, answer(self.LOWER, from_node=from_node, nodes=nodes), 2.0, suspected=suspected)
        return cluster.leader_of("a", 0)

    def test_lower_epoch_is_old_news_unless_suspected(self) -> None:
        assert self.after((1, False), (2, False), (3, False)) == 1

    def test_partition_without_a_leader_is_always_suspected(self) -> None:
        """Nothing is sent to it, so no refusal could make its topic suspected."""
        leaderless = seen((NO_LEADER, 5), topic_id=NO_TOPIC_ID)
        cluster = merge(Cluster(), answer(leaderless), 1.0)

        once = merge(cluster, answer(self.LOWER, from_node=1), 2.0)
        twice = merge(once, answer(self.LOWER, from_node=2), 3.0)

        assert (once.leader_of("a", 0), twice.leader_of("a", 0)) == (None, 2)

    def test_two_brokers_must_agree(self) -> None:
        """A broker that is behind repeats itself for a moment."""
        assert self.after((1, True)) == 1
        assert self.after((1, True), (1, True)) == 1
        assert self.after((1, True), (2, True)) == 2

    def test_brokers_that_have_learnt_ids_meanwhile_are_believed_too(self) -> None:
        """The brokers were replaced by newer ones, and the topic was created again."""
        cluster = merge(Cluster(), answer(self.OLD), 1.0)
        for from_node in (1, 2):
            lower = self.LOWER._replace(topic_id=ID)
            cluster = merge(cluster, answer(lower, from_node=from_node), 2.0, suspected={"a"})

        assert (cluster.leader_of("a", 0), cluster.topic_id("a")) == (2, ID)

    def test_one_broker_is_believed_in_the_end(self) -> None:
        """The only broker that answers is believed after a while: no broker is behind for that long."""
        cluster = merge(Cluster(), answer(self.OLD), 1.0)
        leaders = []
        for now in (2.0, 2.0 + 0.9 * SAME_BROKER_S, 2.0 + SAME_BROKER_S):
            cluster = merge(cluster, answer(self.LOWER, from_node=1), now, suspected={"a"})
            leaders.append(cluster.leader_of("a", 0))

        assert leaders == [1, 1, 2]
        assert cluster._doubts == {}

    def test_recreated_topic_loses_its_old_id(self) -> None:
        """Brokers were replaced by older ones: the id is the former topic's, and no epoch goes back."""
        cluster = merge(Cluster(), answer(self.OLD._replace(topic_id=ID)), 1.0)
        for from_node in (1, 2):
            cluster = merge(cluster, answer(self.LOWER, from_node=from_node), 2.0, suspected={"a"})

        assert (cluster.leader_of("a", 0), cluster.topic_id("a")) == (2, NO_TOPIC_ID)

    def test_only_broker_cannot_be_behind_itself(self) -> None:
        assert self.after((1, True), nodes=(NODES[0],)) is None
        lone = seen((1, 0), topic_id=NO_TOPIC_ID)
        cluster = merge(Cluster(), answer(self.OLD, nodes=NODES[:1]), 1.0)
        cluster = merge(cluster, answer(lone, nodes=NODES[:1]), 2.0, suspected={"a"})
        assert cluster.topics["a"].partitions[0].leader_epoch == 0

    def smaller(self, *answers: tuple[int, bool, int], leader: int = 1) -> list[int | None]:
        cluster = merge(Cluster(), answer(seen((1, 0), (1, 0), (leader, 0), topic_id=NO_TOPIC_ID)), 1.0)
        counts = []
        for from_node, is_suspected, count in answers:
            news = answer(seen(*[(1, 0)] * count, topic_id=NO_TOPIC_ID), from_node=from_node)
            cluster = merge(cluster, news, 2.0, suspected={"a"} if is_suspected else ())
            counts.append(cluster.partition_count("a"))
        return counts

    def test_fewer_partitions_are_old_news_unless_suspected(self) -> None:
        """A broker may not have learned yet that there are more."""
        assert self.smaller((1, False, 2), (2, False, 2), (3, False, 2)) == [3, 3, 3]

    def test_fewer_partitions_are_believed_when_two_brokers_agree(self) -> None:
        """The topic was created again; the old partitions refuse every record."""
        assert self.smaller((1, True, 2), (1, True, 2), (2, True, 2)) == [3, 3, 2]
        assert self.smaller((1, True, 2), (2, True, 1), (3, True, 1)) == [3, 3, 1]

    def test_fewer_partitions_are_suspected_without_a_leader(self) -> None:
        assert self.smaller((1, False, 2), (2, False, 2), leader=NO_LEADER) == [3, 2]

    def test_doubt_about_partitions_ends_when_all_are_named(self) -> None:
        assert self.smaller((1, True, 2), (3, True, 3), (2, True, 2)) == [3, 3, 3]

    def test_answer_without_any_partition_is_no_smaller_topic(self) -> None:
        assert self.smaller((1, True, 0), (2, True, 0)) == [3, 3]

    def test_news_ends_the_doubt(self) -> None:
        cluster = merge(Cluster(), answer(self.OLD), 1.0)
        cluster = merge(cluster, answer(self.LOWER, from_node=1), 2.0, suspected={"a"})
        assert len(cluster._doubts) == 1

        assert merge(cluster, answer(seen((3, 6), topic_id=NO_TOPIC_ID)), 3.0)._doubts == {}


def _hinted(
    cluster: Cluster,
    leader: PartitionView,
    *,
    topic: str = "a",
    partition: int = 0,
    topic_id: bytes = ID,
    endpoints: Sequence[Node] = (),
) -> Cluster:
    hints = {TopicPartition(topic, partition): leader}
    return with_leader_hints(cluster, hints, topic_ids={topic: topic_id}, endpoints=endpoints)


class TestLeaderHint:
    """Hints about a new leader in a Produce response (KIP-951)."""

    def test_newer_one_is_taken(self) -> None:
        cluster = _hinted(knowing(seen((1, 5), (1, 5))), PartitionView(2, 6), partition=1)

        assert [cluster.leader_of("a", number) for number in (0, 1)] == [1, 2]

    def test_node_may_come_with_it(self) -> None:
        cluster = knowing(seen((1, 5)))

        hinted = _hinted(cluster, PartitionView(9, 6), endpoints=[Node(9, "new", 1)])

        assert hinted.leader_of("a", 0) == 9

    @pytest.mark.parametrize(
        "topic, partition, leader, endpoints",
        [
            ("a", 0, PartitionView(2, 5), []),
            ("a", 0, PartitionView(2, 4), []),
            ("a", 0, PartitionView(9, 6), []),
            ("a", 0, PartitionView(9, 6), [Node(9, "", 1)]),
            ("a", 7, PartitionView(2, 6), []),
            ("a", -1, PartitionView(2, 6), []),
            ("b", 0, PartitionView(2, 6), []),
        ],
    )
    def test_others_change_nothing(
        self, topic: str, partition: int, *, leader: PartitionView, endpoints: list[Node]
    ) -> None:
        cluster = knowing(seen((1, 5)))

        assert _hinted(cluster, leader, topic=topic, partition=partition, endpoints=endpoints) is cluster

    def test_each_of_many_counts_by_itself(self) -> None:
        cluster = knowing(
            seen((1, 5), (1, 5), (1, 5), (1, 5)), TopicView("b", OTHER_ID, Partitions.of([PartitionView(1, 0)]))
        )
        leaders = (PartitionView(2, 6), PartitionView(2, 5), PartitionView(9, 6), PartitionView(3, 6))
        hints = {TopicPartition("a", number): leader for number, leader in enumerate(leaders)}

        hinted = with_leader_hints(cluster, hints, topic_ids={"a": ID})

        assert [hinted.leader_of("a", number) for number in range(4)] == [2, 1, 1, 3]
        assert hinted.topics["b"] is cluster.topics["b"]

    @pytest.mark.parametrize("topic_id", [OTHER_ID, NO_TOPIC_ID])
    def test_topic_that_is_gone_says_nothing_of_its_successor(self, topic_id: bytes) -> None:
        """Its epoch is higher than the new topic's for a long time: no metadata could undo it."""
        cluster = knowing(seen((1, 0)))

        assert _hinted(cluster, PartitionView(2, 9), topic_id=topic_id) is cluster


def test_forgotten_topics_are_gone() -> None:
    cluster = knowing(seen((1, 5)), TopicView("b", OTHER_ID, Partitions.of([PartitionView(1, 0)])))

    assert list(without_topics(cluster, {"a"}).topics) == ["b"]
    assert without_topics(cluster, set()) is cluster


class Counted(dict[str, TopicView]):
    """Counts how often all entries are walked through."""

    def __init__(self, views: Iterable[TopicView]) -> None:
        super().__init__({view.name: view for view in views})
        self.walks = 0

    def keys(self) -> KeysView[str]:
        self.walks += 1
        return super().keys()

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


def view_of(name: str) -> TopicView:
    return TopicView(name, ID, Partitions.of([PartitionView(1, 0)]))


def test_new_topic_costs_no_walk_over_all_others() -> None:
    """With 8,000 topics in use, a walk for each new one took most of the time."""
    known = Counted(view_of(f"t{number}") for number in range(10_000))
    cluster = replace(knowing(), topics=known)

    for number in range(90):
        cluster = merge(cluster, answer(view_of(f"new{number}")), 1.0)

    assert known.walks == 0


def test_topics_are_a_mapping_in_the_order_in_which_they_came() -> None:
    """Whether a view is among the latest cannot be seen from outside."""
    views = [view_of(f"t{number}") for number in range(300)]
    changed = views[3]._replace(error_code=5)
    cluster = Cluster()
    for view in (*views, changed):
        cluster = merge(cluster, answer(view), 1.0)

    topics = cluster.topics
    expected = {view.name: view for view in views} | {"t3": changed}
    assert (dict(topics), list(topics), len(topics)) == (expected, list(expected), 300)
    assert ("t299" in topics, "t300" in topics, topics.get("t300")) == (True, False, None)
    assert repr(topics) == repr(expected)
