"""A topic that has been unused for long still has partitions: all of its records queue behind those that wait."""

import pytest

from aioproducer._accumulator.wait_queues import still_unknown
from aioproducer._native.delivery import Delivery
from aioproducer.errors import BrokerError
from tests.fakes.core_parts import CoreParts


def appended(core: CoreParts, value: bytes) -> Delivery | None:
    """A record for partition 0, without waiting; None: it must wait."""
    return core.appender.append("t", value, None, 0, None, None, None)


def test_partitioned_record_queues_behind_an_unpartitioned_one() -> None:
    """The unpartitioned record may go to the same partition, so everything behind it waits, too."""
    core = CoreParts()
    chosen = core.wait_in_queue(b"1", partition=None, choose_partition=lambda: 0)
    given = core.wait_in_queue(b"2")
    refused = appended(core, b"3")
    core.wait_queues.withdraw(core.wait_in_queue(b"withdrawn", partition=None, choose_partition=lambda: 0))

    core.wait_queues.topic_known("t")

    assert refused is None
    assert [record.delivery._position for record in (chosen, given)] == [0, 1]
    assert appended(core, b"3") is not None


@pytest.mark.parametrize("is_late", [False, True], ids=["withdrawn", "too late"])
def test_record_that_leaves_delays_no_other(is_late: bool) -> None:  # noqa: FBT001  # parametrized
    core = CoreParts()
    record = core.wait_in_queue(b"gone", partition=None, choose_partition=lambda: 0)
    if is_late:
        core.pass_time(1_000)
    else:
        core.wait_queues.withdraw(record)

    assert not record.is_waiting
    assert appended(core, b"next") is not None


def test_partitioner_that_sends_is_waited_behind() -> None:
    """The partitioner's own record comes while earlier ones are still joining their partitions' queues."""
    core = CoreParts()
    sent = []

    def choose() -> int:
        sent.append(core.wait_in_queue(b"3"))
        return 0

    first = core.wait_in_queue(b"1", partition=None, choose_partition=choose)
    second = core.wait_in_queue(b"2", partition=None, choose_partition=lambda: 0)

    core.wait_queues.topic_known("t")

    assert [record.delivery._position for record in (first, second, *sent)] == [0, 1, 2]
    assert appended(core, b"4") is not None


@pytest.mark.parametrize("code, is_asked", [(3, True), (5, False)])
def test_error_of_an_unknown_topic_asks_whether_it_exists(code: int, *, is_asked: bool) -> None:
    """Brokers answer differently for a topic that is being created, or has no leader yet."""
    trouble = BrokerError.of(code, "what brokers answer", retriable=True)

    assert ("does the topic exist?" in str(still_unknown("t", "max_block_ms=1", trouble))) is is_asked
