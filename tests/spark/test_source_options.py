"""Options of a read: each wrong one is refused on the driver, by its name and with what is allowed."""

import logging
import re

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._offsets import OffsetsChoice
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._source_options import SourceOptions, connection_config, consumer_arguments

READ = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "orders,visits"}

WRONG_READ = {
    "table": ({"provider": "aioproducer"}, "CREATE TABLE ... USING aioproducer: Spark gives the options of a table to"),
    "two ways": ({"subscribePattern": "o.*"}, "assign must say what to read; subscribe and subscribePattern are given"),
    "no topic": ({"subscribe": ","}, "subscribe=',': must be names of topics"),
    "pattern": ({"subscribePattern": "o("}, "subscribePattern='o(': must be a regular expression"),
    "assign": ({"assign": '{"orders": 1}'}, "must be JSON such as"),
    "partitions as text": ({"assign": '{"orders": "12"}'}, "must be JSON such as"),
    "partition as text": ({"assign": '{"orders": ["1"]}'}, "must be JSON such as"),
    "part of a partition": ({"assign": '{"orders": [1.5]}'}, "must be JSON such as"),
    "negative partition": ({"assign": '{"orders": [-1]}'}, "must be JSON such as"),
    "part of an offset": ({"startingOffsets": '{"orders": {"0": 3.9}}'}, "must be earliest, latest or JSON"),
    "endless offset": ({"startingOffsets": '{"orders": {"0": Infinity}}'}, "must be earliest, latest or JSON"),
    "offset beyond Kafka's": ({"startingOffsets": '{"orders": {"0": 9223372036854775808}}'}, "latest or JSON"),
    "truth as an offset": ({"startingOffsets": '{"orders": {"0": true}}'}, "must be earliest, latest or JSON"),
    "negative number of a partition": ({"startingOffsets": '{"orders": {"-1": 3}}'}, "latest or JSON"),
    "both spellings": (
        {"kafka.fetch_max_bytes": "5", "kafka.fetch.max.bytes": "6"},
        "kafka.fetch.max.bytes is given twice",
    ),
    "reset in Python's spelling": ({"kafka.auto_offset_reset": "latest"}, "give startingOffsets"),
    "unknown of a connection": ({"kafka.ssl_truststore": "a"}, "kafka.ssl_truststore: aioproducer has no option"),
    "time": ({"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday': must be milliseconds since 1970"),
    "times": ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "milliseconds since 1970 for each partition"),
    "end by times": ({"endingOffsetsByTimestamp": '{"orders": {"0": 1}}'}, "is for batch reads"),
    "strategy": ({"startingOffsetsByTimestampStrategy": "none"}, "must be error or latest"),
    "limits": (
        {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
        "minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=5",
    ),
    "parts": ({"minPartitions": "0"}, "minPartitions='0': must be a whole number of 1 or more"),
    "two isolations": (
        {"isolation": "read_committed", "kafka.isolation.level": "read_committed"},
        "kafka.isolation.level and isolation are the same option",
    ),
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
    "providers": ({"kafka.security.providers": "com.acme.Mine"}, "classes of Java do not run here"),
    "reset": ({"kafka.auto.offset.reset": "latest"}, "give startingOffsets"),
    "unknown kafka": ({"kafka.fetch.min": "1"}, "unknown option kafka.fetch.min; known are kafka.fetch.min.bytes"),
    "kafka type": ({"kafka.fetch.min.bytes": "few"}, "kafka.fetch.min.bytes='few': must be a whole number"),
}


@pytest.mark.parametrize("case", WRONG_READ)
def test_wrong_option_of_a_read_is_named(case: str) -> None:
    """With what is allowed, or what was probably meant."""
    options, said = WRONG_READ[case]
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        SourceOptions.parse({**READ, **options}, is_stream=True)


def test_topics_must_be_given() -> None:
    """There is no default."""
    with pytest.raises(ConfigurationError, match="one of subscribe, subscribePattern and assign must say what to read"):
        SourceOptions.parse({"kafka.bootstrap.servers": "b1:9092"}, is_stream=False)


def test_batch_that_would_read_nothing() -> None:
    """A stream may begin at the latest offsets, a batch may not."""
    with pytest.raises(ConfigurationError, match="startingOffsets=latest reads nothing in a batch"):
        SourceOptions.parse({**READ, "startingOffsets": "latest"}, is_stream=False)


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("startingOffsets", '{"orders": {"0": -1}}', "startingOffsets: orders-0: -1, the latest, is no start"),
        ("endingOffsets", '{"orders": {"0": -2}}', "endingOffsets: orders-0: -2, the earliest, is no end"),
        ("offsetGroup", "g", "offsetGroup is for streams"),
    ],
)
def test_batch_refuses_what_reads_nothing(name: str, value: str, said: str) -> None:
    """As Spark's own source does, before any broker is asked."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        SourceOptions.parse({**READ, name: value}, is_stream=False)


def test_stream_refuses_an_end() -> None:
    """When Spark asks for the columns, it does not say whether it is a stream."""
    with pytest.raises(ConfigurationError, match="endingOffsets is for batch reads"):
        SourceOptions.parse({**READ, "endingOffsets": "latest"}, is_stream=True)
    for other in (False, None):
        SourceOptions.parse({**READ, "endingOffsets": "latest"}, is_stream=other)


@pytest.mark.parametrize(
    "kind, option",
    [
        ("batch", "maxOffsetsPerTrigger=5"),
        ("batch", "minOffsetsPerTrigger=5"),
        ("batch", "maxTriggerDelay=5s"),
        ("batch", "kafka.group.id=g"),
        ("batch", "kafka.acks=all"),
        ("stream", "kafka.compression.type=zstd"),
        ("stream", "endingTimestamp=5"),
        ("stream", "groupIdPrefix=p"),
    ],
)
def test_option_that_spark_ignores_is_logged(kind: str, option: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its own source takes them, so a job goes on when the format changes."""
    name, _, value = option.partition("=")
    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        SourceOptions.parse({**READ, name: value}, is_stream=kind == "stream")
    assert f"{name} has no effect" in caplog.text


def test_last_of_the_ways_to_say_a_start_wins() -> None:
    """In the order of Spark's own source."""
    given = {**READ, "startingOffsets": "latest", "startingOffsetsByTimestamp": '{"orders": {"0": 5}}'}
    assert SourceOptions.parse(given, is_stream=False).starting_offsets == OffsetsChoice("times", {"orders": {0: 5}})
    given["startingTimestamp"] = "7"
    assert SourceOptions.parse(given, is_stream=False).starting_offsets == OffsetsChoice("time", {}, 7)


def test_options_of_sparks_source_are_taken() -> None:
    """Each name that its page has."""
    given = {
        "kafka.bootstrap.servers": "b1:9092",
        "assign": '{"orders": [0, 2]}',
        "startingOffsetsByTimestampStrategy": "LATEST",
        "minPartitions": "8",
        "maxRecordsPerPartition": "1000",
        "minOffsetsPerTrigger": "10",
        "maxOffsetsPerTrigger": "20",
        "maxTriggerDelay": "1d",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "10",
        "kafkaConsumer.pollTimeoutMs": "512",
        "groupIdPrefix": "mine",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "kafka.isolation.level": "read_uncommitted",
        **{f"kafka.{name}": "1" for name in ("session.timeout.ms", "max.poll.records", "receive.buffer.bytes")},
    }
    options = SourceOptions.parse(given, is_stream=True)
    assert options.assigned == (("orders", 0), ("orders", 2))
    assert options.isolation == "read_uncommitted"
    assert (options.max_trigger_delay_ms, options.poll_timeout_ms) == (86_400_000, 512)
    assert (options.fetch_attempts, options.fetch_interval_ms) == (5, 10)


@pytest.mark.parametrize("is_stream, word", [(True, "latest"), (False, "earliest")])
def test_begins_as_sparks_own(is_stream: bool, word: str) -> None:  # noqa: FBT001  # a parameter
    """Where nothing is said."""
    assert SourceOptions.parse(READ, is_stream=is_stream).starting_offsets.word == word


def test_offsets_in_json() -> None:
    """Topics, partitions and offsets, with two numbers that have a meaning."""
    options = SourceOptions.parse({**READ, "startingOffsets": '{"orders": {"0": 23, "1": -2}}'}, is_stream=True)
    assert options.starting_offsets == OffsetsChoice("json", {"orders": {0: 23, 1: -2}})


def test_connection_in_pythons_spelling_is_that_of_a_write(caplog: pytest.LogCaptureFixture) -> None:
    """None is passed over, which would read in plaintext."""
    given = {f"kafka.{name.removeprefix('kafka.').replace('.', '_')}": value for name, value in SECURED.items()}
    names = {"kafka.bootstrap_servers": "b1:9092", "subscribe": "orders", "kafka.fetch_max_bytes": "1000"}
    options = SourceOptions.parse({**names, **given}, is_stream=False)
    config = connection_config(options.kafka)

    assert (config.security_protocol, config.sasl_mechanism, config.sasl_username) == ("SASL_SSL", "PLAIN", "u")
    assert dict(consumer_arguments(options.kafka)) == {"bootstrap_servers": "b1:9092", "fetch_max_bytes": 1000}
    assert caplog.text == ""
    isolated = {**READ, "kafka.isolation_level": "read_uncommitted"}
    assert SourceOptions.parse(isolated, is_stream=False).isolation == "read_uncommitted"


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
