"""Names that each worker fills in for itself."""

import socket

import pytest

from aioproducer import ConfigurationError, ProducerConfig
from aioproducer.config.worker_names import fill_in


def name_of(template: str) -> str | None:
    return ProducerConfig(bootstrap_servers="h:1", transactional_id=template).transactional_id


def test_name_without_fields_is_as_it_stands() -> None:
    assert name_of("billing-1") == "billing-1"


def test_host_name_is_filled_in() -> None:
    assert name_of("billing-{hostname}") == f"billing-{socket.gethostname()}"


def test_environment_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER", "7")

    assert name_of("billing-{env.WORKER}-x") == "billing-7-x"


def test_doubled_braces_are_braces() -> None:
    assert name_of("{{billing}}") == "{billing}"


@pytest.mark.parametrize(
    "template, says",
    [
        ("a-{pid}", "another one after each start"),
        ("a-{uuid}", "another one after each start"),
        ("a-{partition}", "there is no field {partition}"),
        ("a-{}", "there is no field {}"),
        ("a-{env.NOT_SET_ANYWHERE}", "the environment has no 'NOT_SET_ANYWHERE'"),
        ("a-{", "for a brace write {{"),
        ("a-}", "for a brace write {{"),
    ],
)
def test_unknown_placeholder_is_an_error(template: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        fill_in("transactional_id", template)

    assert caught.value.option == "transactional_id"
    assert says in str(caught.value)
