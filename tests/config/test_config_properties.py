"""Options as a property file has them, which is read as java.util.Properties reads it; errors say where they are."""

import json
import re
from pathlib import Path
from typing import TypedDict

import pytest

import aioproducer
from aioproducer import ConfigurationError, ConfigurationTypeError, ProducerConfig, RoundRobinPartitioner
from aioproducer.config._option_names import kafka_name
from aioproducer.config._properties_file import read_properties
from aioproducer.config._variables import NO_OPTIONS
from aioproducer.config.producer_config import option_kinds
from aioproducer.java_serializers import LongSerializer
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


class Sample(TypedDict):
    content: str
    properties: dict[str, str] | None


GOLDEN: list[Sample] = json.loads((Path(__file__).parents[1] / "protocol" / "golden" / "properties.json").read_text())
"""Made by Java; see make_properties.jsh beside it."""


@pytest.mark.parametrize("sample", GOLDEN, ids=lambda sample: repr(bytes.fromhex(sample["content"]))[:50])
def test_file_is_read_as_java_reads_it(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_bytes(bytes.fromhex(sample["content"]))

    if sample["properties"] is None:
        with pytest.raises(ConfigurationError, match=r"producer.properties, line 2: \\u must be followed by four"):
            read_properties(path)
    else:
        assert {name: found.value for name, found in read_properties(path).items()} == sample["properties"]


@pytest.mark.parametrize(
    "content",
    [
        "client.id=café".encode(),
        "client.id=café".encode("latin-1"),
        b"client.id=caf\\u00e9",
        "\ufeffclient.id=café".encode(),
    ],
)
def test_text_beyond_ascii_is_utf8_or_latin1(content: bytes, tmp_path: Path) -> None:
    """Java takes ISO-8859-1 alone; a byte order mark is skipped."""
    path = tmp_path / "producer.properties"
    path.write_bytes(content)

    assert read_properties(path)["client.id"].value == "café"


def test_file_of_a_java_program_is_taken(tmp_path: Path) -> None:
    """Kafka's config/producer.properties, with other settings of Java programs."""
    path = tmp_path / "producer.properties"
    path.write_text(
        "# Licensed to ...\n\nbootstrap.servers = a:1,\\\n    b:2\ncompression.type: zstd\nlinger.ms 20\n"
        "key.serializer=org.apache.kafka.common.serialization.LongSerializer\n"
        "value.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner\n"
        "enable.metrics.push=false\ninterceptor.classes=\nmetric.reporters=\nsecurity.protocol=PLAINTEXT\n"
    )

    config = ProducerConfig.from_properties_file(path)

    assert config.bootstrap == (("a", 1), ("b", 2))
    assert (config.compression_type, config.linger_ms, config.interceptors) == ("zstd", 20, ())
    assert isinstance(config.key_serializer, LongSerializer)
    assert isinstance(config.value_serializer, StringSerializer)
    assert isinstance(config.partitioner, RoundRobinPartitioner)
    assert ProducerConfig.from_properties_file(str(path)).bootstrap == config.bootstrap


@pytest.mark.parametrize(
    "text, message",
    [
        ("linger.ms=x", "line 2: linger_ms must be a whole number, not 'x'"),
        ("\\\n\nlinger.ms=\\\n-5", "line 4: linger_ms must be between 0 and"),
        ("linger.ms=x\nlinger.ms=y", "line 3: linger_ms must be a whole number, not 'y'"),
        ("message.timeout.ms=5", "line 2: there is no option 'message.timeout.ms'; use 'delivery.timeout.ms'"),
        ("partitioner.class=com.example.Mine", "line 2: partitioner='com.example.Mine': a class name cannot be loaded"),
        ("acks=1\nenable.idempotence=true", 'line 2: enable_idempotence=True needs acks="all"'),
        ("delivery.timeout.ms=5", "line 2: delivery_timeout_ms must be at least linger_ms + request_timeout_ms"),
        ("bootstrap.servers=h", "line 2: bootstrap_servers: 'h' is not host:port"),
        ("linger.ms=1\nlinger_ms=1", "line 3: linger_ms is given twice"),
    ],
)
def test_refusal_names_file_line_and_option(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text(f"bootstrap.servers=h:1\n{text}\n")

    with pytest.raises(ConfigurationError, match=f"^{re.escape(f'{path}, {message}')}") as caught:
        ProducerConfig.from_properties_file(path)

    assert caught.value.option is not None


def test_refusal_of_what_is_not_in_the_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text("acks=1\n")

    with pytest.raises(ConfigurationTypeError, match=f"^{re.escape(str(path))}: bootstrap.servers is missing"):
        ProducerConfig.from_properties_file(path)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.truststore.password",
        "ssl.secret",
        "secret",
    ],
)
@pytest.mark.parametrize("value", ["hunter2", "hunter2\\u12"])
def test_secrets_are_not_in_errors(name: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text(f"bootstrap.servers=h:1\n{name}={value}\n")

    with pytest.raises(ConfigurationError, match="line 2") as caught:
        ProducerConfig.from_properties_file(path)

    seen: BaseException | None = caught.value
    while seen is not None:
        assert "hunter2" not in str(seen)
        seen = seen.__cause__


def test_file_that_is_not_there_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ProducerConfig.from_properties_file(tmp_path / "none.properties")


def test_variables_that_are_no_options_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOPRODUCER_BOOTSTRAP_SERVERS", "a:1")
    for name in NO_OPTIONS:
        monkeypatch.setenv(name, "postgresql://u:pw@h/db")

    assert ProducerConfig.from_environment().given == {}


def test_variables_that_are_read_are_known() -> None:
    root = Path(aioproducer.__file__).parent
    sources = [root.parent / "setup.py", *root.rglob("*.py")]
    read = {name for path in sources for name in re.findall(r'"(AIOPRODUCER_[A-Z_]+[A-Z])"', path.read_text("utf-8"))}
    options = {f"AIOPRODUCER_{name.upper()}" for name in ("bootstrap_servers", *option_kinds())}

    assert read - options == NO_OPTIONS


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_file_in_utf_16_is_refused_as_such(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "client.properties"
    mark = "" if encoding == "utf-16" else "\ufeff"
    path.write_bytes(f"{mark}bootstrap.servers=h:1\nsasl.password=canary\n".encode(encoding))
    with pytest.raises(ConfigurationError, match=r"client\.properties is UTF-16, and must be UTF-8") as caught:
        ProducerConfig.from_properties_file(path)

    assert "canary" not in f"{caught.value} {caught.value!r}"
