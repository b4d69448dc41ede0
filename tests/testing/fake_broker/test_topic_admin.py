"""Topics made, described, widened and deleted by requests."""

from importlib import import_module

import pytest

from aioproducer.testing import ApiKey
from tests.testing.model_network import ModelClient, ModelNetwork


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
    kept = network.model.topics.named("b")
    assert kept is not None
    message = import_module("kio.schema.delete_topics.v6.request")
    by_id = (message.DeleteTopicState(name=None, topic_id=kept.topic_id),)
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
