"""Options that cannot be, given to `Producer`: refused by the constructor, by name, before anything is opened."""

import math
import warnings

import pytest

from aioproducer import ConfigurationError, Producer, ProducerConfig
from aioproducer.testing import FakeCluster


async def serialize_later(value: object) -> bytes:
    """Be of no use as a serializer."""
    return bytes(str(value), "ascii")


class Interceptor:
    """One whose `on_send` cannot be called."""

    on_send = 5

    def on_acknowledgement(self, metadata: object, headers: object) -> None:
        """Do nothing."""

    def on_error(self, topic_partition: object, error: object, headers: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "servers, message",
    [
        ([], "at least one host:port"),
        ("", "at least one host:port"),
        (":9092", "no host"),
        ("h:abc", "no number"),
        ("h:0", "between 1 and 65535"),
        ("h:99999", "between 1 and 65535"),
        ("[::1", "IPv6"),
        ("a b:9092", "a b:9092"),
        ("kafka://h:9092", "'h:9092'"),
        ("h", "no port"),
        ("a:1;b:2", "several servers have commas between them"),
        ("a:1 b:2", "several servers have commas between them"),
    ],
)
def test_servers_are_refused(servers: str | list[str], message: str) -> None:
    """With the server that is wrong, and what is."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        Producer(servers)

    assert caught.value.option == "bootstrap_servers"
    assert "bootstrap_servers" in str(caught.value)


@pytest.mark.parametrize("servers", [None, 9092, b"h:9092", {"h:9092"}, [9092]], ids=repr)
def test_servers_of_another_type_are_a_type_error(servers: object) -> None:
    """Which is a configuration error too."""
    with pytest.raises(TypeError, match="bootstrap_servers") as caught:
        Producer(servers)  # type: ignore[arg-type]

    assert isinstance(caught.value, ConfigurationError)


OUT_OF_RANGE: list[dict[str, object]] = [
    {"linger_ms": -5},
    {"batch_size": -1},
    {"buffer_memory": 0},
    {"max_request_size": 0},
    {"max_request_size": 2**31},
    {"request_timeout_ms": 0},
    {"delivery_timeout_ms": 10, "linger_ms": 5, "request_timeout_ms": 10},
    {"delivery_timeout_ms": 0},
    {"max_block_ms": -1},
    {"retry_backoff_ms": -1},
    {"reconnect_backoff_ms": 0},
    {"acks": 2},
    {"acks": 1, "enable_idempotence": True},
    {"acks": 0, "enable_idempotence": True},
    {"max_in_flight_requests_per_connection": 6, "enable_idempotence": True},
    {"max_in_flight_requests_per_connection": 0},
    {"compression_type": "lzma"},
    {"transactional_id": ""},
    {"client_id": "a\nb"},
    {"security_protocol": "TLS"},
    {"metadata_max_age_ms": 0},
    {"connections_max_idle_ms": -1},
    {"close_timeout_ms": -1},
    {"exit_flush_timeout_ms": -1},
    {"max_waiting_records": -1},
]

OF_ANOTHER_TYPE: list[dict[str, object]] = [
    {"linger_ms": "5"},
    {"linger_ms": math.nan},
    {"linger_ms": math.inf},
    {"linger_ms": True},
    {"linger_ms": None},
    {"request_timeout_ms": math.nan},
    {"acks": True},
    {"transactional_id": 5},
    {"client_id": 5},
    {"key_serializer": 5},
    {"value_serializer": 5},
    {"key_serializer": serialize_later},
    {"value_serializer": serialize_later},
    {"partitioner": 5},
    {"partitioner": print},
    {"partitioner": "murmur2_random"},
    {"partitioner": b"random"},
    {"interceptors": 5},
    {"interceptors": [print]},
    {"interceptors": [Interceptor()]},
    {"enable_idempotence": 1},
]


def name_of(options: dict[str, object]) -> str:
    """A short test id."""
    return ", ".join(f"{name}={getattr(value, '__name__', repr(value))}" for name, value in options.items())[:60]


@pytest.mark.parametrize("options", OUT_OF_RANGE, ids=name_of)
def test_option_out_of_range_is_refused(options: dict[str, object]) -> None:
    """A ValueError of ours that names option and value; the next producer is none the worse for it."""
    with pytest.raises(ConfigurationError) as caught:
        Producer("h:9092", **options)  # type: ignore[arg-type]

    name = next(iter(options))
    assert isinstance(caught.value, ValueError)
    assert name in str(caught.value)
    assert not isinstance(caught.value, TypeError)
    assert "new" in repr(Producer("h:9092"))


@pytest.mark.parametrize("options", OF_ANOTHER_TYPE, ids=name_of)
def test_option_of_another_type_is_a_type_error(options: dict[str, object]) -> None:
    """Which is a configuration error too, and names the option."""
    with pytest.raises(TypeError, match=next(iter(options))) as caught:
        Producer("h:9092", **options)  # type: ignore[arg-type]

    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize("name, nearest", [("linger", "linger_ms"), ("acs", "acks"), ("batchsize", "batch_size")])
def test_unknown_option_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    """A TypeError, as Python's own for keywords."""
    with pytest.raises(TypeError, match=f"'{name}'.*{nearest}"):
        Producer("h:9092", **{name: 5})  # type: ignore[arg-type]


def test_options_beside_a_whole_configuration_change_it() -> None:
    """And are checked as ever."""
    whole = ProducerConfig(bootstrap_servers="h:9092", linger_ms=7)

    assert Producer(whole, acks=1).config.linger_ms == 7
    with pytest.raises(ConfigurationError, match="linger_ms"):
        Producer(whole, linger_ms=-5)


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"linger_ms": 0}, {"retries": 1}, {"max_block_ms": 0}], ids=name_of
)
def test_limits_that_are_legal_are_taken(options: dict[str, int]) -> None:
    """At their edges."""
    producer = Producer("h:9092", **options)  # type: ignore[arg-type]

    assert "new" in repr(producer)


async def test_options_that_are_none_are_as_if_not_given(one_broker: FakeCluster) -> None:
    """Interceptors among them: refused or taken, but not at the start."""
    nothing = {"interceptors": None, "partitioner": None, "key_serializer": None, "value_serializer": None}

    async with Producer(one_broker.bootstrap_servers, **nothing) as producer:  # type: ignore[arg-type]
        await producer.send("orders", b"v")


def test_producer_may_be_constructed_without_a_loop() -> None:
    """And dropped again without a word: nothing was opened."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer = Producer("h:9092")
        text = repr(producer)
        del producer

    assert "new" in text
