"""Responses of Metadata, ApiVersions and InitProducerId."""

import struct
from importlib import import_module

import pytest

from aioproducer.testing import ApiKey, MetricsSubscription
from aioproducer.testing.fake_broker.version_profiles import PROFILES, profile_named
from tests.testing.model_network import ModelClient, ModelNetwork, batch, schema


def topics_of(client: ModelClient, *names: str, version: int = 12, auto: bool = True) -> dict[str, tuple[int, int]]:
    """Return error and number of partitions by topic."""
    message = import_module(f"kio.schema.metadata.v{version}.request")
    asked = tuple(message.MetadataRequestTopic(name=name, topic_id=None) for name in names)
    answer = client.ask(ApiKey.METADATA, version, topics=asked, allow_auto_topic_creation=auto)
    return {topic.name: (int(topic.error_code), len(topic.partitions)) for topic in answer.topics}


def test_topic_is_made_on_first_use() -> None:
    """The first answer does not know it yet, as in Kafka."""
    client = ModelNetwork().client()
    first = topics_of(client, "new")

    client.network.advance(0.1)

    assert (first, topics_of(client, "new")) == ({"new": (3, 0)}, {"new": (0, 4)})


def test_topic_is_not_made_when_it_must_not() -> None:
    by_request = ModelNetwork().client()
    by_cluster = ModelNetwork(auto_create_topics=False).client()
    topics_of(by_request, "new", auto=False)
    topics_of(by_cluster, "new")
    for client in (by_request, by_cluster):
        client.network.advance(1)

    assert topics_of(by_request, "new", auto=False) == topics_of(by_cluster, "new") == {"new": (3, 0)}


def test_illegal_name_is_refused() -> None:
    assert topics_of(ModelNetwork().client(), "a b") == {"a b": (17, 0)}


@pytest.mark.parametrize("version", range(14))
def test_every_version_lists_all_topics(version: int) -> None:
    client = ModelNetwork(2, topics={"a": 1, "b": 2}).client()

    answer = client.ask(ApiKey.METADATA, version, topics=() if version == 0 else None)

    assert sorted((topic.name, len(topic.partitions)) for topic in answer.topics) == [("a", 1), ("b", 2)]
    assert [broker.node_id for broker in answer.brokers] == [1, 2]


def test_dead_broker_is_not_listed() -> None:
    network = ModelNetwork(2, topics={"a": 1}, replication_factor=1)
    network.model.kill(1, network.now)

    answer = network.client(2).ask(ApiKey.METADATA, 12, topics=None)

    (partition,) = answer.topics[0].partitions
    assert [broker.node_id for broker in answer.brokers] == [2]
    assert (int(partition.error_code), partition.leader_id, partition.offline_replicas) == (5, -1, (1,))


OF_TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.mark.parametrize("subscription", [None, MetricsSubscription()], ids=["no metrics", "metrics"])
@pytest.mark.parametrize("release", PROFILES)
def test_api_versions_lists_the_profile(release: str, subscription: MetricsSubscription | None) -> None:
    """Those of telemetry only where something takes metrics."""
    profile = profile_named(release)
    listed = {api: range_ for api, range_ in profile.versions.items() if subscription or api not in OF_TELEMETRY}
    for version in range(profile.versions[ApiKey.API_VERSIONS][1] + 1):
        client = ModelNetwork(profile=profile, metrics_subscription=subscription).client()
        software = {"client_software_name": "t", "client_software_version": "1"} if version >= 3 else {}
        answer = client.ask(ApiKey.API_VERSIONS, version, **software)

        assert {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys} == listed


def test_api_versions_too_new_is_answered_in_version_0() -> None:
    client = ModelNetwork().client()

    client.send(ApiKey.API_VERSIONS, 99, b"")

    (frame,) = client.frames()
    assert struct.unpack_from(">hihhh", frame, 4) == (35, 1, 18, 0, 5)


def test_every_listed_version_has_its_message() -> None:
    """A profile promises nothing that cannot be decoded."""
    for profile in PROFILES.values():
        for api, (low, high) in profile.versions.items():
            for version in range(max(low, profile.lowest_produce if api is ApiKey.PRODUCE else 0), high + 1):
                assert schema(api, version, "request").__version__ == version


def test_unknown_profile_says_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"no profile of Kafka '1.0'; there are 4.4.0, 4.3.1, 3.9.1"):
        profile_named("1.0")


def test_producer_ids_load_for_a_while() -> None:
    client = ModelNetwork(producer_ids_load_s=1.0).client()
    codes = []
    for _ in range(3):
        answer = client.ask(ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None)
        codes.append((int(answer.error_code), answer.producer_id))
        client.network.advance(1.0)

    assert codes == [(14, -1), (0, 1000), (0, 1001)]


def test_unknown_producer_must_start_at_zero_before_kafka_2_5() -> None:
    """Only the old profiles respond with 59 UNKNOWN_PRODUCER_ID."""
    client = ModelNetwork(profile=profile_named("2.4")).client()

    assert client.produce("t", batch(identity=(5, 0, 3)), version=8).error_code == 59
