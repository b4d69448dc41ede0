"""Traces: what kinds there are, and how a seed becomes one."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.contracts.traces import asking_kinds, produce_kinds, transaction_kinds
from tests.contracts.traces.steps import Step
from tests.contracts.traces.writing import TraceWriter

KINDS: Mapping[str, Callable[[TraceWriter], None]] = {
    "sequences": produce_kinds.sequences,
    "odd batches": produce_kinds.odd_batches,
    "codecs": produce_kinds.codecs,
    "times": produce_kinds.times,
    "sizes": produce_kinds.sizes,
    "several": produce_kinds.several,
    "offsets": asking_kinds.offsets,
    "reading": asking_kinds.reading,
    "topics made": asking_kinds.topics_made,
    "metadata": asking_kinds.metadata,
    "greetings": asking_kinds.greetings,
    "pipelined": asking_kinds.pipelined,
    "transactions v1": transaction_kinds.transactions_v1,
    "transactions v2": transaction_kinds.transactions_v2,
    "transactional offsets": transaction_kinds.transactional_offsets,
}
"""By name; a seed takes them in turn."""


class Trace(NamedTuple):
    seed: int
    kind: str
    steps: list[Step]


def trace_of(seed: int) -> Trace:
    kind = list(KINDS)[seed % len(KINDS)]
    writer = TraceWriter(seed)
    KINDS[kind](writer)
    return Trace(seed, kind, writer.steps)
