"""Options of a read: each wrong one is refused on the driver, by its name and with what is allowed."""

import re

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._offsets import OffsetsChoice
from aioproducer.spark._options import SinkOptions, SourceOptions, connection_config, consumer_arguments

READ = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "orders,visits"}

WRONG = {
    "pattern": ({"subscribePattern": "o.*"}, "unknown option subscribepattern; did you mean subscribe"),
    "empty topic": ({"subscribe": "a,,b"}, "subscribe='a,,b': must be names of topics"),
    "word": ({"startingOffsets": "first"}, "startingOffsets='first': must be earliest, latest or JSON"),
    "offset": ({"startingOffsets": '{"orders": {"0": -3}}'}, "must be earliest, latest or JSON"),
    "no partitions": ({"startingOffsets": '{"orders": 3}'}, "must be earliest, latest or JSON"),
    "stranger": (
        {"startingOffsets": '{"other": {"0": 3}}'},
        "startingOffsets names topics that subscribe does not: other",
    ),
    "end at the earliest": ({"endingOffsets": "earliest"}, "endingOffsets must be latest or JSON"),
    "limit": ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many': must be a whole number"),
    "isolation": ({"isolation": "none"}, "isolation='none': must be read_committed or read_uncommitted"),
    "group": ({"kafka.group.id": "g"}, "offsetGroup=NAME commits"),
    "reset": ({"kafka.auto.offset.reset": "latest"}, "give startingOffsets"),
    "unknown kafka": ({"kafka.fetch.min": "1"}, "unknown option kafka.fetch.min; known are kafka.fetch.min.bytes"),
    "kafka type": ({"kafka.fetch.min.bytes": "few"}, "kafka.fetch.min.bytes='few': must be a whole number"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_option_is_named(case: str) -> None:
    """With what is allowed, or what was probably meant."""
    options, said = WRONG[case]
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        SourceOptions.parse({**READ, **options}, is_stream=True)


def test_topics_must_be_given() -> None:
    """There is no default."""
    with pytest.raises(ConfigurationError, match="subscribe is missing"):
        SourceOptions.parse({"kafka.bootstrap.servers": "b1:9092"}, is_stream=False)


def test_batch_that_would_read_nothing() -> None:
    """A stream may begin at the latest offsets, a batch may not."""
    with pytest.raises(ConfigurationError, match="startingOffsets=latest reads nothing in a batch"):
        SourceOptions.parse({**READ, "startingOffsets": "latest"}, is_stream=False)


@pytest.mark.parametrize(
    "is_stream, name, value",
    [(True, "endingOffsets", "latest"), (False, "maxOffsetsPerTrigger", "5"), (False, "offsetGroup", "g")],
)
def test_option_without_effect_is_refused(is_stream: bool, name: str, value: str) -> None:  # noqa: FBT001  # a parameter
    """A stream has no end, and a batch is read as a whole; when Spark asks for the columns, it does not say which."""
    with pytest.raises(ConfigurationError, match=f"{name} is for {'batch reads' if is_stream else 'streams'}"):
        SourceOptions.parse({**READ, name: value}, is_stream=is_stream)
    for other in (not is_stream, None):
        SourceOptions.parse({**READ, name: value}, is_stream=other)


@pytest.mark.parametrize("is_stream, word", [(True, "latest"), (False, "earliest")])
def test_begins_as_sparks_own(is_stream: bool, word: str) -> None:  # noqa: FBT001  # a parameter
    """Where nothing is said."""
    assert SourceOptions.parse(READ, is_stream=is_stream).starting_offsets.word == word


def test_offsets_in_json() -> None:
    """Topics, partitions and offsets, with two numbers that have a meaning."""
    options = SourceOptions.parse({**READ, "startingOffsets": '{"orders": {"0": 23, "1": -2}}'}, is_stream=True)
    assert options.starting_offsets == OffsetsChoice("json", {"orders": {0: 23, 1: -2}})


def test_arguments_of_the_consumer() -> None:
    """Kafka's names become those of aiokafka."""
    given = {"bootstrap.servers": "b1:9092", "fetch.max.bytes": "1000", "check.crcs": "false"}
    assert dict(consumer_arguments(given)) == {
        "bootstrap_servers": "b1:9092",
        "fetch_max_bytes": 1000,
        "check_crcs": False,
    }


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="canary-spark";'
SECURED = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": JAAS}


def test_connections_have_the_options_of_a_write() -> None:
    """Checked on the driver; the consumer's own arguments do not hold them."""
    options = SourceOptions.parse({**READ, **SECURED}, is_stream=False)
    config = connection_config(options.kafka)

    assert (config.security_protocol, config.sasl_mechanism, config.sasl_username) == ("SASL_SSL", "PLAIN", "u")
    assert dict(consumer_arguments(options.kafka)) == {"bootstrap_servers": "b1:9092"}
    assert "canary" not in repr(options)
    assert "canary" not in repr(SinkOptions.parse({"kafka.bootstrap.servers": "b1:9092", "topic": "t", **SECURED}))


@pytest.mark.parametrize(
    "options, said",
    [
        ({"kafka.sasl.jaas.config": JAAS}, "kafka.security.protocol"),
        ({**SECURED, "kafka.sasl.mechanism": "MD5"}, "kafka.sasl.mechanism"),
        ({**SECURED, "kafka.security.protocol": "SASL_PLAINTEXT"}, "kafka.allow.plaintext.credentials"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore": "a"}, "kafka.ssl.truststore"),
        ({"kafka.proxy.url": "socks5h://p:1"}, "kafka.proxy.url cannot be used here"),
        ({"kafka.address.map": "a:1=b:1"}, "kafka.address.map cannot be used here"),
    ],
)
def test_wrong_option_of_a_connection_is_named_not_its_secret(options: dict[str, str], said: str) -> None:
    """On the driver, before any task."""
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        SourceOptions.parse({**READ, **options}, is_stream=False)
    assert "canary" not in str(caught.value)
