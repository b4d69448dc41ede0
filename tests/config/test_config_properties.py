"""Options as a property file has them."""

import re

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.config._kafka_properties import kafka_name
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.serializers import BytesSerializer, StringSerializer


def test_kafka_properties_are_read() -> None:
    result = ProducerConfig.from_kafka_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "linger.ms": " 20 ",
            "acks": "1",
            "enable.idempotence": "FALSE",
            "compression.type": "zstd",
            "compression.zstd.level": "-3",
            "client_id": "mine",
            "batch_size": 5,
            "security.protocol": "plaintext",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
        }
    )

    assert result.bootstrap == (("a", 1), ("b", 2))
    assert (result.linger_ms, result.acks, result.enable_idempotence, result.batch_size) == (20, 1, False, 5)
    assert (result.compression_type, result.compression_zstd_level, result.client_id) == ("zstd", -3, "mine")
    assert isinstance(result.key_serializer, StringSerializer)
    assert isinstance(result.value_serializer, BytesSerializer)


@pytest.mark.parametrize(
    "properties, message",
    [
        ({}, "bootstrap.servers is missing"),
        ({"linger.ms": "5ms"}, "linger_ms must be a whole number, not '5ms'"),
        ({"linger.ms": "5.0"}, "linger_ms must be a whole number, not '5.0'"),
        ({"linger.ms": "1_000"}, "linger_ms must be a whole number, not '1_000'"),
        ({"linger.ms": "-5"}, "linger_ms must be between 0 and"),
        ({"linger.ms": "9" * 5000}, "linger_ms must be between 0 and 9223372036854775807, not '999"),
        ({"linger.ms": "-" + "9" * 5000}, "linger_ms must be between 0 and"),
        ({"compression.gzip.level": "1" * 5000}, "compression_gzip_level must be -1, or 1 to 9, not '111"),
        ({"max.waiting.bytes": "1" * 5000}, "max_waiting_bytes must be between 0 and"),
        ({"linger.ms": "1e400"}, "linger_ms must be a whole number, not '1e400'"),
        ({"linger.ms": "inf"}, "linger_ms must be a whole number, not 'inf'"),
        ({"linger.ms": "[5]"}, "linger_ms must be a whole number, not '[5]'"),
        ({"linger.ms": [5]}, "linger_ms must be an int, not list ([5])"),
        ({"linger.ms": ""}, "linger_ms must be a whole number, not ''"),
        ({"buffer.memory": "1000"}, "buffer_memory must be between 1024 and"),
        ({"compression.gzip.level": "x"}, "compression_gzip_level must be a whole number, not 'x'"),
        ({"enable.idempotence": "yes"}, "enable_idempotence must be true or false, not 'yes'"),
        ({"acks": "2"}, 'acks must be "all", -1, 1 or 0'),
        ({"linger.ms": "5", "linger_ms": "5"}, "linger_ms is given twice"),
        ({"value.serializer": "com.example.Avro"}, "'com.example.Avro': a class name cannot be loaded here"),
        ({"partitioner": "com.example.Mine"}, "a class name cannot be loaded here"),
        ({"lingerms": "5"}, "did you mean 'linger_ms'?"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:60],
)
def test_kafka_properties_are_refused(properties: dict[str, object], message: str) -> None:
    servers = {"bootstrap.servers": "h:1"} if properties else {}

    with pytest.raises(ConfigurationError, match=re.escape(message)):
        ProducerConfig.from_kafka_properties({**servers, **properties})


@pytest.mark.parametrize(
    "properties, message",
    [
        (None, "properties must be a mapping of names to values, not NoneType"),
        ("linger.ms=5", "properties must be a mapping of names to values, not str"),
        ({5: "x"}, "the name of an option must be a str, not int (5)"),
    ],
)
def test_invalid_properties_are_a_type_error(properties: object, message: str) -> None:
    with pytest.raises(ConfigurationTypeError, match=re.escape(message)):
        ProducerConfig.from_kafka_properties(properties)  # type: ignore[arg-type]


def test_number_with_thousands_of_leading_zeros_is_read() -> None:
    """Java reads it too; Python's int() has a limit of its own."""
    config = ProducerConfig.from_kafka_properties({"bootstrap.servers": "h:1", "linger.ms": "+" + "0" * 5000 + "7"})

    assert config.linger_ms == 7


def test_kafka_name_is_the_name_with_dots() -> None:
    assert kafka_name("max_in_flight_requests_per_connection") == "max.in.flight.requests.per.connection"


def test_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOPRODUCER_BOOTSTRAP_SERVERS", "a:1,b:2")
    monkeypatch.setenv("AIOPRODUCER_LINGER_MS", "20")
    monkeypatch.setenv("AIOPRODUCER_ENABLE_IDEMPOTENCE", "false")
    monkeypatch.setenv("AIOPRODUCER_OPTIMISE", "-O1")  # of the build
    monkeypatch.setenv("LINGER_MS", "30")
    monkeypatch.setenv("ORDERS_BOOTSTRAP_SERVERS", "c:3")

    result = ProducerConfig.from_environment()
    other = ProducerConfig.from_environment("ORDERS_")

    assert result.bootstrap == (("a", 1), ("b", 2))
    assert (result.linger_ms, result.enable_idempotence) == (20, False)
    assert (other.bootstrap, other.given) == ((("c", 3),), {})


@pytest.mark.parametrize(
    "variables, kind, message",
    [
        ({}, ConfigurationTypeError, "K_BOOTSTRAP_SERVERS: bootstrap.servers is missing"),
        ({"K_BOOTSTRAP_SERVERS": "a:x"}, ConfigurationError, "K_BOOTSTRAP_SERVERS: "),
        ({"K_BOOTSTRAP_SERVERS": "a:1", "K_LINGER_MS": "soon"}, ConfigurationError, "K_LINGER_MS: linger_ms"),
        ({"K_BOOTSTRAP_SERVERS": "a:1", "K_LINGER_MS": ""}, ConfigurationError, "K_LINGER_MS: linger_ms must be"),
        ({"K_BOOTSTRAP_SERVERS": "a:1", "K_LINGER": "5"}, ConfigurationTypeError, "K_LINGER: .* mean 'linger_ms'"),
    ],
)
def test_invalid_variable_is_named(  # noqa: PLR0917  # the parts of a row
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], kind: type[Exception], message: str
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)

    with pytest.raises(kind, match=message):
        ProducerConfig.from_environment("K_")


@pytest.mark.parametrize("prefix", ["", None, 5])
def test_invalid_prefix_is_refused(prefix: object) -> None:
    with pytest.raises(ConfigurationTypeError, match="prefix must be text"):
        ProducerConfig.from_environment(prefix)  # type: ignore[arg-type]
