"""aiokafka's source is the truth: same verbs, same parameters, same defaults."""

import inspect
import json

import aiokafka
import pytest
from aiokafka.partitioner import DefaultPartitioner

from aioproducer import ConfigurationError
from aioproducer.compat import AIOKafkaProducer

VERBS = [
    name
    for name, value in vars(aiokafka.AIOKafkaProducer).items()
    if callable(value) and (not name.startswith("_") or name in {"__init__", "__aenter__", "__aexit__"})
]


def parameters(owner: type, verb: str) -> list[tuple[str, object, object]]:
    """Return name, kind and default of each parameter; aiokafka has no annotations."""
    found = inspect.signature(getattr(owner, verb)).parameters.values()
    return [(one.name, one.kind, _comparable(one.default)) for one in found]


def _comparable(default: object) -> object:
    if isinstance(default, DefaultPartitioner):
        return DefaultPartitioner
    return object if type(default) is object else default


@pytest.mark.parametrize("verb", VERBS)
def test_signature_is_aiokafkas(verb: str) -> None:
    """Programs can keep passing every argument, by position or by name."""
    assert parameters(AIOKafkaProducer, verb) == parameters(aiokafka.AIOKafkaProducer, verb)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "__init__"])
def test_what_is_awaited_stays_awaited(verb: str) -> None:
    ours, theirs = getattr(AIOKafkaProducer, verb), getattr(aiokafka.AIOKafkaProducer, verb)

    assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs)


def test_builder_takes_what_aiokafkas_takes() -> None:
    theirs = type(aiokafka.AIOKafkaProducer.create_batch).__name__
    builder = aiokafka.producer.message_accumulator.BatchBuilder
    ours = type(AIOKafkaProducer().create_batch())

    assert theirs == "function"
    assert list(inspect.signature(ours.append).parameters) == list(inspect.signature(builder.append).parameters)
    assert {"append", "close", "closed", "record_count", "size"} <= set(dir(ours))


async def test_aiokafkas_defaults_become_ours() -> None:
    """Defaults that differ from a `Producer`'s are passed on."""
    config = AIOKafkaProducer()._config  # noqa: SLF001  # what was made of the arguments

    assert config.bootstrap_servers == ("localhost:9092",)
    assert (config.acks, config.enable_idempotence, config.linger_ms, config.batch_size) == (1, False, 0, 16384)
    assert (config.request_timeout_ms, config.max_block_ms, config.delivery_timeout_ms) == (40_000, 40_000, 80_000)
    assert config.close_timeout_ms == config.delivery_timeout_ms
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (100, 100)
    assert (config.compression_type, config.partitioner) == ("none", None)


def test_idempotence_brings_acks_of_all() -> None:
    assert AIOKafkaProducer(enable_idempotence=True)._config.acks == -1  # noqa: SLF001  # as above


@pytest.mark.parametrize(
    "arguments,expected",
    [
        ({"bootstrap_servers": "a,b:9093"}, ("a:9092", "b:9093")),
        ({"bootstrap_servers": ["a", "[::1]:9093"]}, ("a:9092", "[::1]:9093")),
    ],
)
def test_port_may_be_left_out(arguments: dict[str, object], expected: tuple[str, ...]) -> None:
    producer = AIOKafkaProducer(**arguments)  # type: ignore[arg-type]

    assert producer._config.bootstrap_servers == expected  # noqa: SLF001  # as above


@pytest.mark.parametrize(
    "arguments,option",
    [
        ({"security_protocol": "SASL_SSL", "ssl_context": object()}, "ssl_context"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl_username"),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "GSSAPI",
                "sasl_kerberos_domain_name": "brokers.example.com",
            },
            "sasl_kerberos_domain_name",
        ),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}, "sasl_token_provider"),
        ({"security_protocol": "SSL", "ssl_context": None}, "ssl_context"),
        ({"transactional_id": ""}, "transactional_id"),
        ({"transactional_id": 5}, "transactional_id"),
        ({"acks": 122}, "acks"),
        ({"acks": 1, "enable_idempotence": True}, "acks"),
        ({"compression_type": "my_custom"}, "compression_type"),
        ({"linger_ms": -1}, "linger_ms"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(arguments: dict[str, object], option: str) -> None:
    """The error is a `ValueError` that names the option, so no program sends unencrypted by mistake."""
    with pytest.raises(ValueError, match=option) as refused:
        AIOKafkaProducer(**arguments)  # type: ignore[arg-type]

    assert isinstance(refused.value, ConfigurationError)
    assert refused.value.option == option


def test_unknown_protocol_is_refused_as_in_aiokafka() -> None:
    with pytest.raises(ValueError, match="`security_protocol` should be SSL or PLAINTEXT"):
        AIOKafkaProducer(security_protocol="PLAINTXT")


@pytest.mark.parametrize("name", ["loop", "api_version"])
def test_deprecated_argument_warns(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"The `{name}` parameter has been deprecated since 0"):
        AIOKafkaProducer(**{name: json})  # type: ignore[arg-type]


def test_client_has_what_tracing_reads_and_no_more() -> None:
    """OpenTelemetry reads two attributes; the error for any other names the alternative."""
    client = AIOKafkaProducer(bootstrap_servers=["a", "b:9093"], client_id="orders").client

    assert (client._bootstrap_servers, client._client_id) == (["a:9092", "b:9093"], "orders")  # noqa: SLF001  # its names
    with pytest.raises(AttributeError, match="partitions_for"):
        _ = client.cluster
