"""The line of offsets that a transaction still has to commit."""

from aioproducer._transactions.identity import TransactionalIdentity
from aioproducer._transactions.open_transaction import PendingOffsets
from aioproducer._transactions.requests import OffsetsToSend, TransactionRequests
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


def offsets(offset: int, group: str = "readers", generation: int = -1) -> OffsetsToSend:
    """Of one partition."""
    given = {TopicPartition("orders", 0): OffsetAndMetadata(offset)}
    return OffsetsToSend(given, ConsumerGroupMetadata(group, generation))


def test_the_same_again_is_what_is_in_line() -> None:
    """Also when another group's came after it."""
    line = PendingOffsets()
    first = line.put(offsets(7))
    other = line.put(offsets(7, "others"))

    assert line.put(offsets(7)) is first
    assert line.put(offsets(7, "others")) is other
    assert line.first is first


def test_what_was_given_after_others_of_its_group_is_sent_after_them() -> None:
    """Joined to what is before them, it would be overwritten."""
    line = PendingOffsets()
    first, second = line.put(offsets(7)), line.put(offsets(8))
    third = line.put(offsets(7))

    assert len({id(each) for each in (first, second, third)}) == 3


def test_member_of_another_generation_says_something_else() -> None:
    """It may be refused where the other is not."""
    line = PendingOffsets()
    first = line.put(offsets(7, generation=1))

    assert line.put(offsets(7, generation=2)) is not first


def test_what_was_answered_is_in_line_no_more() -> None:
    """And stays so when the answer comes after the abort."""
    identity = TransactionalIdentity()
    identity.assign(77, 0)
    requests = TransactionRequests("billing-1", timeout_ms=60_000, identity=identity)
    line = PendingOffsets()
    first = line.put(offsets(7))
    line.forward(requests.add_offsets(first))
    assert (first.is_added, first.is_done, bool(line)) == (True, False, True)
    line.forward(requests.commit_offsets(first, is_v2=False))
    assert (first.is_done, bool(line)) == (True, False)

    late = line.put(offsets(7))
    line.clear()
    line.forward(requests.commit_offsets(late, is_v2=False))
    assert (late is first, late.is_done, bool(line)) == (False, True, False)
