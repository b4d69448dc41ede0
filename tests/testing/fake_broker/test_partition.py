"""Leaders, copies and the high watermark of one partition."""

import pytest

from tests.testing.model_network import ModelNetwork, batch


def test_leader_dies_and_the_next_in_sync_leads() -> None:
    network = ModelNetwork(3)

    network.model.kill(1, network.now)

    partition = network.partition()
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, [2, 3])


def test_last_in_sync_replica_is_waited_for() -> None:
    network = ModelNetwork(2)
    network.model.kill(2, network.now)
    network.client().produce("t", batch())
    network.model.kill(1, network.now)
    network.model.restart(2, network.now)
    leaderless = network.partition().leader

    network.model.restart(1, network.now)

    partition = network.partition()
    assert (leaderless, partition.leader, partition.log.end_offset, sorted(partition.isr)) == (-1, 1, 1, [1, 2])


def test_unclean_election_takes_anybody() -> None:
    """`unclean.leader.election.enable`: records are lost rather than time."""
    network = ModelNetwork(2)
    topic = network.model.topics.named("t")
    assert topic is not None
    topic.config.allows_unclean_election = True
    network.model.hold_replication(2, network.now, held=True)
    network.client().produce("t", batch(), acks=1)
    network.advance(31)

    network.model.kill(1, network.now)

    assert (network.partition().leader, network.partition().log.end_offset) == (2, 0)


def test_straggler_leaves_the_isr_and_comes_back() -> None:
    network = ModelNetwork(2)
    network.model.hold_replication(2, network.now, held=True)
    network.client().produce("t", batch(), acks=1)
    waiting = network.partition().high_watermark

    network.advance(30)
    alone = (list(network.partition().isr), network.partition().high_watermark)
    network.model.hold_replication(2, network.now, held=False)

    assert (waiting, alone, network.partition().isr) == (0, ([1], 1), [1, 2])


def test_death_is_noticed_later() -> None:
    network = ModelNetwork(2, failover_delay_s=2.0)
    network.model.kill(1, network.now)
    before = network.partition().leader

    network.advance(2)

    assert (before, network.partition().leader) == (1, 2)


def test_returning_before_it_was_noticed_still_moves_the_leader() -> None:
    """A broker that comes back is a new one to the controller."""
    network = ModelNetwork(2, failover_delay_s=2.0)
    network.model.kill(1, network.now)

    network.model.restart(1, network.now)
    network.advance(5)

    assert (network.partition().leader, network.partition().leader_epoch, network.partition().isr) == (2, 1, [2, 1])


def test_leader_moves_only_to_a_live_member_of_the_isr() -> None:
    """Any other broker would lose records."""
    network = ModelNetwork(2)
    network.model.kill(2, network.now)

    with pytest.raises(ValueError, match="node 2 is not a live member"):
        network.partition().move_leader(2, network.now)
