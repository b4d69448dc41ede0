"""Options of a write and of a read: each wrong one is refused on the driver, by its name and with what is allowed."""

import re

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._offsets import OffsetsChoice
from aioproducer.spark._options import SinkOptions, SourceOptions, connection_config, consumer_arguments

SERVERS = {"kafka.bootstrap.servers": "b1:9092"}
EXACTLY_ONCE = {**SERVERS, "topic": "t", "exactlyOnce": "true", "sinkId": "s"}

WRONG_WRITE = {
    "unknown": ({"topics": "t"}, "unknown option topics; did you mean topic"),
    "unknown, nothing near": ({"zzz": "t"}, "unknown option zzz; known are topic, exactlyOnce"),
    "kafka without prefix": ({"linger.ms": "5"}, "unknown option linger.ms; did you mean kafka.linger.ms"),
    "kafka without prefix, misspelt": (
        {"bootstrap.server": "b1:9092"},
        "unknown option bootstrap.server; did you mean kafka.bootstrap.servers?",
    ),
    "of Spark's own source": (
        {"kafkaConsumer.pollTimeoutMs": "5"},
        "unknown option kafkaconsumer.polltimeoutms; known are topic",
    ),
    "unknown kafka": (
        {"kafka.linger.msec": "5"},
        "kafka.linger.msec: there is no option 'linger.msec'; did you mean kafka.linger.ms?",
    ),
    "unknown kafka without a dot": (
        {"kafka.lingerms": "5"},
        "kafka.lingerms: there is no option 'lingerms'; did you mean kafka.",
    ),
    "kafka of another client": (
        {"kafka.batch.num.messages": "5"},
        "kafka.batch.num.messages: there is no option 'batch.num.messages'; use kafka.batch.size",
    ),
    "kafka of a consumer": (
        {"kafka.group.id": "g"},
        "kafka.group.id: aioproducer has no option 'group.id': it is an option of consumers",
    ),
    "no servers": ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is empty"),
    "kafka type": ({"kafka.linger.ms": "soon"}, "kafka.linger.ms must be a whole number, not 'soon'"),
    "kafka range": ({"kafka.batch.size": "-1"}, "kafka.batch.size must be between 0 and 2147483647"),
    "kafka of two": (
        {"kafka.delivery.timeout.ms": "5"},
        "kafka.delivery.timeout.ms must be at least kafka.linger.ms + kafka.request.timeout.ms",
    ),
    "java class": (
        {"kafka.partitioner.class": "com.acme.Mine"},
        "kafka.partitioner.class='com.acme.Mine': classes of Java do not run here, but for org.apache.kafka.",
    ),
    "serializer": ({"kafka.value.serializer": "x"}, "kafka.value.serializer cannot be set"),
    "transactional id": ({"kafka.transactional.id": "x"}, "give exactlyOnce=true and a sinkId"),
    "boolean": ({"exactlyOnce": "2pc"}, "exactlyOnce='2pc': must be true or false"),
    "duration": ({"transactionTimeout": "soon"}, "transactionTimeout='soon': must be a time such as 15m"),
    "no duration": ({"commitTimeout": "0s"}, "commitTimeout='0s': must be a time such as 15m"),
    "rate": ({"maxRecordsPerSecond": "0"}, "maxRecordsPerSecond='0': must be a whole number of 1 or more"),
    "word": ({"onOversize": "drop"}, "onOversize='drop': must be fail or skip"),
    "extra columns": ({"extraColumns": "yes"}, "extraColumns='yes': must be error or ignore"),
    "no sinkId": ({"exactlyOnce": "true"}, "exactlyOnce=true needs sinkId"),
    "sinkId without exactlyOnce": ({"sinkId": "s"}, "sinkId is for exactlyOnce=true"),
    "runId without exactlyOnce": ({"runId": "s"}, "runId is for exactlyOnce=true"),
    "sinkId with a space": ({"exactlyOnce": "true", "sinkId": "a b"}, "sinkId='a b'"),
    "time-out without exactlyOnce": ({"commitTimeout": "5m"}, "commitTimeout is for exactlyOnce=true"),
    "run of a stream": (
        {"exactlyOnce": "true", "sinkId": "s", "runId": "monday", "batchId": "7"},
        "runId is for batch jobs",
    ),
    "acks": (
        {"exactlyOnce": "true", "sinkId": "s", "kafka.acks": "1"},
        "kafka.acks=1 cannot be had with exactlyOnce=true: it needs kafka.enable.idempotence=true",
    ),
    "idempotence": (
        {"exactlyOnce": "true", "sinkId": "s", "kafka.acks": "all", "kafka.enable.idempotence": "false"},
        "kafka.enable.idempotence=false cannot be had with exactlyOnce=true",
    ),
    "time-out over Kafka's": (
        {"exactlyOnce": "true", "sinkId": "s", "transactionTimeout": "900h"},
        "transactionTimeout: must be between 1 and 2147483647, not 3240000000",
    ),
    "empty topic": ({"topic": ""}, "topic='': must be text"),
    "header": ({"header.": "x"}, "must be header.<name>"),
    "topic to create without a name": ({"createTopic": "3:1"}, "createTopic is for the option topic"),
    "partitions to create": (
        {"topic": "t", "createTopic": "0"},
        "createTopic='0': must be partitions:replicas, such as 3:1, or partitions alone",
    ),
    "replicas to create": ({"topic": "t", "createTopic": "3:"}, "createTopic='3:': must be partitions:replicas"),
    "three numbers to create": ({"topic": "t", "createTopic": "3:1:1"}, "createTopic='3:1:1': must be partitions"),
}


@pytest.mark.parametrize("case", WRONG_WRITE)
def test_wrong_option_of_a_write_is_named(case: str) -> None:
    """With what is allowed, or what was probably meant."""
    options, said = WRONG_WRITE[case]
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        SinkOptions.parse({**SERVERS, **options})
    assert "linger_ms" not in str(caught.value)


def test_partitioner_of_kafka_is_known_by_its_class() -> None:
    """As property files name it."""
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    assert SinkOptions.parse({**SERVERS, "kafka.partitioner.class": name}).kafka["partitioner.class"] == name


def test_run_of_a_stream_is_refused() -> None:
    """Spark numbers its batches; a runId would have no effect."""
    options = SinkOptions.parse({**EXACTLY_ONCE, "runId": "monday"})
    with pytest.raises(ConfigurationError, match="runId is for batch jobs"):
        options.check_of_stream()
    SinkOptions.parse(EXACTLY_ONCE).check_of_stream()


def test_missing_servers_are_named() -> None:
    """A write without any option says which one is needed first."""
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap\.servers is missing"):
        SinkOptions.parse({"topic": "t"})


def test_names_are_found_in_any_case() -> None:
    """Spark gives them in lower case."""
    options = SinkOptions.parse({name.lower(): value for name, value in EXACTLY_ONCE.items()})
    assert (options.exactly_once, options.sink_id) == (True, "s")


@pytest.mark.parametrize("given", ["900s", "15m", "15 min", "900000"])
def test_durations(given: str) -> None:
    """The same time in several spellings."""
    assert SinkOptions.parse({**EXACTLY_ONCE, "transactionTimeout": given}).transaction_timeout_ms == 900_000


def test_options_of_spark_itself_are_passed_over() -> None:
    """Spark adds where its checkpoint is."""
    assert (
        SinkOptions.parse({**SERVERS, "topic": "t", "checkpointlocation": "/c", "includeHeaders": "true"}).topic == "t"
    )


def test_tasks_have_large_batches_unless_told() -> None:
    """A task sends at once all it has."""
    assert SinkOptions.parse(SERVERS).kafka["batch.size"] == "262144"
    assert SinkOptions.parse({**SERVERS, "kafka.batch.size": "16384"}).kafka["batch.size"] == "16384"


def test_transaction_of_a_task() -> None:
    """Has its own id and the time-out of the write."""
    properties = SinkOptions.parse(EXACTLY_ONCE).task_properties("s.0.1.2")
    assert properties["transactional.id"] == "s.0.1.2"
    assert properties["transaction.timeout.ms"] == "900000"
    assert "transactional.id" not in SinkOptions.parse(EXACTLY_ONCE).task_properties()


@pytest.mark.parametrize("name", ["kafka.sasl.jaas.config", "kafka.sasl.password", "kafka.ssl.key.password"])
def test_errors_hold_no_secret(name: str) -> None:
    """The name of a refused option is enough."""
    with pytest.raises(ConfigurationError) as caught:
        SinkOptions.parse({**SERVERS, "topic": "t", name: "hunter2"})
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"


def test_header_values_are_bytes() -> None:
    """Constant headers are the same for each record."""
    options = SinkOptions.parse({**SERVERS, "header.source": "spark", "header.empty": ""})
    assert options.headers == (("source", b"spark"), ("empty", b""))


# A read


READ = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "orders,visits"}

WRONG_READ = {
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


@pytest.mark.parametrize("case", WRONG_READ)
def test_wrong_option_of_a_read_is_named(case: str) -> None:
    """With what is allowed, or what was probably meant."""
    options, said = WRONG_READ[case]
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
