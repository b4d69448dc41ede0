"""The interceptor of the simulation's user notices when it is not told of an end, or told twice."""

import contextlib
from random import Random

import pytest

from aioproducer.records import ProducerRecord, RecordMetadata, TopicPartition
from tests.programs.simulation.users_interceptor import UsersInterceptor

PLACE = TopicPartition("orders", 0)


def passed(interceptor: UsersInterceptor, *, records: int) -> int:
    """Show it so many records; returns how many it lets pass."""
    count = 0
    for _ in range(records):
        try:
            count += interceptor.on_send(ProducerRecord(PLACE.topic, b"value")) is not None
        except RuntimeError:
            count += 1  # it fails on purpose: the producer goes on with the record
    return count


def tell(interceptor: UsersInterceptor, *, ends: int) -> None:
    """Tell it of so many records, every other of which failed."""
    for number in range(ends):
        with contextlib.suppress(RuntimeError):
            if number % 2:
                interceptor.on_error(PLACE, ValueError("too old"), ())
            else:
                interceptor.on_acknowledgement(RecordMetadata(*PLACE, PLACE, number, 0, 0, 0), ())


@pytest.mark.parametrize("more, found", [(0, []), (1, ["ENDS_ONCE"]), (-1, ["ENDS_ONCE"])])
def test_each_record_that_passes_has_one_end(more: int, found: list[str]) -> None:
    interceptor, invariants = UsersInterceptor(Random(1)), []
    count = passed(interceptor, records=200)
    assert 0 < count < 200

    tell(interceptor, ends=count + more)
    interceptor.check(lambda invariant, _: invariants.append(invariant))

    assert invariants == found
