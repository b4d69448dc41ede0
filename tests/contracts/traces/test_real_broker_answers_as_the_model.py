"""Traces that were not recorded are answered alike by a live broker and by the model."""

import os
import secrets

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.contracts.traces.brokers import SocketBroker
from tests.contracts.traces.differences import differences
from tests.contracts.traces.player import answers_of_model, answers_of_real
from tests.contracts.traces.traces import KINDS, trace_of
from tests.contracts.traces.warm_up import warm_up
from tests.kafka_releases import RELEASES, fixture_of_release, profile_of

ROUNDS = 2

FIRST = int(os.environ.get("AIOPRODUCER_TRACES_FIRST", "1000000"))
"""The seed of the first trace; other ones find what these do not."""


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_real_broker_answers_as_the_model(release: str, request: pytest.FixtureRequest) -> None:
    """Two traces of every kind; the seeds are in the failure's text."""
    kafka: KafkaCluster = request.getfixturevalue(fixture_of_release(release))
    warm_up(SocketBroker(kafka.bootstrap_servers))
    found = []
    for seed in range(FIRST, FIRST + ROUNDS * len(KINDS)):
        steps = trace_of(seed).steps
        real = answers_of_real(
            steps, release, bootstrap_servers=kafka.bootstrap_servers, prefix=f"sample-{seed}-{secrets.token_hex(4)}-"
        )
        model = answers_of_model(steps, release)
        found += [f"seed {seed}, {each}" for each in differences(steps, profile_of(release), real=real, model=model)]

    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:5])
