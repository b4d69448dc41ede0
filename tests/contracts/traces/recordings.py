"""Traces with what real brokers have answered, in one compressed file beside this one.

A line is a trace: its seed and kind, its requests in symbols, and for each release the answers, `null` where the same
as the first release's. So what is compared does not change when the generator does.
"""

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.contracts.traces.steps import Step
from tests.kafka_releases import RELEASES

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
