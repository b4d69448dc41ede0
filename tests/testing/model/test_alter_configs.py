"""Settings that are altered take effect at once, and every setting has a type."""

from importlib import import_module

from aioproducer.testing import ApiKey, Where
from aioproducer.testing.model.config_types import TOPIC_CONFIG_TYPES
from aioproducer.testing.model.topic_configs import BEFORE_4_0, TOPIC_CONFIG_DEFAULTS
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
    """19 from the next Produce on."""
    network = ModelNetwork(2)
    client = network.client()
    network.model.kill(2, network.now)
    before = client.produce("t", batch()).error_code
    changed = change(client, "min.insync.replicas", "2")

    assert (before, changed, client.produce("t", batch()).error_code) == (0, 0, 19)


def test_fault_keeps_settings_as_they_are() -> None:
    """The error that a test has laid down, for the topic it names."""
    network = ModelNetwork()
    network.model.faults.error(41, Where(api=ApiKey.INCREMENTAL_ALTER_CONFIGS, topic="t"))
    topic = network.model.topics.named("t")

    assert change(network.client(), "retention.ms", "1") == 41
    assert topic is not None
    assert topic.config.overrides == {}


def test_every_setting_has_a_type() -> None:
    """Of all releases, and nothing else has."""
    assert set(TOPIC_CONFIG_TYPES) == {*TOPIC_CONFIG_DEFAULTS, *BEFORE_4_0}
