"""One partition: its leaders, copies and high watermark, and its log, which grows at its end and is cut at both."""

import pytest

from aioproducer.testing.fake_broker.log.partition_log import PartitionLog
from aioproducer.testing.fake_broker.log.record_batch import LoggedBatch, placed
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
    network.topic().config.allows_unclean_election = True
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


def log_of(*sizes: int, segment_ms: int = 10**9) -> PartitionLog:
    log = PartitionLog()
    for number, size in enumerate(sizes):
        data = memoryview(batch([b"v"] * size, timestamp=1000 * (number + 1)))
        base = log.end_offset
        log.append(
            LoggedBatch(
                base_offset=base,
                last_offset=base + size - 1,
                max_timestamp=1000 * (number + 1),
                leader_epoch=number,
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                last_sequence=-1,
                data=placed(data, base_offset=base, leader_epoch=number),
            ),
            segment_ms=segment_ms,
        )
    return log


def test_records_have_their_offsets() -> None:
    assert [record.offset for record in log_of(2, 1, 3).records()] == [0, 1, 2, 3, 4, 5]


def test_retention_drops_whole_batches_and_moves_the_start() -> None:
    log = log_of(2, 1, 3)

    log.drop_front(keep_bytes=0)

    assert (log.start_offset, [record.offset for record in log.records()]) == (3, [3, 4, 5])


def test_retention_keeps_what_it_must() -> None:
    """A batch goes only while what is left is enough without it."""
    log = log_of(1, 1, 1)
    one = log.size_bytes // 3

    log.drop_front(keep_bytes=2 * one)

    assert (log.start_offset, log.size_bytes) == (1, 2 * one)


def test_reading_goes_on_after_retention() -> None:
    """Reading works with many batches, most of them dropped."""
    log = log_of(*[1] * 3000)

    log.drop_front(keep_bytes=log.size_bytes // 10)

    assert len(log.read(log.start_offset, end_offset=3000, max_bytes=10**9)) == 3000 - log.start_offset


def test_read_batches_are_cut_off_at_the_limit() -> None:
    log = log_of(1, 1, 1)
    one = log.size_bytes // 3

    sizes = [
        [len(data) for data in log.read(0, end_offset=3, max_bytes=most, at_least_one=first)]
        for most, first in ((2 * one, True), (2 * one - 5, True), (5, True), (5, False), (0, False))
    ]

    assert sizes == [[one, one], [one, one - 5], [one], [], []]


def test_nothing_is_read_past_the_end_of_a_segment() -> None:
    """A batch more than `segment.ms` later than the first of a segment begins another."""
    log = log_of(*[1] * 5, segment_ms=1500)

    assert [len(log.read(offset, end_offset=5, max_bytes=10**9)) for offset in range(5)] == [2, 1, 2, 1, 1]


def test_segments_are_cut_off_with_their_batches() -> None:
    log = log_of(*[1] * 5, segment_ms=1500)

    log.truncate(1)

    assert len(log.read(0, end_offset=5, max_bytes=10**9)) == 1


def test_deleting_moves_the_start_also_into_a_batch() -> None:
    log = log_of(2, 2, 2)

    log.drop_before(3)
    log.drop_before(1)

    assert (log.start_offset, [record.offset for record in log.records()]) == (3, [2, 3, 4, 5])


def test_truncation_cuts_at_a_batch_boundary() -> None:
    log = log_of(2, 2, 2)

    cut = log.truncate(3)

    assert (cut, log.end_offset) == (True, 2)


def test_truncation_at_the_end_cuts_nothing() -> None:
    assert log_of(2).truncate(2) is False


def test_time_finds_the_first_record_at_or_after_it() -> None:
    log = log_of(2, 2)

    found = [log.find_time(1500, end_offset=4), log.find_time(2001, end_offset=4), log.find_time(1500, end_offset=2)]

    assert [record and record.offset for record in found] == [2, None, None]


def test_epoch_ends_where_the_next_begins() -> None:
    log = log_of(2, 2, 1)

    assert [log.end_of_epoch(epoch) for epoch in (-1, 0, 1, 7)] == [(-1, -1), (0, 2), (1, 4), (2, 5)]
