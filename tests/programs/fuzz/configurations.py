"""Random configurations: usually legal, often at an edge, sometimes of a wrong type."""

import math
from typing import Protocol, cast

from hypothesis import strategies as st

from aioproducer.config._option_types import Acks, BoolOption, EnumOption, GzipLevel, IntOption, OptionKind
from aioproducer.config.producer_config import option_kinds
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import BytesSerializer

WORKABLE: dict[str, tuple[int, int]] = {
    "linger_ms": (0, 2_000),
    "batch_size": (0, 300_000),
    "max_request_size": (2_000, 2_000_000),
    "buffer_memory": (65_536, 33_554_432),
    "max_waiting_records": (100, 100_000),
    "max_waiting_bytes": (100_000, 1_000_000),
    "max_block_ms": (20_000, 2**40),
    "delivery_timeout_ms": (20_000, 2**31 - 1),
    "request_timeout_ms": (500, 15_000),
    "close_timeout_ms": (20_000, 2**40),
    "exit_flush_timeout_ms": (0, 2**40),
    "retry_backoff_ms": (0, 1_000),
    "retry_backoff_max_ms": (0, 2_000),
    "reconnect_backoff_ms": (1, 1_000),
    "reconnect_backoff_max_ms": (1, 2_000),
    "socket_connection_setup_timeout_ms": (100, 2**40),
    "socket_connection_setup_timeout_max_ms": (100, 2**40),
    "connections_max_idle_ms": (100, 2**40),
    "metadata_max_age_ms": (50, 2**40),
    "metadata_recovery_rebootstrap_trigger_ms": (5_000, 2**40),
    "retries": (0, 2**31 - 1),
}
"""Ranges in which every record of the smoke test must be acknowledged: a cluster that answers within milliseconds."""

NOT_HERE = {"security_protocol", "transactional_id"}

FEW: dict[type, list[object]] = {
    GzipLevel: [-1, 1, 5, 9],
    BoolOption: [True, False],
    Acks: ["all", -1, "-1", 0, 1, "1"],
}

WRONG = st.sampled_from(["5", b"5", 1.5, math.nan, math.inf, None, (), {}, [1], True, -1, 2**63, -(2**70), object()])


class _Ranged(Protocol):
    minimum: int
    maximum: int


@st.composite
def whole(draw: st.DrawFn, name: str, kind: IntOption) -> int:
    """A number in the range in which things work, one time in ten at the very edges of what is legal."""
    ranged = cast("_Ranged", kind)
    if draw(st.integers(0, 9)) == 9:  # shrinks towards the usual
        return draw(st.sampled_from([ranged.minimum, ranged.minimum + 1, ranged.maximum, ranged.maximum - 1]))
    low, high = WORKABLE.get(name, (ranged.minimum, ranged.maximum))
    return draw(st.integers(low, high))


def legal(name: str, kind: OptionKind) -> st.SearchStrategy[object]:
    match kind:
        case IntOption():
            return whole(name, kind)
        case EnumOption():
            return st.sampled_from(kind.words)
        case GzipLevel() | BoolOption() | Acks():
            return st.sampled_from(FEW[type(kind)])
        case _:
            return _plugins(name)


def _plugins(name: str) -> st.SearchStrategy[object]:
    if name.endswith("_serializer"):
        return st.sampled_from([None, BytesSerializer(), bytes])
    if name == "partitioner":
        return st.sampled_from([None, RoundRobinPartitioner()])
    if name == "client_id":
        return st.sampled_from(["", "me", "ärger", "a" * 300])
    return st.sampled_from([None, (), []])


def wrong(kind: OptionKind) -> st.SearchStrategy[object]:
    """Values past the edge, or of a wrong type."""
    if not isinstance(kind, IntOption):
        return WRONG
    ranged = cast("_Ranged", kind)
    return st.one_of(WRONG, st.sampled_from([ranged.minimum - 1, ranged.maximum + 1]))


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, object]:
    """A few options each, by name; in one of four, one of them is wrong."""
    kinds = {name: kind for name, kind in option_kinds().items() if name not in NOT_HERE}
    chosen = draw(st.lists(st.sampled_from(list(kinds)), unique=True, max_size=12))
    options = {name: draw(legal(name, kinds[name])) for name in chosen}
    if chosen and draw(st.integers(0, 3)) == 3:  # as above
        name = draw(st.sampled_from(chosen))
        options[name] = draw(wrong(kinds[name]))
    return options


def is_workable(options: dict[str, object]) -> bool:
    """Whether each number is in the range in which every record must be acknowledged."""
    return all(
        low <= value <= high
        for name, (low, high) in WORKABLE.items()
        if isinstance(value := options.get(name, low), int)
    )
