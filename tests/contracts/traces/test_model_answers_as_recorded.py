"""The model answers every recorded trace as the real broker of that release did, field by field."""

from collections import Counter

import pytest

from tests.contracts.traces.differences import differences
from tests.contracts.traces.player import answers_of_model
from tests.contracts.traces.recordings import recordings
from tests.contracts.traces.traces import KINDS
from tests.kafka_releases import RELEASES, profile_of

TRACES_WANTED = 1000
SHOWN = 3


@pytest.mark.slow  # a thousand traces for each
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", KINDS)
def test_model_answers_as_the_real_broker_did(kind: str, release: str) -> None:
    found = []
    for recording in recordings():
        if recording.kind == kind:
            answers = answers_of_model(recording.steps, release)
            differing = differences(
                recording.steps, profile_of(release), real=recording.answers[release], model=answers
            )
            found += [f"seed {recording.seed}, {difference}" for difference in differing]

    assert not found, f"{len(found)} differences, the first:\n" + "\n".join(found[:SHOWN])


def test_there_are_enough_recordings_of_every_kind() -> None:
    """A thousand in all, about as many of each kind."""
    counts = Counter(recording.kind for recording in recordings())

    assert set(counts) == set(KINDS)
    assert counts.total() >= TRACES_WANTED
    assert min(counts.values()) >= TRACES_WANTED // len(KINDS)
