"""Pauses between two refreshes of metadata, on a virtual network."""

import asyncio
from itertools import pairwise

from aioproducer._network.metadata_refresher import MetadataRefresher, MetadataSettings
from tests.fakes.metadata_refreshing import ID, Answers, Topics, refreshing
from tests.fakes.virtual_cluster import in_virtual_time


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
    unknown: Topics = [(3, "a", bytes(16), [])]
    answers = Answers(*[unknown] * 8, [(0, "a", ID, [(1, 0)])])
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
