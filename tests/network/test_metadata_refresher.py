"""What is known about the cluster, and how often it is asked, on a virtual network."""

import asyncio

import pytest

from aioproducer._network.metadata_refresher import MetadataSettings
from aioproducer.cluster import Cluster, Node, PartitionView
from aioproducer.errors import MetadataTimeoutError, UnsupportedVersionError
from aioproducer.records import TopicPartition
from tests.fakes.metadata_refreshing import ID, Answers, Topics, refreshing
from tests.fakes.scripted_broker import Heard, ScriptedBroker, metadata_body
from tests.fakes.virtual_cluster import in_virtual_time


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


@in_virtual_time
async def test_topic_made_on_first_use_is_there_soon() -> None:
    unknown: Topics = [(3, "a", bytes(16), [])]
    answers = Answers([], unknown, unknown, [(5, "a", ID, [(-1, 0)])], [(0, "a", ID, [(1, 1)])])
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        start = network.loop.time()
        refresher.add_topic("a", start)
        while refresher.cluster.leader_of("a", 0) is None:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.01)
        elapsed_s = network.loop.time() - start
        await asyncio.sleep(60)
        count = len(answers.asked)

    assert count == 5
    assert elapsed_s < 1.0


@in_virtual_time
async def test_topic_of_which_no_partition_is_named_is_asked_for_again() -> None:
    """A broker may know the topic, and not yet its partitions; the response has no error."""
    answers = Answers([], [(0, "a", ID, [])], [(0, "a", ID, [(1, 0)])])
    async with refreshing(answers) as (refresher, network):
        await refresher.first_response(5)
        start = network.loop.time()
        refresher.add_topic("a", start)
        while refresher.cluster.leader_of("a", 0) is None:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.01)
        elapsed_s = network.loop.time() - start
        await asyncio.sleep(60)
        count = len(answers.asked)

    assert count == 3
    assert elapsed_s < 0.5


@in_virtual_time
async def test_topic_that_never_comes_is_asked_for_once_a_second() -> None:
    answers = Answers([(3, "a", bytes(16), [])])
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
        counts = [len(answers.asked)]
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(60)
        before, after = [*counts, len(answers.asked)]

    assert after == before + 1


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
        asked = answers.asked

    assert len(asked) == 4
    assert all(b"\x02a" in body for _, body in asked)


@in_virtual_time
async def test_pause_is_counted_from_the_answer_that_asks_for_it() -> None:
    """Not from the question, which a slow broker answers after the pause would be over."""
    body = (500).to_bytes(4, "big") + metadata_body([(1, "seed", 9092)], [(0, "a", ID, [(1, 0)])])[4:]

    def slow(broker: ScriptedBroker, heard: Heard) -> None:
        asyncio.get_running_loop().call_later(0.9, broker.answer, heard, body)

    async with refreshing(slow) as (refresher, network):
        await refresher.first_response(10)
        await asyncio.sleep(0.4)
        is_ready = [bool(network.client.ready_connection(1))]
        await asyncio.sleep(0.2)
        assert [*is_ready, bool(network.client.ready_connection(1))] == [False, True]


@in_virtual_time
async def test_pause_begins_when_its_answer_is_read() -> None:
    """Not when the task that waits for the answer has its turn: others have theirs before."""
    body = (500).to_bytes(4, "big") + metadata_body([(1, "seed", 9092)], [(0, "a", ID, [(1, 0)])])[4:]

    def answer(broker: ScriptedBroker, heard: Heard) -> None:
        broker.answer(heard, body)

    async with refreshing(answer) as (refresher, network):
        await refresher.first_response(10)
        await asyncio.sleep(1)
        is_ready = [bool(network.client.ready_connection(1))]
        refresher.request_update("for the test")
        responses = network.client.counters.responses
        while network.client.counters.responses == responses:  # noqa: ASYNC110  # turn by turn
            await asyncio.sleep(0)
        assert [*is_ready, bool(network.client.ready_connection(1))] == [True, False]


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
        seen: list[Cluster] = []
        refresher.on_update(seen.append)
        hints = {TopicPartition("a", 0): PartitionView(2, 6)}
        for _ in range(2):
            refresher.apply_leader_hints(hints, topic_ids={"a": ID})
        assert (refresher.cluster.leader_of("a", 0), len(seen)) == (2, 1)


@in_virtual_time
async def test_node_that_a_hint_names_first_can_be_connected_to() -> None:
    """It leads from now on, and the next metadata may be minutes away."""
    answers = Answers([(0, "a", ID, [(1, 5)])])
    async with refreshing(answers) as (refresher, network):
        refresher.add_topic("a", network.loop.time())
        await asyncio.sleep(1)
        hints = {TopicPartition("a", 0): PartitionView(2, 6)}
        refresher.apply_leader_hints(hints, topic_ids={"a": ID}, endpoints=[Node(2, "other", 9093)])
        network.client.connect(2)
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
