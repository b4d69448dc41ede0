"""Settings that are altered take effect at once, and every setting has a type."""

from importlib import import_module

import pytest

from aioproducer.testing import ApiKey, Where
from aioproducer.testing.fake_broker.topics.config_values import TOPIC_CONFIG_DEFAULTS, TOPIC_CONFIG_TYPES
from aioproducer.testing.fake_broker.topics.topic_configs import BEFORE_4_0
from aioproducer.testing.fake_broker.version_profiles import PROFILES
from tests.testing.model_network import ModelClient, ModelNetwork, batch

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
    topic = network.model.topics.named("t")

    assert change(network.client(), "retention.ms", "1") == 41
    assert topic is not None
    assert topic.config.overrides == {}


def test_every_setting_has_a_type() -> None:
    assert set(TOPIC_CONFIG_TYPES) == {*TOPIC_CONFIG_DEFAULTS, *BEFORE_4_0}


@pytest.mark.parametrize("name", [*TOPIC_CONFIG_TYPES])
def test_every_setting_refuses_nonsense(name: str) -> None:
    assert change(ModelNetwork(profile=PROFILES["3.9.1"]).client(), name, "non,sense") == 40


@pytest.mark.parametrize("value", ["\u0661", "1\u0661", "\u00a01", "1_0", "", "9" * 5000])
@pytest.mark.parametrize("name", ["min.insync.replicas", "retention.ms", "min.cleanable.dirty.ratio"])
def test_numbers_are_a_few_ascii_digits(name: str, value: str) -> None:
    network = ModelNetwork()
    topic = network.model.topics.named("t")

    assert change(network.client(), name, value) == 40
    assert topic is not None
    assert topic.config.overrides == {}


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
    topic = network.model.topics.named("t")

    assert change(network.client(), "unclean.leader.election.enable", " TRUE ") == 0
    assert topic is not None
    assert topic.config.allows_unclean_election
