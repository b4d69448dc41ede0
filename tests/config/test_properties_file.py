"""Property files are read as java.util.Properties reads them, and errors say where they are."""

import json
import re
from pathlib import Path
from typing import TypedDict

import pytest

from aioproducer import ConfigurationError, ConfigurationTypeError, ProducerConfig, RoundRobinPartitioner
from aioproducer.config._properties_file import read_properties
from aioproducer.java_serializers import LongSerializer
from aioproducer.serializers import StringSerializer


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
