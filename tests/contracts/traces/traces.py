"""Traces: what kinds there are, how a seed becomes one, and those that are recorded with what real brokers answered.

The recordings are a compressed file beside this one, a line for each trace: its seed and kind, its requests in symbols,
and for each release the answers, `null` where the same as the first release's. So what is compared does not change when
the generator does.
"""

import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.contracts.traces import asking_kinds, produce_kinds, transaction_kinds
from tests.contracts.traces.steps import Step
from tests.contracts.traces.writing import TraceWriter
from tests.kafka_releases import RELEASES

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


FIRST_RELEASE = next(iter(RELEASES))
FILE = Path(__file__).parent / "recorded.jsonl.xz"


class Recording(NamedTuple):
    seed: int
    kind: str
    steps: list[Step]
    answers: Mapping[str, Sequence[object]]


def write_recordings(recordings: Iterable[Recording]) -> None:
    lines = (json.dumps(_packed(recording), separators=(",", ":"), ensure_ascii=False) for recording in recordings)
    FILE.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))


@cache
def recordings() -> Sequence[Recording]:
    return list(_read())


def _read() -> Iterator[Recording]:
    for line in lzma.decompress(FILE.read_bytes()).decode().splitlines():
        packed = json.loads(line)
        first = packed["answers"][FIRST_RELEASE]
        answers = {
            release: [same if answer is None else answer for answer, same in zip(given, first, strict=True)]
            for release, given in packed["answers"].items()
        }
        yield Recording(packed["seed"], packed["kind"], packed["steps"], answers)


def _packed(recording: Recording) -> dict[str, object]:
    first = recording.answers[FIRST_RELEASE]
    packed = {
        release: [
            None if release != FIRST_RELEASE and answer == same else answer
            for answer, same in zip(given, first, strict=True)
        ]
        for release, given in recording.answers.items()
    }
    return {**recording._asdict(), "answers": packed}
