"""Harm done on purpose to what was read back, to see that the check would notice: `aioproducer demo --tamper`."""

from collections.abc import Sequence
from enum import StrEnum

from aioproducer.cli.demonstration.records import ReadRecord


class Harm(StrEnum):
    """What is done to the records."""

    MISSING = "missing"
    """One is left out."""

    DOUBLED = "doubled"
    """One is read twice."""

    SWAPPED = "swapped"
    """Two of one key change places."""

    ALTERED = "altered"
    """One byte of one value changes."""


class Tampering:
    """Does one harm, once, to the first stretch of one partition's records that has what it takes."""

    def __init__(self, harm: Harm | None) -> None:
        """None does nothing."""
        self._harm = harm

    def __call__(self, records: Sequence[ReadRecord]) -> Sequence[ReadRecord]:
        """Return the records as they are to be taken for read."""
        if self._harm is None or not records:
            return records
        harmed = _harmed(list(records), self._harm)
        if harmed != records:
            self._harm = None
        return harmed


def _harmed(records: list[ReadRecord], harm: Harm) -> Sequence[ReadRecord]:
    middle = len(records) // 2
    match harm:
        case Harm.MISSING:
            del records[middle]
        case Harm.DOUBLED:
            records.insert(middle, records[middle])
        case Harm.ALTERED:
            value = bytearray(records[middle].value or b"?")
            value[-1] ^= 1
            records[middle] = records[middle]._replace(value=bytes(value))
        case Harm.SWAPPED:
            _swap_two_of_one_key(records)
    return records


def _swap_two_of_one_key(records: list[ReadRecord]) -> None:
    """Swap the first two that share a key, if there are two."""
    place_of_key: dict[bytes, int] = {}
    for place, record in enumerate(records):
        if record.key in place_of_key:
            other = place_of_key[record.key]
            records[place], records[other] = records[other], record
            return
        if record.key is not None:
            place_of_key[record.key] = place
