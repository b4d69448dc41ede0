"""Leaders that brokers name in an answer to Produce (KIP-951) reach the metadata."""

import struct

from aioproducer._network.requests import Answered
from aioproducer.cluster import PartitionView
from aioproducer.records import TopicPartition
from tests.fakes.scripted_sender import ScriptedSender

WITH_HINTS = 10
"""The first version of Produce in which a broker that leads no more says who does."""

NOT_LEADER = 6


def answer(leader_id: int, leader_epoch: int) -> memoryview:
    """What a node answers for partition 0 of topic t, which it leads no more."""
    hint = b"\x01\x00\x09" + struct.pack(">ii", leader_id, leader_epoch) + b"\x00"
    partition = struct.pack(">ihqqq", 0, NOT_LEADER, -1, -1, -1) + b"\x01\x00" + hint
    return memoryview(b"\x02\x02t\x02" + partition + b"\x00" + struct.pack(">i", 0) + b"\x00")


def test_hint_that_names_node_0_is_taken() -> None:
    """Ids of brokers begin at 0."""
    script = ScriptedSender()
    script.client.version = WITH_HINTS
    script.core.send(b"v")
    script.turn()

    script.client.requests[1].pop(0).on_end(Answered(answer(leader_id=0, leader_epoch=8), script.core.now))

    assert script.metadata.hints == {TopicPartition("t", 0): PartitionView(0, 8)}
