"""Harm done on purpose is harm the check finds."""

import pytest

from aioproducer.cli.demonstration.delivery_check import check_delivery
from aioproducer.cli.demonstration.records import ReadRecord, SentRecord, headers_of
from aioproducer.cli.demonstration.tampering import Harm, Tampering

SENT = [SentRecord(b"N%d" % (row % 3), b"{}", headers_of(b"UA", row)) for row in range(12)]
READ = [ReadRecord(0, *record) for record in SENT]
FOUND_AS = {Harm.MISSING: "missing", Harm.DOUBLED: "doubled", Harm.SWAPPED: "disordered", Harm.ALTERED: "altered"}


@pytest.mark.parametrize("harm", list(Harm))
def test_harm_is_found_as_what_it_is(harm: Harm) -> None:
    """Once, and nothing else."""
    tampering = Tampering(harm)
    read = [*tampering(READ[:8]), *tampering(READ[8:])]

    report = check_delivery(SENT, read)

    counts = {kind: getattr(report, kind).count for kind in FOUND_AS.values()}
    assert counts == {kind: int(kind == FOUND_AS[harm]) for kind in FOUND_AS.values()}


def test_without_harm_records_pass_as_they_are() -> None:
    """Nothing is copied."""
    assert Tampering(None)(READ) is READ


def test_swapping_waits_for_two_of_one_key() -> None:
    """A stretch without two goes by unharmed."""
    tampering = Tampering(Harm.SWAPPED)

    assert tampering(READ[:3]) == READ[:3]
    assert tampering(READ[3:9]) != READ[3:9]
