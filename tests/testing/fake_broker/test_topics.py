"""Topics made, altered, described and deleted by requests, and what their settings do to batches."""

from importlib import import_module

import pytest

from aioproducer._protocol.compression import CompressionType, compress
from aioproducer.testing import ApiKey, Where
from aioproducer.testing.fake_broker.log.record_batch import checksum, decode_records, read_header
from aioproducer.testing.fake_broker.topic_configs import (
    BEFORE_4_0,
    SINCE_4_4,
    TOPIC_CONFIG_DEFAULTS,
    TOPIC_CONFIG_TYPES,
)
from aioproducer.testing.fake_broker.topics import TopicRequest
from aioproducer.testing.fake_broker.version_profiles import PROFILES
from tests.reference.record_batch import Batch, Record, encode_batch
from tests.testing.model_network import WALL_CLOCK_MS, ModelClient, ModelNetwork, batch


def create(client: ModelClient, name: str, **wanted: object) -> tuple[int, str | None]:
    """Send CreateTopics; returns error and message."""
    message = import_module("kio.schema.create_topics.v7.request")
    configs = {str(key): str(value) for key, value in dict(wanted.pop("configs", {})).items()}  # type: ignore[call-overload]
    assignments = tuple(
        message.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
        for index, nodes in enumerate(wanted.pop("assignment", ()))  # type: ignore[arg-type, var-annotated]
    )
    topic = message.CreatableTopic(
        name=name,
        num_partitions=wanted.get("partitions", -1),
        replication_factor=wanted.get("replication_factor", -1),
        assignments=assignments,
        configs=tuple(message.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    (answer,) = client.ask(ApiKey.CREATE_TOPICS, 7, topics=(topic,)).topics
    return int(answer.error_code), answer.error_message


def test_topic_is_made_as_asked() -> None:
    network = ModelNetwork(2)
    client = network.client()

    answers = [create(client, "asked", partitions=3, replication_factor=1), create(client, "default")]

    shapes = [[len(network.partition(name, index).replicas) for index in range(count)] for name, count in
              (("asked", 3), ("default", 4))]  # fmt: skip
    assert answers == [(0, None), (0, None)]
    assert shapes == [[1, 1, 1], [2, 2, 2, 2]]


def test_topic_is_placed_as_asked() -> None:
    network = ModelNetwork(3)

    create(network.client(), "placed", assignment=[(3, 1), (2, 3)])

    assert [network.partition("placed", index).replicas for index in (0, 1)] == [[3, 1], [2, 3]]


@pytest.mark.parametrize(
    "name, wanted, error",
    [
        ("t", {}, 36),
        ("a b", {}, 17),
        ("..", {}, 17),
        ("x" * 250, {}, 17),
        ("new", {"partitions": 0}, 37),
        ("new", {"replication_factor": 0}, 38),
        ("new", {"replication_factor": 3}, 38),
        ("new", {"assignment": [(1, 1)]}, 39),
        ("new", {"assignment": [(7,)]}, 39),
        ("new", {"configs": {"no.such": "1"}}, 40),
    ],
)
def test_impossible_topic_is_refused(name: str, wanted: dict[str, object], error: int) -> None:
    code, text = create(ModelNetwork(2).client(), name, **wanted)

    assert code == error
    assert text


def test_topic_is_deleted_by_name_and_by_id() -> None:
    network = ModelNetwork(topics={"a": 1, "b": 1})
    client = network.client()
    message = import_module("kio.schema.delete_topics.v6.request")
    by_id = (message.DeleteTopicState(name=None, topic_id=network.topic("b").topic_id),)
    errors = []
    for version, asked in (
        (3, {"topic_names": ("a", "a")}),
        (3, {"topic_names": ("a",)}),
        (3, {"topic_names": ("a",)}),
        (6, {"topics": (*by_id, message.DeleteTopicState(name="b", topic_id=None))}),
        (6, {"topics": by_id}),
        (6, {"topics": by_id}),
    ):
        (answer,) = client.ask(ApiKey.DELETE_TOPICS, version, **asked).responses
        errors.append(int(answer.error_code))

    assert errors == [42, 0, 3, 42, 0, 100]
    assert list(network.model.topics) == []


def test_partitions_are_added() -> None:
    network = ModelNetwork()
    message = import_module("kio.schema.create_partitions.v3.request")
    errors = []
    for name, count in (("t", 3), ("t", 2), ("none", 2)):
        topic = message.CreatePartitionsTopic(name=name, count=count, assignments=None)
        (answer,) = network.client().ask(ApiKey.CREATE_PARTITIONS, 3, topics=(topic,)).results
        errors.append(int(answer.error_code))

    assert errors == [0, 37, 3]
    assert network.partition("t", 2).leader == 1


@pytest.mark.parametrize("kind, name, error, some", [(2, "t", 0, "max.message.bytes"), (4, "1", 0, "num.partitions"),
                                                      (2, "none", 3, None), (9, "t", 42, None)])  # fmt: skip
def test_configs_are_described(kind: int, name: str, *, error: int, some: str | None) -> None:
    client = ModelNetwork().client()
    message = import_module("kio.schema.describe_configs.v4.request")
    found = []
    for keys in (None, (some or "x",)):
        resource = message.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        (answer,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=(resource,)).results
        found.append((int(answer.error_code), {config.name for config in answer.configs}))

    assert [code for code, _ in found] == [error, error]
    assert (some in found[0][1], found[1][1]) == (some is not None, {some} - {None})


SET = 0


def change(client: ModelClient, name: str, value: str) -> int:
    """Set one setting of topic `t`; returns the error."""
    message = import_module("kio.schema.incremental_alter_configs.v1.request")
    configs = (message.AlterableConfig(name=name, config_operation=SET, value=value),)
    resource = message.AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
    answer = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,))
    return int(answer.responses[0].error_code)


def test_copies_needed_take_effect() -> None:
    network = ModelNetwork(2)
    client = network.client()
    network.model.kill(2, network.now)
    before = client.produce("t", batch()).error_code
    changed = change(client, "min.insync.replicas", "2")

    assert (before, changed, client.produce("t", batch()).error_code) == (0, 0, 19)


def test_fault_keeps_settings_as_they_are() -> None:
    network = ModelNetwork()
    network.model.faults.error(41, Where(api=ApiKey.INCREMENTAL_ALTER_CONFIGS, topic="t"))

    assert change(network.client(), "retention.ms", "1") == 41
    assert network.topic().config.overrides == {}


def test_every_setting_has_a_type() -> None:
    assert set(TOPIC_CONFIG_TYPES) == {*TOPIC_CONFIG_DEFAULTS, *BEFORE_4_0, *SINCE_4_4}


@pytest.mark.parametrize("name", [*TOPIC_CONFIG_TYPES])
def test_every_setting_refuses_nonsense(name: str) -> None:
    assert change(ModelNetwork(profile=PROFILES["3.9.1"]).client(), name, "non,sense") == 40


@pytest.mark.parametrize("value", ["\u0661", "1\u0661", "\u00a01", "1_0", "", "9" * 5000])
@pytest.mark.parametrize("name", ["min.insync.replicas", "retention.ms", "min.cleanable.dirty.ratio"])
def test_numbers_are_a_few_ascii_digits(name: str, value: str) -> None:
    network = ModelNetwork()

    assert change(network.client(), name, value) == 40
    assert network.topic().config.overrides == {}


@pytest.mark.parametrize("node", ["\u0661", "9" * 5000, " 1", "1.0"])
@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_node_ids_are_a_few_ascii_digits(api: ApiKey, node: str) -> None:
    """Node ids are parsed like the numbers of settings."""
    assert asked_of_node(api, node) == 42


@pytest.mark.parametrize("node", ["1", "+1", "0" * 5000 + "1"])
@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_node_id_may_have_a_sign_and_zeros(api: ApiKey, node: str) -> None:
    """Java's Integer.parseInt accepts both."""
    assert asked_of_node(api, node) == 0


def asked_of_node(api: ApiKey, node: str) -> int:
    if api is ApiKey.DESCRIBE_CONFIGS:
        message = import_module("kio.schema.describe_configs.v4.request")
        resource = message.DescribeConfigsResource(resource_type=4, resource_name=node, configuration_keys=None)
        return int(ModelNetwork().client().ask(api, 4, resources=(resource,)).results[0].error_code)
    message = import_module("kio.schema.incremental_alter_configs.v1.request")
    resource = message.AlterConfigsResource(resource_type=4, resource_name=node, configs=())
    return int(ModelNetwork().client().ask(api, 1, resources=(resource,)).responses[0].error_code)


def test_flag_in_capitals_takes_effect() -> None:
    """The parsed value counts, not its spelling."""
    network = ModelNetwork()

    assert change(network.client(), "unclean.leader.election.enable", " TRUE ") == 0
    assert network.topic().config.allows_unclean_election


IN_TOPIC = {
    "uncompressed": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
RECORDS = tuple(Record(b"k", b"%d" % number * 50, WALL_CLOCK_MS + number) for number in range(9))


def kept(configs: dict[str, str], codec: CompressionType) -> bytes:
    network = ModelNetwork()
    network.model.topics.create(TopicRequest(name="packed", partitions=1, configs=configs))
    batch = Batch(RECORDS, codec=codec, producer_id=7, producer_epoch=0, base_sequence=0)

    answer = network.client().produce("packed", encode_batch(batch, lambda records: compress(codec, None, records)))

    assert answer.error_code == 0
    (logged,) = network.partition("packed").log.batches()
    return logged.data


@pytest.mark.parametrize("came_in", CompressionType)
@pytest.mark.parametrize("setting", IN_TOPIC)
def test_batch_is_kept_in_the_codec_of_the_topic(setting: str, came_in: CompressionType) -> None:
    """Records, producer and sequence stay the same; the checksum is new."""
    data = kept({"compression.type": setting}, came_in)

    header = read_header(data)
    assert header.codec == IN_TOPIC[setting]
    assert (header.crc, header.size) == (checksum(data), len(data))
    assert (header.producer_id, header.base_sequence, header.max_timestamp) == (7, 0, WALL_CLOCK_MS + 8)
    assert [(each.value, each.timestamp) for each in decode_records(data)] == [
        (each.value, each.timestamp) for each in RECORDS
    ]


@pytest.mark.parametrize("came_in", CompressionType)
def test_batch_is_kept_as_it_came_where_the_topic_names_none(came_in: CompressionType) -> None:
    assert read_header(kept({}, came_in)).codec == came_in


def test_batch_is_repacked_when_its_topic_sets_times() -> None:
    configs = {"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"}

    data = kept(configs, CompressionType.GZIP)

    assert read_header(data).is_log_append_time
    assert (read_header(data).codec, read_header(data).crc) == (CompressionType.LZ4, checksum(data))


def deleted(network: ModelNetwork, offset: int, *, topic: str = "t", version: int = 2) -> tuple[int, int]:
    message = import_module(f"kio.schema.delete_records.v{version}.request")
    place = message.DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = (message.DeleteRecordsTopic(name=topic, partitions=(place,)),)
    answer = network.client().ask(ApiKey.DELETE_RECORDS, version, topics=asked)
    (found,) = answer.topics[0].partitions
    return int(found.error_code), found.low_watermark


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("offset, answer", [(3, (0, 3)), (-1, (0, 4)), (0, (0, 0)), (5, (1, -1)), (-2, (1, -1))])
def test_start_moves_up_to_the_high_watermark(offset: int, answer: tuple[int, int], version: int) -> None:
    """Offset -1 deletes everything; an offset beyond the log gets 1 OFFSET_OUT_OF_RANGE."""
    network = ModelNetwork()
    for _ in range(2):
        network.client().produce("t", batch([b"a", b"b"]))

    assert deleted(network, offset, version=version) == answer
    assert network.partition().log.start_offset == max(0, answer[1])


def test_unknown_topic() -> None:
    assert deleted(ModelNetwork(), 0, topic="none") == (3, -1)
