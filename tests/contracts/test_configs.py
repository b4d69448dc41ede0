"""Settings of topics and brokers, described and altered: the embedded cluster and real Kafka answer alike."""

import asyncio
from importlib import import_module

import pytest

from aioproducer.testing import ApiKey
from tests.contracts.clients import RawClient, odd_batch

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID_CONFIG, INVALID_REQUEST = 40, 42
DIGITS = "9" * 5000
NO_REPLICAS = (
    "must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


async def alter(
    client: RawClient, name: str, configs: dict[str, str | None], *, kind: int = TOPIC, validate_only: bool = False
) -> tuple[int, str | None]:
    """Send AlterConfigs; returns error and text."""
    message = import_module("kio.schema.alter_configs.v2.request")
    asked = tuple(message.AlterableConfig(name=key, value=value) for key, value in configs.items())
    resource = message.AlterConfigsResource(resource_type=kind, resource_name=name, configs=asked)
    answer = await client.ask(ApiKey.ALTER_CONFIGS, 2, resources=(resource,), validate_only=validate_only)
    (response,) = answer.responses
    return int(response.error_code), response.error_message


async def change(
    client: RawClient, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, validate_only: bool = False
) -> tuple[int, str | None]:
    """Send IncrementalAlterConfigs; returns error and text."""
    message = import_module("kio.schema.incremental_alter_configs.v1.request")
    asked = tuple(
        message.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
    )
    resource = message.AlterConfigsResource(resource_type=kind, resource_name=name, configs=asked)
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=validate_only)
    (response,) = answer.responses
    return int(response.error_code), response.error_message


async def described(client: RawClient, kind: int, name: str):  # noqa: ANN201 - one of kio's classes
    message = import_module("kio.schema.describe_configs.v4.request")
    resource = message.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    return (await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=(resource,))).results[0]


async def overrides(client: RawClient, topic: str) -> dict[str, str | None]:
    """Return the settings of a topic that were set; a real broker sees a change a moment later."""
    await asyncio.sleep(0.1)
    return {
        each.name: each.value for each in (await described(client, TOPIC, topic)).configs if each.config_source == 1
    }


async def test_alter_configs_replaces_what_was_set(client: RawClient, topic: str) -> None:
    await client.create_topic(topic, {"retention.ms": "5000"})
    errors = [await alter(client, topic, {"min.insync.replicas": "1", "max.message.bytes": " 2000 "})]
    seen = [await overrides(client, topic)]
    errors.append(await alter(client, topic, {"retention.ms": "6000"}, validate_only=True))
    errors.append(await alter(client, topic, {"retention.ms": "6000", "nope": "1"}))
    seen.append(await overrides(client, topic))
    errors.append(await alter(client, topic, {}))
    seen.append(await overrides(client, topic))

    assert errors == [(0, None), (0, None), (INVALID_CONFIG, "Unknown topic config name: nope"), (0, None)]
    assert seen == [{"min.insync.replicas": "1", "max.message.bytes": "2000"}] * 2 + [{}]


async def test_altered_settings_are_in_force(client: RawClient, topic: str) -> None:
    await client.create_topic(topic)
    before = await client.produce(topic, odd_batch())
    await change(client, topic, ("max.message.bytes", SET, "10"))
    await overrides(client, topic)
    after = await client.produce(topic, odd_batch())

    assert [before.error_code, after.error_code] == [0, 10]


async def test_incremental_alter_configs_changes_what_it_names(client: RawClient, topic: str) -> None:
    """Lists can be appended to and subtracted from, starting at the cluster's value."""
    await client.create_topic(topic, {"retention.ms": "5000"})
    seen = []
    for changes in (
        [("retention.bytes", SET, "6")],
        [("retention.ms", DELETE, None), ("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", SUBTRACT, "delete"), ("retention.bytes", DELETE, "any"), ("nope", DELETE, None)],
    ):
        assert await change(client, topic, *changes) == (0, None)
        seen.append(await overrides(client, topic))

    assert seen == [
        {"retention.ms": "5000", "retention.bytes": "6"},
        {"retention.bytes": "6", "cleanup.policy": "delete,compact"},
        {"cleanup.policy": "compact"},
    ]


@pytest.mark.parametrize(
    "changes, code, text",
    [
        ([("nope", SET, "1")], INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            [("retention.ms", SET, "1"), ("retention.bytes", SET, "x")],
            INVALID_CONFIG,
            "Invalid value x for configuration retention.bytes: Not a number of type LONG",
        ),
        (
            [("retention.ms", APPEND, "1")],
            INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
            INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        ([("retention.ms", SET, None)], INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        ([("retention.ms", 7, "1")], -1, None),
    ],
)
async def test_impossible_change_is_refused(
    client: RawClient, topic: str, *, changes: list[tuple[str, int, str | None]], code: int, text: str | None
) -> None:
    await client.create_topic(topic)

    assert await change(client, topic, *changes) == (code, text)
    assert await overrides(client, topic) == {}


async def test_every_setting_refuses_nonsense(client: RawClient, topic: str) -> None:
    await client.create_topic(topic)
    names = [each.name for each in (await described(client, TOPIC, topic)).configs]
    refusals = {name: await change(client, topic, (name, SET, "non,sense")) for name in names}

    assert len(names) > 20
    assert {name: code for name, (code, _) in refusals.items()} == dict.fromkeys(names, INVALID_CONFIG)
    assert [name for name, (_, text) in refusals.items() if f" for configuration {name}: " not in (text or "")] == []


@pytest.mark.parametrize(
    "name, value, shown, fault",
    [
        ("min.cleanable.dirty.ratio", "7", "7.0", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "-.5", "-0.5", "Value must be at least 0"),
        ("min.cleanable.dirty.ratio", DIGITS, "Infinity", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "", "", "Not a number of type DOUBLE"),
        ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "18", "Value must be no more than 17"),
        ("compression.zstd.level", "-131073", "-131073", "Value must be at least -131072"),
        ("compression.type", "gzip,lz4", "gzip,lz4",
         "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("cleanup.policy", "compact,x", "x", "String must be one of: compact, delete"),
        ("retention.ms", "-02", "-2", "Value must be at least -1"),
        ("retention.ms", DIGITS, DIGITS, "Not a number of type LONG"),
        ("retention.bytes", str(2**63), str(2**63), "Not a number of type LONG"),
        ("max.message.bytes", str(2**31), str(2**31), "Not a number of type INT"),
        ("max.message.bytes", "\u00a01", "\u00a01", "Not a number of type INT"),
        ("remote.log.copy.disable", "yes", "yes", "Expected value to be either true or false"),
        ("leader.replication.throttled.replicas", "0:1,x", "[0:1, x]",
         f"leader.replication.throttled.replicas {NO_REPLICAS}"),
    ],
)  # fmt: skip
async def test_values_out_of_bounds_are_refused(
    client: RawClient, topic: str, name: str, *, value: str, shown: str, fault: str
) -> None:
    await client.create_topic(topic)

    assert await change(client, topic, (name, SET, value)) == (
        INVALID_CONFIG,
        f"Invalid value {shown} for configuration {name}: {fault}",
    )


async def test_values_are_described_in_one_form(client: RawClient, topic: str) -> None:
    forms = {
        "preallocate": (" TRUE ", "true"),
        "min.insync.replicas": ("+1", "1"),
        "retention.ms": ("0" * 5000 + "7", "7"),
        "min.cleanable.dirty.ratio": (".5f", "0.5"),
        "cleanup.policy": (" compact , delete ", "compact,delete"),
        "leader.replication.throttled.replicas": ("*", "*"),
        "compression.gzip.level": ("-1", "-1"),
    }
    await client.create_topic(topic, {name: written for name, (written, _) in forms.items()})

    assert await overrides(client, topic) == {name: form for name, (_, form) in forms.items()}


@pytest.mark.parametrize(
    "kind, name, code, text",
    [
        (TOPIC, "no-such-topic", 3, "The topic 'no-such-topic' does not exist."),
        (TOPIC, "..", 17, "Topic name is invalid: '..' is not allowed"),
        (TOPIC, "", INVALID_REQUEST, "Default topic resources are not allowed."),
        (BROKER, "7", INVALID_REQUEST, "Unexpected broker id, expected 1, but received 7"),
        (BROKER, "x", INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (BROKER, DIGITS, INVALID_REQUEST, f"Node id must be an integer, but it is: {DIGITS}"),
        (9, "x", INVALID_REQUEST, "Unknown resource type 9"),
    ],
)
async def test_what_has_no_settings_cannot_be_altered(
    client: RawClient, kind: int, name: str, *, code: int, text: str
) -> None:
    answers = [
        await alter(client, name, {"retention.ms": "1"}, kind=kind),
        await change(client, name, ("retention.ms", SET, "1"), kind=kind),
    ]

    assert answers == [(code, text)] * 2


async def test_brokers_partitions_cannot_be_set_while_it_runs(client: RawClient) -> None:
    """The text names the setting, in brackets of one kind or another."""
    code, text = await change(client, "1", ("num.partitions", SET, "5"), kind=BROKER, validate_only=True)

    assert code == INVALID_REQUEST
    assert text is not None
    assert text.startswith("Cannot update these configs dynamically: ")
    assert "num.partitions" in text


async def test_what_is_given_twice_is_refused_twice(client: RawClient) -> None:
    message = import_module("kio.schema.incremental_alter_configs.v1.request")
    resource = message.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=())
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource, resource))

    texts = [(int(each.error_code), each.error_message) for each in answer.responses]
    assert texts == [(INVALID_REQUEST, "Each resource must appear at most once.")] * 2


async def test_settings_have_types(broker_of_release: tuple[str, str], topic: str) -> None:
    release, address = broker_of_release
    client = await RawClient.connect(address)
    await client.create_topic(topic)
    of_topic = {each.name: each.config_type for each in (await described(client, TOPIC, topic)).configs}
    of_broker = {
        each.name: (each.config_type, each.read_only) for each in (await described(client, BROKER, "1")).configs
    }
    await client.close()

    by_type = {kind: sum(found == kind for found in of_topic.values()) for kind in set(of_topic.values())}
    some = ("retention.ms", "segment.bytes", "cleanup.policy", "preallocate", "compression.type")
    assert [of_topic[name] for name in some] == [5, 3, 7, 1, 2]
    assert by_type == (TYPES_OF_3 if release.startswith("3") else TYPES_OF_4)
    of_listeners = BEFORE_LISTS if release.startswith("3") else {}
    assert {name: of_broker[name] for name in BROKERS} == {**BROKERS, **of_listeners}


TYPES_OF_3 = {1: 6, 2: 3, 3: 8, 5: 15, 6: 1, 7: 3}
TYPES_OF_4 = {1: 6, 2: 2, 3: 9, 5: 16, 6: 1, 7: 3}

BROKERS = {
    "advertised.listeners": (7, True),
    "auto.create.topics.enable": (1, True),
    "broker.id": (3, True),
    "default.replication.factor": (3, True),
    "listeners": (7, False),
    "min.insync.replicas": (3, False),
    "node.id": (3, True),
    "num.partitions": (3, True),
    "offsets.topic.num.partitions": (3, True),
    "replica.lag.time.max.ms": (5, True),
    "socket.request.max.bytes": (3, True),
    "transaction.max.timeout.ms": (3, True),
    "transactional.id.expiration.ms": (3, True),
}


BEFORE_LISTS = {"advertised.listeners": (2, False), "listeners": (2, False)}


async def test_broker_tells_where_it_listens(client: RawClient) -> None:
    metadata = await client.ask(ApiKey.METADATA, 9, topics=())
    (broker,) = metadata.brokers
    configs = {each.name: each.value for each in (await described(client, BROKER, str(broker.node_id))).configs}

    assert configs["advertised.listeners"] == f"PLAINTEXT://{broker.host}:{broker.port}"


@pytest.mark.parametrize(
    "kind, name, code, text",
    [
        (TOPIC, "no-such-topic", 3, ""),
        (TOPIC, "..", 17, "Topic name is invalid: '..' is not allowed"),
        (BROKER, "7", INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 7"),
        (BROKER, "x", INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (BROKER, DIGITS, INVALID_REQUEST, f"Broker id must be an integer, but it is: {DIGITS}"),
        (BROKER, "-1", INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received -1"),
    ],
)
async def test_what_is_not_there_is_not_described(
    client: RawClient, kind: int, name: str, *, code: int, text: str
) -> None:
    answer = await described(client, kind, name)

    assert (int(answer.error_code), answer.error_message, answer.configs) == (code, text, ())


async def test_keys_and_synonyms_are_told_as_asked(client: RawClient, topic: str) -> None:
    await client.create_topic(topic, {"retention.ms": "5000"})
    message = import_module("kio.schema.describe_configs.v4.request")
    found = []
    for keys in ((), ("retention.ms",)):
        resource = message.DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=keys)
        answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=(resource,), include_synonyms=True)
        found.append(answer.results[0].configs)
    everything, (one,) = found
    synonym = one.synonyms[0]

    assert len(everything) > len(BROKERS)
    assert (synonym.name, synonym.value, synonym.source) == ("retention.ms", "5000", 1)
