"""The constructor's arguments, where they cannot be."""

import inspect

import aiokafka
import pytest

from aioproducer import ConfigurationError
from aioproducer.compat import AIOKafkaProducer
from aioproducer.testing import FakeCluster


@pytest.mark.parametrize(
    "option, value",
    [
        ("request_timeout_ms", "40000"),
        ("request_timeout_ms", None),
        ("request_timeout_ms", 1000.0),
        ("request_timeout_ms", 0),
        ("linger_ms", None),
        ("linger_ms", -1),
        ("max_batch_size", -1),
        ("bootstrap_servers", None),
        ("bootstrap_servers", "localhost:port"),
        ("bootstrap_servers", [b"localhost"]),
        ("bootstrap_servers", [("localhost", 9092)]),
        ("bootstrap_servers", [None]),
        ("bootstrap_servers", "PLAINTEXT://localhost"),
        ("partitioner", None),
        ("key_serializer", 5),
        ("value_serializer", "json"),
    ],
)
def test_option_that_cannot_be_is_named_as_it_was_given(option: str, value: object) -> None:
    """The error has aiokafka's name of the option, not the `Producer`'s."""
    with pytest.raises(ValueError, match=f"^{option} ") as refused:
        AIOKafkaProducer(**{option: value})  # type: ignore[arg-type]

    assert isinstance(refused.value, ConfigurationError)
    assert refused.value.option == option


@pytest.mark.parametrize("servers", ["PLAINTEXT://broker:9092", "broker1:9092;broker2:9092"])
def test_server_that_is_refused_is_shown_as_given(servers: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^bootstrap_servers.* '{servers}'"):
        AIOKafkaProducer(bootstrap_servers=servers)


def test_request_timeout_may_be_as_long_as_aiokafkas() -> None:
    """A record's life is twice as long, as far as the protocol counts."""
    AIOKafkaProducer(request_timeout_ms=2**31 - 1)


AIOKAFKAS = {
    name: parameter.default
    for name, parameter in inspect.signature(aiokafka.AIOKafkaProducer).parameters.items()
    if parameter.default is not inspect.Parameter.empty
}
"""Among them the object that is the default of `acks`, which FastStream imports and passes on."""


async def test_aiokafkas_defaults_may_be_passed_on(one_broker: FakeCluster) -> None:
    """All of them together, as frameworks pass them."""
    given = AIOKAFKAS | {"bootstrap_servers": one_broker.bootstrap_servers}
    async with AIOKafkaProducer(**given) as producer:
        metadata = await producer.send_and_wait("orders", b"1", partition=0)

    assert metadata.offset == 0


@pytest.mark.parametrize("default", AIOKAFKAS)
def test_each_default_alone_is_no_change(default: str) -> None:
    """Passing a default by name gives the same configuration as leaving it out."""
    given = AIOKafkaProducer(**({"client_id": "a"} | {default: AIOKAFKAS[default]}))  # type: ignore[arg-type]
    without = AIOKafkaProducer(client_id="a")

    if default != "client_id":
        assert given._config == without._config  # noqa: SLF001  # what was made of the arguments


@pytest.mark.parametrize("acks", ["1", "0", "-1", "ALL", "", 2, None])
async def test_acks_that_aiokafka_refuses_are_refused(acks: object) -> None:
    """The error is a `ValueError`, as in aiokafka; `ProducerConfig` alone would accept "1"."""
    for made in (aiokafka.AIOKafkaProducer, AIOKafkaProducer):
        with pytest.raises(ValueError, match=r"(?i)acks"):
            made(acks=acks)


@pytest.mark.parametrize("compression_type", ["none", "", "GZIP", "lzma", 0])
async def test_compression_that_aiokafka_refuses_is_refused(compression_type: object) -> None:
    for made in (aiokafka.AIOKafkaProducer, AIOKafkaProducer):
        with pytest.raises(ValueError, match=r"(?i)compression.type"):
            made(compression_type=compression_type)
