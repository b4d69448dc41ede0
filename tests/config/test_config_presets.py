"""Presets of `ProducerConfig`, and its JSON Schema."""

import asyncio
import json
from collections.abc import Callable

import jsonschema
import pytest

from aioproducer import ConfigurationError, ConfigurationTypeError, Outcome, Producer, ProducerConfig
from aioproducer.config.producer_config import option_defaults, option_kinds
from aioproducer.errors import KafkaError
from aioproducer.testing import FakeCluster, Where
from tests.fakes.virtual_loop import in_virtual_time

PRESETS = [ProducerConfig.low_latency, ProducerConfig.throughput, ProducerConfig.durable]
Preset = Callable[..., ProducerConfig]


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_takes_overrides_in_both_spellings(preset: Preset) -> None:
    own = preset("h:1,h:2", linger_ms=7, **{"batch.size": 5_000}, client_id="c")

    assert own.bootstrap_servers == ("h:1", "h:2")
    assert (own.linger_ms, own.batch_size, own.client_id) == (7, 5_000, "c")
    assert preset(["h:1"]).given.items() - ProducerConfig(bootstrap_servers="h:1").given.items()
    assert Producer(preset("h:1"), linger_ms=9).config.linger_ms == 9


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "arguments, kind",
    [
        ({"linger_ms": -1}, ConfigurationError),
        ({"linger.ms": "soon"}, ConfigurationTypeError),
        ({"linger_ms": 1, "linger.ms": 1}, ConfigurationError),
        ({"lingers": 1}, ConfigurationTypeError),
        ({"bootstrap_servers": ""}, ConfigurationError),
        ({"bootstrap_servers": 5}, ConfigurationTypeError),
    ],
    ids=str,
)
def test_preset_refuses_what_the_constructor_does(
    preset: Preset, arguments: dict[str, object], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=r"linger|bootstrap"):
        preset(**{"bootstrap_servers": "h:1", **arguments})


@pytest.mark.parametrize(
    "options", [{"acks": 1}, {"acks": 0}, {"enable_idempotence": False, "acks": 1}, {"retries": 0}]
)
def test_durable_is_not_weakened_by_mistake(options: dict[str, object]) -> None:
    if options.get("enable_idempotence") is False:
        assert ProducerConfig.durable("h:1", **options).acks == 1  # type: ignore[arg-type]
        return
    with pytest.raises(ConfigurationError, match="idempotence"):
        ProducerConfig.durable("h:1", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("preset, survives", [(ProducerConfig.throughput, False), (ProducerConfig.durable, True)])
@in_virtual_time
async def test_durable_rides_out_ten_minutes(preset: Preset, survives: bool) -> None:  # noqa: FBT001
    """In virtual time: a broker that answers nothing for ten minutes."""
    async with FakeCluster(1, topics={"t": 1}) as cluster, Producer(preset(cluster.bootstrap_servers)) as producer:
        await producer.send("t", b"before")
        stall = cluster.faults.stall(Where())
        delivery = producer.send("t", b"v")
        await asyncio.sleep(10 * 60)
        cluster.faults.remove(stall)
        error = None
        try:
            await delivery
        except KafkaError as failed:
            error = failed

    assert (error is None) is survives
    assert survives or (error is not None and error.outcome is not Outcome.NOT_WRITTEN)


@in_virtual_time
async def test_low_latency_sends_at_once_what_no_one_awaits() -> None:
    """In virtual time: it waits out no linger, which with the defaults is 5 ms."""

    async def waited_ms(config: ProducerConfig) -> float:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        async with Producer(config) as producer:
            await producer.send("t", b"before")
            begun = loop.time()
            producer.send("t", b"v", on_delivery=lambda *_: ended.set())
            await ended.wait()
            return (loop.time() - begun) * 1000

    async with FakeCluster(1, topics={"t": 1}) as cluster:
        defaults = await waited_ms(ProducerConfig(bootstrap_servers=cluster.bootstrap_servers))
        low = await waited_ms(ProducerConfig.low_latency(cluster.bootstrap_servers))

    assert defaults - low >= 4.5


# The schema

SCHEMA = ProducerConfig.json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
PROPERTIES = SCHEMA["properties"]
assert isinstance(PROPERTIES, dict)

DOCUMENTS = [
    # option, valid, invalid
    ("bootstrap_servers", ["h:1,h:2", ["h:1"]], ["", [], 5, None, [5]]),
    ("linger_ms", [0, 2**63 - 1], [-1, "5", 1.5, None, 2**63]),
    ("batch_size", [0], [-1, 2**31]),
    ("acks", ["all", -1, 0, 1, "1"], ["most", 2, None]),
    ("enable_idempotence", [True], ["true", 1, None]),
    ("compression_type", ["zstd"], ["brotli", None]),
    ("compression_gzip_level", [-1, 9], [0, 10]),
    ("max_waiting_bytes", [None, 0], [-1]),
    ("transactional_id", ["t", None], ["", 5]),
    ("client_id", ["c"], [None, 5]),
    ("security_protocol", ["SSL", "PLAINTEXT"], ["TLS", None]),
    ("sasl_mechanism", ["PLAIN", None], ["plain"]),
    ("sasl_password", ["p", None], [5, ["p"]]),
    ("sasl_login_refresh_window_factor", [0.5, 1], [0.4, 1.1, "1"]),
    ("sasl_login_read_timeout_ms", [None, 5], [0]),
    ("ssl_truststore_type", ["PEM", None], ["pem"]),
    ("ssl_endpoint_identification_algorithm", ["https", ""], ["no", None]),
    ("ssl_enabled_protocols", ["TLSv1.3", ["TLSv1.2", "TLSv1.3"]], [[1], 5]),
    ("address_map", [{"a:1": "b:2"}, "a:1=b:2", None], [{"a:1": 5}, 5]),
    ("allowed_brokers", [["a*"], "a*,b*", None], [5, [5]]),
    ("partitioner", ["org.apache.kafka.clients.producer.RoundRobinPartitioner", None], ["mine", 5]),
    ("value_serializer", ["org.apache.kafka.common.serialization.StringSerializer", None], ["str", 5]),
    ("ssl_context", [], [None, "x"]),
    ("lingers", [], [5]),
]


def test_schema_is_valid_and_plain_json() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert not VALIDATOR.is_valid({}), "it needs servers"


def test_schema_is_its_callers_to_change() -> None:
    changed = ProducerConfig.json_schema()
    for option in changed["properties"].values():
        for values in (option, *option.get("anyOf", [])):
            values.get("enum", []).append("changed")
            values.get("items", {})["changed"] = True

    assert ProducerConfig.json_schema() == SCHEMA


def test_schema_has_every_option_that_a_document_can_hold() -> None:
    only_python = {"ssl_context", "sasl_token_provider"}

    assert PROPERTIES.keys() == {"bootstrap_servers", *option_kinds()} - only_python
    assert all(option["description"] for option in PROPERTIES.values())


@pytest.mark.parametrize("name", sorted(PROPERTIES.keys() - {"bootstrap_servers"}))
def test_default_is_valid_and_that_of_the_option(name: str) -> None:
    default = PROPERTIES[name]["default"]

    VALIDATOR.validate({"bootstrap_servers": "h:1", name: default})
    config = ProducerConfig.from_kafka_properties({"bootstrap_servers": "h:1", name: default})
    assert getattr(config, name) == getattr(ProducerConfig(bootstrap_servers="h:1"), name)
    assert name in option_defaults()


@pytest.mark.parametrize("name, valid, invalid", DOCUMENTS, ids=[row[0] for row in DOCUMENTS])
def test_schema_accepts_what_the_configuration_does(name: str, valid: list[object], invalid: list[object]) -> None:
    for value in valid:
        VALIDATOR.validate({"bootstrap_servers": "h:1", name: value})
        if not name.startswith(("sasl_", "ssl_", "security_")):  # which need others
            ProducerConfig.from_kafka_properties({"bootstrap_servers": "h:1", name: value})
    for value in invalid:
        assert not VALIDATOR.is_valid({"bootstrap_servers": "h:1", name: value}), value


def test_secrets_are_write_only() -> None:
    secret = {name for name, option in PROPERTIES.items() if option.get("writeOnly")}

    assert {"sasl_password", "sasl_jaas_config", "ssl_keystore_key", "ssl_key_password", "proxy_url"} <= secret
    assert {name for name, kind in option_kinds().items() if getattr(kind, "is_secret", False)} == secret
