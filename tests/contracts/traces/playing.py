"""Plays a trace to the model or to a real broker; the answers are as they would be read from a file."""

import json
from collections.abc import Sequence

from tests.contracts.traces.brokers import Broker, ModelBroker, SocketBroker
from tests.contracts.traces.player import Player
from tests.contracts.traces.steps import Step
from tests.kafka_releases import profile_of


def answers_of_model(steps: Sequence[Step], release: str) -> list[object]:
    """Return the model's responses, as that release."""
    return _answers(ModelBroker(profile_of(release)), steps, release, prefix="t-")


def answers_of_real(steps: Sequence[Step], release: str, *, bootstrap_servers: str, prefix: str) -> list[object]:
    """Return the real broker's responses; `prefix` is of topics that it does not have yet."""
    return _answers(SocketBroker(bootstrap_servers), steps, release, prefix=prefix)


def _answers(broker: Broker, steps: Sequence[Step], release: str, *, prefix: str) -> list[object]:
    answers: list[object] = json.loads(json.dumps(Player(broker, profile_of(release), prefix=prefix).play(steps)))
    return answers
