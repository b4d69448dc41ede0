"""What is known about the cluster, and how often it is asked, on a virtual network."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from aioproducer._network.cluster_updates import merge
from aioproducer._network.metadata_refresher import MetadataRefresher, MetadataSettings
from aioproducer._protocol.produce import NodeEndpoint
from aioproducer.cluster import Cluster, MetadataResponse, Node, Partitions, PartitionView, TopicView
from aioproducer.errors import BrokerConnectionError, MetadataTimeoutError, UnsupportedVersionError
from aioproducer.records import TopicPartition
from tests.fakes.network import ID, Answers, ClientAndNetwork, Topics, refreshing
from tests.fakes.scripted_broker import Heard, ScriptedBroker, metadata_body
from tests.fakes.virtual_loop import in_virtual_time


@in_virtual_time
async def test_first_answer_names_nodes_before_any_topic() -> None:
    async with refreshing(Answers()) as (refresher, _):
        await refresher.first_response(5)
        assert list(refresher.cluster.nodes) == [1]


@in_virtual_time
async def test_first_answer_that_never_comes_says_why() -> None:
    async with refreshing(None) as (refresher, network):
        start = network.loop.time()
        with pytest.raises(MetadataTimeoutError, match=r"within 5 s: .*Connection refused"):
            await refresher.first_response(5)
        assert network.loop.time() - start == pytest.approx(5, abs=0.01)


@in_virtual_time
async def test_first_answer_does_not_wait_after_a_permanent_error() -> None:
    async with refreshing(None) as (refresher, network):
        network.loop.servers["seed", 9092] = lambda: ScriptedBroker(spoken=((0, 0, 1), (3, 0, 1), (18, 0, 0)))
        with pytest.raises(UnsupportedVersionError):
            await refresher.first_response(50)


@in_virtual_time
async def test_new_topic_is_asked_for_at_once_and_alone() -> None:
    topic_a, topic_b = (0, "a", ID, [(1, 0)]), (0, "b", ID, [(1, 0)])
    answers = Answers([], [topic_a], [topic_b])
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(0.01)
        refresher.add_topic("b", network.loop.time())
        await asyncio.sleep(0.01)
        assert refresher.cluster.leader_of("a", 0) == refresher.cluster.leader_of("b", 0) == 1
        asked = answers.asked

    assert len(asked) == 3
    assert asked[2][0] - asked[0][0] < 0.03
    assert b"\x02a" not in asked[2][1]
    assert b"\x02b" in asked[2][1]


UNKNOWN: Topics = [(3, "a", bytes(16), [])]


@pytest.mark.parametrize(
    "answers, limit_s",
    [
        ([UNKNOWN, UNKNOWN, [(5, "a", ID, [(-1, 0)])], [(0, "a", ID, [(1, 1)])]], 1.0),
        ([[(0, "a", ID, [])], [(0, "a", ID, [(1, 0)])]], 0.5),
    ],
    ids=["made on first use", "no partition is named"],
)
@in_virtual_time
async def test_topic_is_asked_for_again_until_it_is_there(answers: list[Topics], limit_s: float) -> None:
    """A broker may know a topic, and not yet its partitions; the response has no error."""
    asking = Answers([], *answers)
    async with refreshing(asking) as (refresher, network):
        await refresher.first_response(5)
        start = network.loop.time()
        refresher.add_topic("a", start)
        while refresher.cluster.leader_of("a", 0) is None:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.01)
        elapsed_s = network.loop.time() - start
        await asyncio.sleep(60)

    assert len(asking.asked) == 1 + len(answers)
    assert elapsed_s < limit_s


@in_virtual_time
async def test_topic_that_never_comes_is_asked_for_once_a_second() -> None:
    answers = Answers(UNKNOWN)
    async with refreshing(answers) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(60)
        assert refresher.topic_error("a") == 3
        assert 55 <= len(answers.asked) <= 85


@in_virtual_time
async def test_forbidden_topic_is_not_asked_for_again_by_itself() -> None:
    answers = Answers([(29, "a", bytes(16), [])])
    async with refreshing(answers) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(60)
        assert refresher.topic_error("a") == 29
        before = len(answers.asked)
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(60)

    assert len(answers.asked) == before + 1


@in_virtual_time
async def test_never_two_refreshes_at_once() -> None:
    """A broker that takes its time is not asked again meanwhile."""
    heard: list[Heard] = []
    async with refreshing(lambda _, request: heard.append(request)) as (refresher, network):
        for name in "abcdef":
            refresher.add_topic(name, network.loop.time())
            refresher.request_update("impatience")
            await asyncio.sleep(1)
        assert len(heard) == 1


@in_virtual_time
async def test_old_metadata_is_refreshed() -> None:
    answers = Answers([(0, "a", ID, [(1, 0)])])
    async with refreshing(answers, MetadataSettings(metadata_max_age_ms=10_000)) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(35)

    assert len(answers.asked) == 4
    assert all(b"\x02a" in body for _, body in answers.asked)


@in_virtual_time
async def test_pause_is_counted_from_the_answer_that_asks_for_it() -> None:
    """Not from the question, which a slow broker answers after the pause would be over."""
    body = (500).to_bytes(4, "big") + metadata_body([(1, "seed", 9092)], [(0, "a", ID, [(1, 0)])])[4:]

    def slow(broker: ScriptedBroker, heard: Heard) -> None:
        asyncio.get_running_loop().call_later(0.9, broker.answer, heard, body)

    async with refreshing(slow) as (refresher, network):
        await refresher.first_response(10)
        await asyncio.sleep(0.4)
        is_ready = [network.is_ready(1)]
        await asyncio.sleep(0.2)
        assert [*is_ready, network.is_ready(1)] == [False, True]


@in_virtual_time
async def test_pause_begins_when_its_answer_is_read() -> None:
    """Not when the task that waits for the answer has its turn: others have theirs before."""
    body = (500).to_bytes(4, "big") + metadata_body([(1, "seed", 9092)], [(0, "a", ID, [(1, 0)])])[4:]

    def answer(broker: ScriptedBroker, heard: Heard) -> None:
        broker.answer(heard, body)

    async with refreshing(answer) as (refresher, network):
        await refresher.first_response(10)
        await asyncio.sleep(1)
        is_ready = [network.is_ready(1)]
        refresher.request_update("for the test")
        responses = network.client.counters.responses
        while network.client.counters.responses == responses:  # noqa: ASYNC110  # turn by turn
            await asyncio.sleep(0)
        assert [*is_ready, network.is_ready(1)] == [True, False]


@in_virtual_time
async def test_topic_not_used_is_forgotten() -> None:
    answers = Answers([(0, "a", ID, [(1, 0)]), (0, "b", ID, [(1, 0)])])
    settings = MetadataSettings(metadata_max_age_ms=10_000, metadata_max_idle_ms=30_000)
    async with refreshing(answers, settings) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        refresher.add_topic("b", network.loop.time())
        gone: list[str] = []
        for _ in range(6):
            await asyncio.sleep(10)
            gone += {"a"} - refresher.cluster.topics.keys()
            refresher.add_topic("a", network.loop.time())
        assert (list(refresher.cluster.topics), gone) == (["a"], [])


@in_virtual_time
async def test_leader_hint_is_published() -> None:
    answers = Answers([(0, "a", ID, [(1, 5)])], nodes=[(1, "seed", 9092), (2, "other", 2)])
    async with refreshing(answers) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(1)
        seen: list[list[str]] = []
        refresher.on_update(lambda _, changed: seen.append(list(changed)))
        hints = {TopicPartition("a", 0): PartitionView(2, 6)}
        for _ in range(2):
            refresher.apply_leader_hints(hints, topic_ids={"a": ID}, endpoints={})
        assert (refresher.cluster.leader_of("a", 0), seen) == (2, [["a"]])


@in_virtual_time
async def test_node_that_a_hint_names_first_can_be_connected_to() -> None:
    """It leads from now on, and the next metadata may be minutes away."""
    answers = Answers([(0, "a", ID, [(1, 5)])])
    async with refreshing(answers) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(1)
        hints = {TopicPartition("a", 0): PartitionView(2, 6)}
        refresher.apply_leader_hints(hints, topic_ids={"a": ID}, endpoints={2: NodeEndpoint("other", 9093, None)})
        network.client.nodes[2].connect()
        await asyncio.sleep(0.1)
        assert [(host, port) for _, host, port in network.loop.connects[1:]] == [("other", 9093)]


@in_virtual_time
async def test_broker_down_is_asked_ever_more_slowly() -> None:
    """No busy loop in any state: a minute without a broker is some sixty attempts."""
    async with refreshing(None) as (_, network):
        await asyncio.sleep(60)
        assert 25 <= len(network.loop.connects) <= 80


@in_virtual_time
async def test_answer_without_a_broker_is_a_failure() -> None:
    """Kafka answers like that while it starts; what was known stays."""
    answers = Answers()
    async with refreshing(answers) as (refresher, _):
        await refresher.first_response(5)
        answers.nodes = ()
        refresher.request_update("test")
        await asyncio.sleep(1)
        assert (refresher.refreshes, list(refresher.cluster.nodes)) == (1, [1])


@in_virtual_time
async def test_suspected_topics_lower_epoch_survives_a_failed_refresh() -> None:
    """A topic that was made again, without ids: no other produce is refused before its new epochs are known."""
    answers = Answers([], [(0, "a", bytes(16), [(1, 7)])], [(0, "a", bytes(16), [(1, 3)])])
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(1)
        epochs = [refresher.cluster.topics["a"].partitions[0].leader_epoch]
        answers.error_code = -1
        refresher.request_update("a produce was refused", topic="a")
        await asyncio.sleep(1)
        answers.error_code = 0
        await asyncio.sleep(10)
        epochs.append(refresher.cluster.topics["a"].partitions[0].leader_epoch)
    assert epochs == [7, 3]


@in_virtual_time
async def test_lower_epoch_is_old_once_a_suspect_was_described() -> None:
    there: Topics = [(0, "a", bytes(16), [(1, 7)])]
    answers = Answers([], there, there, [(0, "a", bytes(16), [(1, 3)])])
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        refresher.add_topic("a", network.loop.time())
        epochs = []
        for topic in ("a", None):
            await asyncio.sleep(2)
            refresher.request_update("test", topic=topic)
            await asyncio.sleep(2)
            epochs.append(refresher.cluster.topics["a"].partitions[0].leader_epoch)
    assert len(answers.asked) == 4
    assert epochs == [7, 7]


@in_virtual_time
async def test_another_cluster_is_reported_and_all_topics_asked_for() -> None:
    """The answer that showed it may have been about one topic alone; librdkafka's test 0121 wants the warning."""
    there_a, there_b = (0, "a", bytes(16), [(1, 0)]), (0, "b", bytes(16), [(1, 0)])
    answers = Answers([], [(0, "a", ID, [(1, 3)])], [there_b], [there_a, there_b])
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(1)
        answers.cluster_id = "another"
        refresher.add_topic("b", network.loop.time())
        await asyncio.sleep(10)
        told = [fields for name, fields in network.log.events if name == "cluster_changed"]
        asked, leader = [body for _, body in answers.asked[2:]], refresher.cluster.leader_of("a", 0)

    assert [b"\x02a" in body for body in asked] == [False, True]
    assert told == [{"cluster_id": "another", "before": "cluster"}]
    assert leader == 1


async def _wish(refresher: MetadataRefresher, *, for_s: float) -> None:
    """Ask all the time, as a producer does whose partitions refuse it."""
    for _ in range(round(for_s * 1000)):
        refresher.request_update("not_leader")
        await asyncio.sleep(0.001)


def _pauses(answers: Answers) -> list[float]:
    times = [at for at, _ in answers.asked]
    return [round(after - before, 2) for before, after in pairwise(times)]


@in_virtual_time
async def test_requests_for_updates_are_joined() -> None:
    """A thousand wishes in a second are a few refreshes, ever further apart: the answers bring nothing new."""
    answers = Answers()
    async with refreshing(answers) as (refresher, _):
        await refresher.first_response(5)
        await _wish(refresher, for_s=1)
        assert 4 <= len(answers.asked) <= 6


@in_virtual_time
async def test_answers_without_news_are_asked_for_once_a_second() -> None:
    """The number of refused partitions, and the duration, do not matter; each broker of a large cluster is asked."""
    answers = Answers([(0, "a", ID, [(1, 5)])])
    async with refreshing(answers) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await _wish(refresher, for_s=60)
        assert 50 <= len(answers.asked) <= 80


@in_virtual_time
async def test_pause_is_short_again_after_news() -> None:
    """A leader has moved: others may have, and what was wrong may be over."""
    before: Topics = [(0, "a", ID, [(1, 5), (1, 5)])]
    answers = Answers([], *[before] * 8, [(0, "a", ID, [(1, 6), (1, 5)])])
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        refresher.add_topic("a", network.loop.time())
        await _wish(refresher, for_s=10)
        pauses = _pauses(answers)

    assert pauses[8] > 0.7
    assert pauses[9] < 0.15


@in_virtual_time
async def test_pauses_are_short_again_once_all_topics_are_known() -> None:
    """They had grown to a second; a leader that moves then is to be found sooner."""
    answers = Answers(*[UNKNOWN] * 8, [(0, "a", ID, [(1, 0)])])
    async with refreshing(answers) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await _wish(refresher, for_s=10)
        pauses = _pauses(answers)

    assert pauses[7] > 0.7
    assert pauses[8] < 0.15


@in_virtual_time
async def test_refreshes_for_their_age_make_no_pause_long() -> None:
    """Later requests usually bring nothing new; the next one is sent at once, and the second one soon."""
    answers = Answers([(0, "a", ID, [(1, 5)])])
    async with refreshing(answers, MetadataSettings(metadata_max_age_ms=5000)) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(62)
        await _wish(refresher, for_s=0.15)
        *_, by_age, first, second = _pauses(answers)

    assert by_age == 5.0
    assert first < 5.0
    assert second < 0.15


@in_virtual_time
async def test_new_topic_does_not_end_the_pause_after_a_failure() -> None:
    """A program that sends to ever new topics would ask brokers that cannot answer without a pause."""
    answers = Answers()
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        answers.nodes = ()  # an answer of no use
        refresher.request_update("test")
        await asyncio.sleep(1)
        before = len(answers.asked)
        for number in range(100):
            refresher.add_topic(f"t{number}", network.loop.time())
            await asyncio.sleep(0.01)
        assert len(answers.asked) - before < 10


@in_virtual_time
async def test_failed_node_causes_one_metadata_request() -> None:
    """Other nodes may lead its partitions; asking repeatedly would load those that answer."""
    answers = Answers(nodes=((1, "seed", 9092), (2, "gone", 9092)))
    async with refreshing(answers, MetadataSettings(retry_backoff_ms=0)) as (refresher, network):
        await refresher.first_response(5)
        for _ in range(50):  # as a sender does whose records wait
            network.client.nodes[2].connect()
            await asyncio.sleep(0.02)
        failed = sum(host == "gone" for _, host, _ in network.loop.connects)
        network.loop.servers["gone", 9092] = ScriptedBroker
        await asyncio.sleep(2)
        asked = len(answers.asked)
        network.client.nodes[2].disconnect(BrokerConnectionError("went away"))
        await asyncio.sleep(1)
        asked_after_loss = len(answers.asked)

    assert 3 <= failed <= 15
    assert asked == 1 + failed
    assert asked_after_loss == asked + 1


@in_virtual_time
async def test_metadata_is_asked_for_while_an_attempt_to_connect_hangs() -> None:
    """Attempts take ever longer; others may lead long before one ends."""
    answers = Answers(nodes=((1, "seed", 9092), (2, "gone", 9092)))
    async with refreshing(answers) as (refresher, network):
        network.loop.black_holes.add("gone")
        await refresher.first_response(5)
        for _ in range(20):
            network.client.nodes[2].connect()
            await asyncio.sleep(1)
        failed = sum(host == "gone" for _, host, _ in network.loop.connects)
        asked = len(answers.asked)

    assert failed <= 5
    assert 15 <= asked <= 25


async def lose_unused_node(network: ClientAndNetwork) -> None:
    """Connect to node 2, which is up, and have it close its idle connection."""
    network.loop.servers["other", 9092] = ScriptedBroker
    network.client.nodes[2].connect()
    await asyncio.sleep(1)
    network.client.nodes[2].disconnect(BrokerConnectionError("idle for too long"))


@in_virtual_time
async def test_lost_unwanted_node_causes_no_request() -> None:
    """A broker closes a connection that is not used: in the hour after, metadata grows old twelve times, and is all."""
    answers = Answers(nodes=((1, "seed", 9092), (2, "other", 9092)))
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        await lose_unused_node(network)
        await asyncio.sleep(1)
        turns, asked = network.loop.turns, len(answers.asked)
        await asyncio.sleep(3600)
        turns, asked = network.loop.turns - turns, len(answers.asked) - asked

    assert asked == 12
    assert turns < 400


@in_virtual_time
async def test_lost_node_causes_a_request_once_a_connect_fails() -> None:
    answers = Answers(nodes=((1, "seed", 9092), (2, "other", 9092)))
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        await lose_unused_node(network)
        await asyncio.sleep(60)
        del network.loop.servers["other", 9092]  # refused at once
        before = len(answers.asked)
        network.client.nodes[2].connect()
        await asyncio.sleep(0.5)
        after = len(answers.asked)

    assert after == before + 1


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
        refresher.apply_leader_hints(hints, topic_ids={"a": ID}, endpoints={})
        cluster = refresher.cluster

    assert {cluster.leader_of("a", number) for number in range(count)} == {2}
    assert _CountedView.copies == 1
