"""Each part of a response is matched to its batch, also in odd responses."""

import struct
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import pytest

from aioproducer._accumulator.partition_queue import PartitionQueue
from aioproducer._network.requests import Answered
from aioproducer._sender.produce_request import LAST_VERSION_BY_NAME, ProduceRequest
from aioproducer.cluster import Cluster, Partitions, PartitionView, TopicView
from aioproducer.records import TopicPartition
from tests.fakes.core_parts import CoreParts
from tests.fakes.scripted_sender import ScriptedSender

NOT_LEADER = 6


def answering(*said: tuple[int, int, int]) -> memoryview:
    """The answer to Produce 8 with these entries of topic t: partition, code, base offset; in this order."""
    body = struct.pack(">ih1si", 1, 1, b"t", len(said))
    for partition, code, base_offset in said:
        body += struct.pack(">ihqqqih", partition, code, base_offset, -1, 0, 0, -1)
    return memoryview(body + struct.pack(">i", 0))


@pytest.mark.parametrize("second", [(0, NOT_LEADER, -1), (0, 0, 99)], ids=["refused", "written elsewhere"])
def test_first_of_two_answers_for_a_partition_counts(second: tuple[int, int, int]) -> None:
    """A batch ends once: what its caller was told stays so, and nothing is sent again."""
    script = ScriptedSender()
    delivery = script.core.send(b"v")
    script.turn()
    request = script.client.requests[1].pop()

    request.on_end(Answered(answering((0, 0, 7), second, (5, 0, 3)), script.core.now))
    script.turn(seconds=5)

    assert delivery.result().offset == 7
    assert (script.in_flight(), script.fatal, script.client.disconnected) == (0, [], [])


def test_refusal_before_an_acknowledgement_is_tried_again() -> None:
    """The first counts; a copy of a written batch is recognised by its sequence."""
    script = ScriptedSender()
    delivery = script.core.send(b"v")
    script.turn()
    request = script.client.requests[1].pop()

    request.on_end(Answered(answering((0, NOT_LEADER, -1), (0, 0, 7)), script.core.now))
    script.turn(seconds=5)

    assert (delivery.done(), script.in_flight()) == (False, 1)


@pytest.mark.parametrize("known", [("t", "u"), ("t",), ()], ids=["both", "one", "none"])
def test_topics_are_named_as_long_as_the_id_of_one_is_not_known(known: tuple[str, ...]) -> None:
    """From version 13 on there are ids alone, and the zero id is no topic's."""
    views = {topic: TopicView(topic, topic.encode() * 16, Partitions.of([PartitionView(1, 0)]), 0) for topic in known}
    cluster = replace(Cluster(), topics=MappingProxyType(views))
    core = CoreParts()
    batches = [
        SimpleNamespace(count=1, queue=PartitionQueue(TopicPartition(topic, 0), core.queue().identity, max_in_flight=5))
        for topic in ("t", "u")
    ]

    request = ProduceRequest(1, batches, cluster)  # type: ignore[arg-type]  # as much of batches as is looked at

    assert (request.highest_version > LAST_VERSION_BY_NAME) is (known == ("t", "u"))
