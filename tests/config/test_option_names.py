"""Option names of Kafka and of other clients: known here, accepted without effect, or refused with a hint."""

import re
from pathlib import Path

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.config._option_names import (
    ALIASES,
    PREFIXES,
    REASONS,
    REPLACEMENTS,
    WITHOUT_EFFECT,
    python_name,
    reason_to_ignore,
)
from aioproducer.config.producer_config import option_kinds
from aioproducer.errors import ConfigurationError, ConfigurationTypeError

LISTS = Path(__file__).parent / "option_names"
OPTIONS = {"bootstrap_servers", *option_kinds()}


def names_in(file: str) -> list[str]:
    return [line for line in (LISTS / file).read_text().splitlines() if not line.startswith("#")]


def refusal_of(name: str, value: object = "hunter2") -> str:
    """Message with which an option is refused; a property too, unless it is one of another client's alone."""
    with pytest.raises(ConfigurationTypeError) as caught:
        ProducerConfig(bootstrap_servers="h:1", **{name: value})  # type: ignore[arg-type]
    given = {"bootstrap.servers": "h:1", name: value}
    if reason_to_ignore(python_name(name)) is None:
        with pytest.raises(ConfigurationTypeError, match=re.escape(str(caught.value))):
            ProducerConfig.from_kafka_properties(given)
    else:
        assert name in ProducerConfig.from_kafka_properties(given).notes[0]
    return str(caught.value)


@pytest.mark.parametrize("file", sorted(path.name for path in LISTS.iterdir()))
def test_every_foreign_name_gets_a_hint(file: str) -> None:
    names = names_in(file)
    foreign = [name for name in names if python_name(name) not in OPTIONS]

    for name in foreign:
        message = refusal_of(name)
        replaced = re.match(r"there is no option [^;]*; use '?([a-z._0-9]+)", message)
        assert replaced is None or python_name(replaced[1]) in OPTIONS, message
        assert replaced or ": " in message, message
        assert "did you mean" not in message
        assert "hunter2" not in message
    assert len(names) > len(foreign) or "consumer" in file or "confluent" in file


@pytest.mark.parametrize(
    "name, hint",
    [
        ("message.timeout.ms", "use 'delivery.timeout.ms'"),
        ("message_timeout_ms", "use 'delivery_timeout_ms'"),
        ("metadata.broker.list", "use 'bootstrap.servers'"),
        ("request.required.acks", "use 'acks'"),
        ("message.max.bytes", "use 'max.request.size'"),
        ("queue.buffering.max.ms", "use 'linger.ms'"),
        ("queue.buffering.max.kbytes", "use 'buffer.memory', in bytes"),
        ("max_batch_size", "use 'batch_size'"),
        ("dr_cb", "outcomes are awaited, or given to the on_delivery of each call"),
        ("group.id", "it is an option of consumers"),
    ],
)
def test_foreign_name_is_refused_with_the_option_here(name: str, hint: str) -> None:
    assert hint in refusal_of(name)


def test_tables_name_options_that_exist() -> None:
    """A renamed option must be renamed in hints, too."""
    assert {option for option, _ in REPLACEMENTS.values()} <= OPTIONS
    assert set(ALIASES.values()) <= OPTIONS
    assert not set(REPLACEMENTS) & OPTIONS


def test_reasons_name_options_that_exist() -> None:
    """A reason says what to use instead, and does not describe how this client works, which changes."""
    elsewhere = {"client_id", "client_secret", "on_delivery", "use_schemas"}  # arguments of calls, and a page
    words = {
        word for reason in {*REASONS.values(), *PREFIXES.values()} for word in re.findall(r"[a-z]+(?:_[a-z]+)+", reason)
    }

    assert words - elsewhere <= OPTIONS
    assert "address_map" in words


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_property_for_a_default_is_accepted(name: str) -> None:
    dotted, value = name.replace("_", "."), WITHOUT_EFFECT[name]
    plain = ProducerConfig(bootstrap_servers="h:1")

    assert ProducerConfig.from_kafka_properties({"bootstrap.servers": "h:1", dotted: value}) == plain
    assert ProducerConfig.from_kafka_properties({"bootstrap.servers": "h:1", dotted: f" {value.upper()} "}) == plain
    assert ProducerConfig(bootstrap_servers="h:1", **{name: value}) == plain  # type: ignore[arg-type]
    assert f"only {value!r} is accepted" in refusal_of(dotted)


@pytest.mark.parametrize(
    "name, value",
    [
        ("metadata_cluster_check_enable", False),
        ("metric_reporters", []),
        ("metric_reporters", None),
    ],
)
def test_python_value_for_a_default_is_accepted(name: str, value: object) -> None:
    """kafka-python's users write it that way."""
    plain = ProducerConfig(bootstrap_servers="h:1")

    assert ProducerConfig(bootstrap_servers="h:1", **{name: value}) == plain  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [True, None, 1, ["false"], b"false", {}], ids=repr)
def test_python_value_that_asks_for_something_else_is_refused(value: object) -> None:
    assert "nothing here corresponds to it" in refusal_of("metadata_cluster_check_enable", value)


@pytest.mark.parametrize(
    "codec, hint",
    [
        ("zstd", "use compression_zstd_level, -131072 to 22"),
        ("gzip", "use compression_gzip_level, -1 or 1 to 9"),
        ("lz4", "use compression_lz4_level, 1 to 17"),
        ("snappy", "use compression_gzip_level, -1 or 1 to 9; compression_lz4_level, 1 to 17; compression_zstd_level"),
        (5, "use compression_gzip_level, -1 or 1 to 9; compression_lz4_level, 1 to 17; compression_zstd_level"),
    ],
)
@pytest.mark.parametrize("type_name", ["compression_type", "compression.type"])
def test_compression_level_names_the_codecs_own(type_name: str, codec: object, hint: str) -> None:
    """One option for all codecs exists in librdkafka alone."""
    with pytest.raises(ConfigurationTypeError, match=re.escape(hint)) as caught:
        ProducerConfig(bootstrap_servers="h:1", **{type_name: codec, "compression_level": 3})  # type: ignore[arg-type]

    named = re.findall(r"compression_\w+_level", str(caught.value))
    assert named
    assert set(named) <= OPTIONS


@pytest.mark.parametrize(
    "option, ranged", [("gzip", "-1 or 1 to 9"), ("lz4", "1 to 17"), ("zstd", "-131072 to 22")], ids=lambda text: text
)
def test_hint_of_compression_level_has_the_options_own_range(option: str, ranged: str) -> None:
    assert option_kinds()[f"compression_{option}_level"].allowed.replace(",", "") == ranged


def test_kafkas_name_of_an_option_with_another_name_is_accepted() -> None:
    """`partitioner.class` is `partitioner`, and giving both is an error."""
    with pytest.raises(
        ConfigurationError, match=r"partitioner is given twice, as 'partitioner\.class' and 'partitioner'"
    ):
        ProducerConfig.from_kafka_properties({"bootstrap.servers": "h:1", "partitioner.class": "", "partitioner": ""})
