"""Values in effect: defaults, values derived from other options, and the configuration as a value."""

import copy
import dataclasses
import pickle
import re

import pytest

from aioproducer._accumulator.buffer_pool import BufferPool
from aioproducer._producer.component_settings import accumulator_settings
from aioproducer.config import ProducerConfig
from aioproducer.config._option_types import IntOption, OptionalWhole
from aioproducer.errors import ConfigurationError
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import StringSerializer


def config(**options: object) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="h:9092", **options)  # type: ignore[arg-type]


# Defaults and values in effect


@pytest.mark.parametrize(
    "name, expected",
    [
        ("acks", -1),
        ("enable_idempotence", True),
        ("retries", 2_147_483_647),
        ("max_in_flight_requests_per_connection", 5),
        ("linger_ms", 5),
        ("batch_size", 262_144),
        ("max_request_size", 1_048_576),
        ("buffer_memory", 33_554_432),
        ("max_waiting_records", 65_536),
        ("max_waiting_bytes", 8_388_608),
        ("compression_type", "none"),
        ("max_block_ms", 60_000),
        ("delivery_timeout_ms", 120_000),
        ("request_timeout_ms", 30_000),
        ("close_timeout_ms", 30_000),
        ("exit_flush_timeout_ms", 1_000),
        ("retry_backoff_ms", 100),
        ("retry_backoff_max_ms", 1_000),
        ("reconnect_backoff_ms", 50),
        ("reconnect_backoff_max_ms", 1_000),
        ("socket_connection_setup_timeout_ms", 10_000),
        ("socket_connection_setup_timeout_max_ms", 30_000),
        ("connections_max_idle_ms", 540_000),
        ("send_buffer_bytes", 131_072),
        ("receive_buffer_bytes", 32_768),
        ("metadata_max_age_ms", 300_000),
        ("metadata_max_idle_ms", 300_000),
        ("metadata_recovery_rebootstrap_trigger_ms", 300_000),
        ("interceptors", ()),
        ("key_serializer", None),
        ("partitioner_adaptive_partitioning_enable", True),
        ("partitioner_availability_timeout_ms", 0),
        ("partitioner_rack_aware", False),
        ("client_rack", ""),
        ("partitioner_ignore_keys", False),
        ("client_id", ""),
    ],
)
def test_default_is_kafkas(name: str, expected: object) -> None:
    """batch_size, and options that Kafka does not have, are exceptions."""
    assert getattr(config(), name) == expected


@pytest.mark.parametrize(
    "acks, expected", [("all", -1), (-1, -1), ("-1", -1), (1, 1), ("1", 1), (0, 0), ("0", 0)], ids=repr
)
def test_acks_is_a_number_in_effect(acks: object, expected: int) -> None:
    assert config(acks=acks).acks == expected


def test_defaults_need_no_adjustment() -> None:
    assert config().adjustments == ()


@pytest.mark.parametrize(
    "options, adjusted",
    [
        ({"acks": 1}, ("enable_idempotence", False, "acks=1")),
        ({"acks": 0}, ("enable_idempotence", False, "acks=0")),
        ({"retries": 0}, ("enable_idempotence", False, "retries=0")),
        ({"linger_ms": 100_000}, ("delivery_timeout_ms", 130_000, "linger_ms + request_timeout_ms")),
        ({"linger_ms": 2**31 - 1}, ("delivery_timeout_ms", 2**31 - 1, "linger_ms + request_timeout_ms")),
        ({"linger_ms": 2**40}, ("delivery_timeout_ms", 2**31 - 1, "linger_ms + request_timeout_ms")),
        ({"reconnect_backoff_ms": 200}, ("reconnect_backoff_max_ms", 200, "only reconnect_backoff_ms was given")),
        ({"retry_backoff_ms": 5_000}, ("retry_backoff_max_ms", 5_000, "retry_backoff_ms=5000")),
        (
            {"socket_connection_setup_timeout_ms": 60_000},
            ("socket_connection_setup_timeout_max_ms", 60_000, "socket_connection_setup_timeout_ms=60000"),
        ),
    ],
    ids=str,
)
def test_value_follows_from_another(options: dict[str, object], adjusted: tuple[str, object, str]) -> None:
    """Kafka derives it, too; the log gives the reason."""
    result = config(**options)

    assert result.adjustments == (adjusted,)
    assert getattr(result, adjusted[0]) == adjusted[1]


def test_longest_delivery_timeout_covers_any_linger() -> None:
    """Users that send by `flush` alone give the largest of both, as Kafka accepts them."""
    result = config(linger_ms=2**31 - 1, delivery_timeout_ms=2**31 - 1)

    assert result.delivery_timeout_ms == 2**31 - 1


@pytest.mark.parametrize(
    "given, expected", [({}, 500), ({"max_waiting_bytes": None}, 500), ({"max_waiting_bytes": 7}, 7)]
)
def test_max_waiting_bytes_is_a_quarter_of_the_buffer(given: dict[str, object], expected: int) -> None:
    assert config(buffer_memory=2000, **given).max_waiting_bytes == expected


def test_kinds_of_options_with_the_same_range_are_not_equal() -> None:
    """Python 3.11.2 merges equal annotations: `max_waiting_bytes` got the kind of `buffer_memory`."""
    assert OptionalWhole(0, 9) != IntOption(0, 9)
    assert OptionalWhole(0, 9) == OptionalWhole(0, 9)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"enable_idempotence": True, "acks": 1}, 'enable_idempotence=True needs acks="all", not 1'),
        ({"enable_idempotence": True, "acks": 0}, 'enable_idempotence=True needs acks="all", not 0'),
        ({"enable_idempotence": True, "retries": 0}, "enable_idempotence=True needs retries above 0"),
        ({"partitioner_rack_aware": True}, "partitioner_rack_aware=True needs client_rack"),
        ({"partitioner.rack.aware": True, "client.rack": " "}, "partitioner_rack_aware=True needs client_rack"),
        ({"transactional_id": "t", "enable_idempotence": False}, "transactional_id='t' needs enable_idempotence=True"),
        ({"transactional_id": "t", "acks": 1}, "transactional_id='t' needs enable_idempotence=True"),
        ({"transactional_id": "t", "retries": 0}, "transactional_id='t' needs enable_idempotence=True"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            "max_in_flight_requests_per_connection must be at most 5 with idempotence, not 6",
        ),
        ({"max_in_flight_requests_per_connection": 6}, "max_in_flight_requests_per_connection must be at most 5"),
        (
            {"delivery_timeout_ms": 30_004},
            "delivery_timeout_ms must be at least linger_ms + request_timeout_ms = 5 + 30000 = 30005, not 30004",
        ),
        (
            {"linger_ms": 2**40, "delivery_timeout_ms": 1},
            "= 1099511627776 + 30000 = 1099511657776, or 2147483647, the longest there is, not 1",
        ),
        (
            {"retry_backoff_ms": 10, "retry_backoff_max_ms": 9},
            "retry_backoff_max_ms must be at least retry_backoff_ms = 10, not 9",
        ),
        ({"reconnect_backoff_max_ms": 49}, "reconnect_backoff_max_ms must be at least reconnect_backoff_ms = 50"),
        (
            {"socket_connection_setup_timeout_max_ms": 9_999},
            "socket_connection_setup_timeout_max_ms must be at least socket_connection_setup_timeout_ms = 10000",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:60],
)
def test_options_that_cannot_go_together_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        config(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"enable_idempotence": False, "max_in_flight_requests_per_connection": 6},
        {"enable_idempotence": False, "acks": 1},
        {"acks": 1, "max_in_flight_requests_per_connection": 100},
        {"batch_size": 0},
        {"linger_ms": 0},
        {"max_block_ms": 2**63 - 1},
        {"delivery_timeout_ms": 30_005},
        {"compression_zstd_level": -131_072},
        {"send_buffer_bytes": -1},
        {"client_id": "producer é"},
        {"security_protocol": "PLAINTEXT", "transactional_id": None},
    ],
    ids=str,
)
def test_legal_limits_are_accepted(options: dict[str, object]) -> None:
    result = config(**options)

    assert {name: getattr(result, name) for name in options} == options


def test_plugins_are_kept_as_they_are() -> None:
    """Serializers, partitioner and interceptors are the user's own objects."""
    serializer, partitioner, interceptor = StringSerializer(), RoundRobinPartitioner(), ProducerInterceptor()
    result = config(
        key_serializer=serializer, value_serializer=str.encode, partitioner=partitioner, interceptors=[interceptor]
    )

    assert result.key_serializer is serializer
    assert result.value_serializer == str.encode
    assert result.partitioner is partitioner
    assert result.interceptors == (interceptor,)


# As a value


def test_config_is_frozen() -> None:
    """The configuration of a running producer cannot be changed."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().linger_ms = 1  # type: ignore[misc]


def test_config_equals_by_content_and_can_be_copied() -> None:
    original = config(linger_ms=3, acks=1)

    assert config(acks=1, linger_ms=3) == original
    assert copy.deepcopy(original) == original
    assert pickle.loads(pickle.dumps(original)) == original
    assert config() != original


def test_replace_keeps_given_options_and_derives_the_rest() -> None:
    """Idempotence switched off by acks=1 comes back with acks="all"."""
    result = config(acks=1, linger_ms=3).replace(acks="all")

    assert (result.acks, result.enable_idempotence, result.linger_ms) == (-1, True, 3)
    assert result.bootstrap == (("h", 9092),)


def test_of_takes_servers_or_a_whole_config() -> None:
    whole = config(linger_ms=3)

    assert ProducerConfig.of("h:9092", {"linger_ms": 3}) == whole
    assert ProducerConfig.of(whole, {}) is whole
    assert ProducerConfig.of(whole, {"acks": 1}) == config(linger_ms=3, acks=1)


def test_name_client_numbers_the_nameless() -> None:
    """Two producers of one configuration have different names in the logs."""
    first, second = config().name_client(), config().name_client()

    assert config(client_id="mine").name_client() == "mine"
    assert first != second
    assert re.fullmatch(r"producer-\d+", first)


def test_replace_may_change_the_servers() -> None:
    result = config(linger_ms=3).replace(bootstrap_servers="other:9092")

    assert result.bootstrap_servers == ("other:9092",)
    assert result.linger_ms == 3


@pytest.mark.parametrize("buffer_memory", [262_144, 300_001, 1_048_576, 33_554_432])
def test_buffer_of_some_size_has_room_for_whole_batches(buffer_memory: int) -> None:
    """Else no batch could reach the size that the settings allow."""
    batch_size = accumulator_settings(config(buffer_memory=buffer_memory)).batch_size

    assert BufferPool(buffer_memory, batch_size, on_return=lambda: None).is_roomy


@pytest.mark.parametrize(
    "options, timeout_s, rack",
    [
        ({}, 0.0, None),
        ({"client_rack": "a"}, 0.0, None),
        ({"client.rack": "a", "partitioner.rack.aware": True}, 0.0, "a"),
        ({"partitioner.availability.timeout.ms": 1_500}, 1.5, None),
        ({"partitioner_availability_timeout_ms": 1, "partitioner_adaptive_partitioning_enable": False}, 0.0, None),
    ],
    ids=str,
)
def test_keyless_records_prefer_what_the_options_say(
    options: dict[str, object], timeout_s: float, rack: str | None
) -> None:
    """As in Kafka, a rack alone changes nothing, nor does the time-out without adaptive partitioning."""
    settings = accumulator_settings(config(**options))

    assert (settings.availability_timeout_s, settings.rack) == (timeout_s, rack)
