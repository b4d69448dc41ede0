"""Options of a write: each wrong one is refused on the driver, by its name and with what is allowed."""

import re

import pytest

from aioproducer.errors import ConfigurationError
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._source_options import SourceOptions

SERVERS = {"kafka.bootstrap.servers": "b1:9092"}
EXACTLY_ONCE = {**SERVERS, "topic": "t", "exactlyOnce": "true", "sinkId": "s"}

WRONG_WRITE = {
    "table": ({"provider": "aioproducer"}, "CREATE TABLE ... USING aioproducer: Spark gives the options of a table to"),
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
    "kafka of one word": ({"kafka.acks": "2"}, 'kafka.acks must be "all"'),
    "java class": (
        {"kafka.partitioner.class": "com.acme.Mine"},
        "kafka.partitioner.class='com.acme.Mine': classes of Java do not run here, but for org.apache.kafka.",
    ),
    "serializer": ({"kafka.value.serializer": "x"}, "kafka.value.serializer cannot be set"),
    "transactional id": ({"kafka.transactional.id": "x"}, "give exactlyOnce=true and a sinkId"),
    "transactional id in Python's spelling": (
        {"kafka.transactional_id": "x"},
        "kafka.transactional.id cannot be set: give exactlyOnce=true and a sinkId",
    ),
    "time-out in Python's spelling": ({"kafka.transaction_timeout_ms": "5"}, "give transactionTimeout"),
    "serializer in Python's spelling": ({"kafka.key_serializer": "x"}, "kafka.key.serializer cannot be set"),
    "interceptors under their other name": ({"kafka.interceptors": "x"}, "kafka.interceptors cannot be set"),
    "java class in Python's spelling": (
        {"kafka.partitioner_class": "com.acme.Mine"},
        "kafka.partitioner.class='com.acme.Mine': classes of Java do not run here",
    ),
    "value that is not UTF-8": ({"header.x": "\udcff"}, "header.x: must be text in UTF-8"),
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
    "acks in Python's spelling": (
        {"exactlyOnce": "true", "sinkId": "s", "kafka.enable_idempotence": "false"},
        "kafka.enable.idempotence=false cannot be had with exactlyOnce=true",
    ),
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


def test_number_of_a_batch_is_refused_outside_foreach_batch() -> None:
    """Another one than Spark's would have rows skipped."""
    with pytest.raises(ConfigurationError, match="batchId cannot be set: Spark numbers the batches of a stream"):
        SinkOptions.parse({**EXACTLY_ONCE, "batchId": "0"}).check_of_stream()


def test_property_in_pythons_spelling_has_its_effect() -> None:
    """Also in the place of a default, and as the servers."""
    given = {"kafka.bootstrap_servers": "b1:9092", "topic": "t", "kafka.batch_size": "1000", "kafka.linger_ms": "7"}
    options = SinkOptions.parse(given)
    assert options.kafka == {"bootstrap.servers": "b1:9092", "batch.size": "1000", "linger.ms": "7"}
    assert (options.producer_config().batch_size, options.producer_config().linger_ms) == (1000, 7)


def test_property_in_both_spellings_is_refused() -> None:
    """And not one of the two chosen."""
    said = "^kafka.batch.size is given twice, as kafka.batch_size and kafka.batch.size$"
    with pytest.raises(ConfigurationError, match=said):
        SinkOptions.parse({**SERVERS, "kafka.batch_size": "5", "kafka.batch.size": "6"})


def test_all_wrong_properties_are_told_at_once() -> None:
    """Names and values, each as it is known here."""
    given = {"kafka.group.id": "g", "kafka.linger.ms": "soon", "kafka.acks": "2"}
    with pytest.raises(ConfigurationError, match=r"^3 options cannot be used:") as caught:
        SinkOptions.parse({**SERVERS, **given})
    assert {problem.option for problem in caught.value.problems} == {*given}


MSK = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    "kafka.sasl.token.provider": "MskIam region=eu-central-1",
}
OIDC = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallback",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://i/t",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    "clientId='c' clientSecret='x';",
    "kafka.sasl.token.provider": "ClientCredentials url=https://i/t client_id=c client_secret=env:CLIENT_SECRET",
}


@pytest.mark.parametrize("given", [MSK, OIDC], ids=["MSK", "OIDC"])
def test_file_of_java_is_taken_beside_a_token_provider(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a write as by a read, and as by the producer itself."""
    monkeypatch.setenv("CLIENT_SECRET", "x")
    assert SinkOptions.parse({**SERVERS, "topic": "t", **given}).producer_config().sasl_mechanism == "OAUTHBEARER"
    SourceOptions.parse({**SERVERS, "subscribe": "t", **given}, is_stream=False)


def test_missing_servers_are_named() -> None:
    """A write without any option says which one is needed first."""
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap\.servers is missing"):
        SinkOptions.parse({"topic": "t"})


def test_servers_under_almost_their_name_are_named() -> None:
    """Not as missing: people would compare two names that look alike."""
    given = {"kafka.bootstrap.server": "localhost:9092"}
    with pytest.raises(ConfigurationError, match=r"did you mean kafka\.bootstrap\.servers\?"):
        SinkOptions.parse({"topic": "t", **given})
    with pytest.raises(
        ConfigurationError, match=r"unknown option kafka\.bootstrap\.server; known are kafka\.bootstrap\.servers"
    ):
        SourceOptions.parse({"subscribe": "t", **given}, is_stream=False)


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
