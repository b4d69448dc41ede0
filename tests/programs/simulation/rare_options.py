"""Options of few seeds: limits that are reached, batches so large that a thread compresses them, one more fault.

It is drawn apart from everything else, so that a plan that has none of it is what it would be without.
"""

import dataclasses
from collections.abc import Mapping
from random import Random

from tests.programs.simulation.families import Family

_RARELY = 0.2
_MEMORY_OF_A_PROBE = 5 / 8  # share of the buffer that the last record takes, to see whether there is room for it
_OVERHEAD = 400  # bytes that a record, its batch and its request have at most beside the value

_BULKY: Mapping[str, object] = {"batch_size": 131_072, "buffer_memory": 1_048_576}
_BULKY_VALUES = (4_000, 20_000)
_BULKY_RECORDS = 60
_CODECS = ("gzip", "lz4", "snappy", "zstd")


def bulky_family(family: Family, seed: int) -> Family:
    """The family, with few and long records in some seeds of those that have them."""
    if Random(f"bulky-{family.name}-{seed}").random() >= family.bulky:
        return family
    low, high = family.records
    records = (min(low, _BULKY_RECORDS), min(high, _BULKY_RECORDS))
    return dataclasses.replace(family, value_size=_BULKY_VALUES, records=records)


def with_rare_options(options: Mapping[str, object], family: Family, seed: int) -> dict[str, object]:
    """Add options that most seeds leave as they are by default."""
    chance = Random(f"rare-{family.name}-{seed}")
    bulky = _bulky_options(family, seed)
    buffer_memory = bulky.get("buffer_memory", options["buffer_memory"])
    assert isinstance(buffer_memory, int)
    small: Mapping[str, object] = {
        "connections_max_idle_ms": chance.choice((200, 2_000)),
        "metadata_max_idle_ms": 5_000,
        "max_request_size": _longest(family, buffer_memory) + _OVERHEAD,
        "retries": chance.choice((1, 2, 3)),
    }
    rare = {name: value for name, value in small.items() if chance.random() < _RARELY}
    buffers = {name: -1 for name in ("send_buffer_bytes", "receive_buffer_bytes") if chance.random() < _RARELY}
    if chance.random() < _RARELY:
        rare["partitioner_adaptive_partitioning_enable"] = False
    if chance.random() < _RARELY:
        rare["partitioner_availability_timeout_ms"] = chance.choice((1, 100))
    return {**options, **bulky, **rare, **buffers}


def rare_trouble(family: Family, seed: int) -> tuple[str, ...]:
    """One of the family's rare faults, in few seeds."""
    chance = Random(f"trouble-{family.name}-{seed}")
    return (chance.choice(family.rare),) if family.rare and chance.random() < _RARELY else ()


def _longest(family: Family, buffer_memory: int) -> int:
    """Return the longest value that is sent: a record of it must still fit."""
    has_probe = not family.closes_early and family.max_message_bytes is None
    return round(buffer_memory * _MEMORY_OF_A_PROBE) if has_probe else family.value_size[1]


def _bulky_options(family: Family, seed: int) -> dict[str, object]:
    """Return options that make the batches of long records so large that a thread compresses them."""
    if family.value_size != _BULKY_VALUES:
        return {}
    return {**_BULKY, "compression_type": Random(f"codec-{family.name}-{seed}").choice(_CODECS)}
