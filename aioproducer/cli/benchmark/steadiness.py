"""When a run counts: the raw socket's rows say how much else the machine did meanwhile. Pure.

The raw socket does the same work in every round. If its figure moves, the machine moved, and so did all other
figures; then the whole run is repeated, a bounded number of times, and the calmest one is reported.
"""

from collections.abc import Sequence

from aioproducer.cli.benchmark.figures import Row, relative_range

RAW_SOCKET = "raw socket"

MAX_MOVEMENT = 0.30
"""The most the raw socket's figure may differ between rounds, relative to its median."""

MAX_ATTEMPTS = 3

WATCHED = ("records_per_s", "p50_us")
"""Figures of the raw socket that are compared between rounds."""


def movement(rows: Sequence[Row]) -> float:
    """By how much the raw socket's figures differ between rounds, the worst of its rows; 0 without such a row."""
    moved = [
        relative_range(row.rounds[figure])
        for row in rows
        if row.client == RAW_SOCKET
        for figure in WATCHED
        if figure in row.rounds
    ]
    return max(moved, default=0.0)


def is_steady(rows: Sequence[Row]) -> bool:
    """Whether a run counts."""
    return movement(rows) <= MAX_MOVEMENT


def calmest(attempts: Sequence[Sequence[Row]]) -> Sequence[Row]:
    """The attempt whose raw socket moved least."""
    return min(attempts, key=movement)
