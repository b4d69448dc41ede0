"""Files and dicts of other clients: what they mean here, and one message about all that is not used."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from aioproducer import ConfigurationError, ConfigurationTypeError, Producer, ProducerConfig
from aioproducer.security import ClientCredentials
from aioproducer.testing import FakeCluster

OF_CONFLUENT_CLOUD = """\
bootstrap.servers=pkc-1.example:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='a/b+c=';
sasl.mechanism=PLAIN
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
schema.registry.url=https://psrc-1.example
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=canary-user:canary-password
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
"""


def from_file(folder: Path, text: str, **options: Any) -> ProducerConfig:
    path = folder / "client.properties"
    path.write_text(text, "utf-8")
    return ProducerConfig.from_properties_file(path, **options)


def test_file_of_confluent_cloud_is_taken_with_one_note(tmp_path: Path) -> None:
    config = from_file(tmp_path, OF_CONFLUENT_CLOUD)

    assert (config.sasl_username, config.acks) == ("KEY", -1)
    (note,) = config.notes
    for name in ("session.timeout.ms", "schema.registry.url", "basic.auth.user.info", "key.deserializer"):
        assert name in note
    assert "docs/how-to/use_schemas.md" in note
    assert "canary" not in note
    assert config.replace(client_id="billing").notes == config.notes


async def test_what_is_not_used_is_one_warning_at_start() -> None:
    async with FakeCluster(1) as cluster:
        properties = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "max.poll.records": 5}
        with capture_logs() as events:
            async with Producer(ProducerConfig.from_kafka_properties(properties)):
                pass

    notes = [event["note"] for event in events if event["event"] == "option_not_used"]
    assert notes == ["not used here: group.id, max.poll.records: it is an option of consumers"]


def test_all_refused_options_are_in_one_error(tmp_path: Path) -> None:
    text = (
        "bootstrap.servers=h:1\nlingr.ms=5\nmessage.timeout.ms=1\nacks=2\nbatch.size=big\nsesion.timeout=1\n"
        "ssl.ca.location=/ca\nvalue.serializer=io.confluent.kafka.serializers.KafkaAvroSerializer\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        from_file(tmp_path, text)

    rows = str(caught.value).splitlines()[1:]
    assert sorted(row.partition(":")[0] for row in rows) == [f"- line {number}" for number in range(2, 9)]
    assert {problem.option for problem in caught.value.problems} >= {"acks", "batch_size", "message_timeout_ms"}
    assert "docs/how-to/use_schemas.md" in str(caught.value)


def test_all_wrong_arguments_are_in_one_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ProducerConfig(bootstrap_servers="h:1", linger_ms=-1, acks=2, batch_size="x")  # type: ignore[arg-type]

    assert [problem.option for problem in caught.value.problems] == ["acks", "linger_ms", "batch_size"]


def test_reason_that_several_options_share_is_said_once() -> None:
    properties = {"bootstrap.servers": "h:1", "dr_cb": print, "dr_msg_cb": print}
    with pytest.raises(ConfigurationTypeError) as caught:
        ProducerConfig.from_kafka_properties(properties)

    assert str(caught.value).count("outcomes are awaited") == 1
    assert "'dr_msg_cb': as 'dr_cb'" in str(caught.value)


@pytest.mark.parametrize(
    "properties, said",
    [
        ({"spring.kafka.bootstrap-servers": "h:1"}, "it is a name of Spring Boot"),
        ({"spring.kafka.producer.properties.linger.ms": "5"}, "it is a name of Spring Boot"),
        ({"spring": {"kafka": {}}}, "it is a name of Spring Boot"),
        ({"default.topic.config": {"acks": "all"}}, "producer.topic(name, value=bytes, linger_ms=...)"),
        ({"stats_cb": print}, "Producer.metrics()"),
    ],
)
def test_other_ways_to_say_it_get_a_sentence(properties: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationTypeError) as caught:
        ProducerConfig.from_kafka_properties({"bootstrap.servers": "h:1", **properties})

    assert said in str(caught.value)


def test_librdkafka_options_for_what_is_done_anyway_are_accepted() -> None:
    properties = {"bootstrap.servers": "h:1", "socket.keepalive.enable": True, "statistics.interval.ms": 0}

    assert ProducerConfig.from_kafka_properties(properties).notes == ()


@pytest.mark.parametrize(
    "text, notes",
    [("client.id=é\n", 1), ("client.id=\\u00e9\n", 0), ("# é\n", 0), ("client.id=x # é\n", 1)],
)
def test_text_that_java_reads_differently_is_named(text: str, notes: int, tmp_path: Path) -> None:
    config = from_file(tmp_path, f"bootstrap.servers=h:1\n{text}".replace(" # ", "-"))

    assert len(config.notes) == notes
    assert all("ISO-8859-1" in note for note in config.notes)


OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OF_OAUTH = (
    "bootstrap.servers=h:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
    "sasl.oauthbearer.token.endpoint.url=https://idp/token\n"
    "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
    f"sasl.jaas.config={OAUTH} required clientId='me' clientSecret='canary' scope='kafka' "
    "extension_logicalCluster='lkc-1' extension_identityPoolId='pool-1';\n"
)


def credentials(**changed: Any) -> ClientCredentials:
    given: dict[str, Any] = {"client_id": "me", "client_secret": "canary", "scope": "kafka", **changed}
    return ClientCredentials(given.pop("url", "https://idp/token"), **given)


def test_provider_that_says_the_same_as_the_file_is_taken(tmp_path: Path) -> None:
    config = from_file(tmp_path, OF_OAUTH, sasl_token_provider=credentials())

    said = " ".join(config.notes)
    for name in ("clientId", "scope", "sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class"):
        assert name in said
    assert "canary" not in said


@pytest.mark.parametrize(
    "changed, argument",
    [
        ({"scope": ""}, "ClientCredentials(scope=...)"),
        ({"client_id": "you"}, "ClientCredentials(client_id=...)"),
        ({"url": "https://other/token"}, "ClientCredentials(url=...)"),
        ({"extensions": {"logicalCluster": "lkc-2"}}, "ClientCredentials(extensions=...)"),
    ],
)
def test_provider_that_says_something_else_is_refused(
    changed: dict[str, object], argument: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_file(tmp_path, OF_OAUTH, sasl_token_provider=credentials(**changed))

    assert argument in str(caught.value)
    assert "canary" not in str(caught.value)


def test_dict_with_a_provider_is_read_as_a_file_is() -> None:
    properties = dict(line.split("=", 1) for line in OF_OAUTH.splitlines())

    assert ProducerConfig.from_kafka_properties({**properties, "sasl_token_provider": credentials()}).notes


@pytest.mark.parametrize("extension", ["extension_auth=x", "extension_a1=x", "extension_a=''"])
def test_extension_that_brokers_cannot_read_is_refused(extension: str, tmp_path: Path) -> None:
    text = OF_OAUTH.replace("extension_logicalCluster='lkc-1'", extension)

    with pytest.raises(ConfigurationError, match="extension"):
        from_file(tmp_path, text, sasl_token_provider=credentials())
