"""Every option is checked in the constructor, every mistake says what is allowed, and a producer tells what it uses."""

import copy
import dataclasses
import pickle
import re

import pytest

from aioproducer._accumulator.buffer_pool import BufferPool
from aioproducer._producer.component_settings import accumulator_settings
from aioproducer._shown_values import shown as value_shown
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.config._option_types import IntOption, OptionalWhole
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import StringSerializer


def config(**options: object) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="h:9092", **options)  # type: ignore[arg-type]


# bootstrap_servers


@pytest.mark.parametrize(
    "given, expected",
    [
        ("h:9092", (("h", 9092),)),
        ("a:1,b:65535", (("a", 1), ("b", 65535))),
        (" a:1 , b:2 ,", (("a", 1), ("b", 2))),
        (["a:1", " b:2"], (("a", 1), ("b", 2))),
        (("10.0.0.1:9092",), (("10.0.0.1", 9092),)),
        ("[::1]:9092", (("::1", 9092),)),
        ("[fe80::1%eth0]:9092", (("fe80::1%eth0", 9092),)),
        ("kafka-0.kafka_svc:9092", (("kafka-0.kafka_svc", 9092),)),
        ("b:1,a:1,b:1,b:2", (("b", 1), ("a", 1), ("b", 2))),
        (["a:1", " a:1"], (("a", 1),)),
    ],
)
def test_bootstrap_servers_are_read(given: object, expected: object) -> None:
    assert ProducerConfig(bootstrap_servers=given).bootstrap == expected


def test_bootstrap_servers_keep_one_spelling() -> None:
    """The field holds host:port texts for every accepted form."""
    assert ProducerConfig(bootstrap_servers=" a:1,[::1]:2").bootstrap_servers == ("a:1", "[::1]:2")


@pytest.mark.parametrize(
    "given, message",
    [
        ([], "bootstrap_servers is empty; give at least one host:port"),
        ("", "bootstrap_servers is empty"),
        (" , ", "bootstrap_servers is empty"),
        ([""], "'' is not host:port: it has no port"),
        (":9092", "':9092' is not host:port: it has no host"),
        ("h", "'h' is not host:port: it has no port; brokers usually listen on 9092"),
        ("h:", "'h:' is not host:port: it has no port"),
        ("h:abc", "'h:abc' is not host:port: the port is not a number"),
        ("h:-1", "the port is not a number"),
        ("h:\u0661", "the port is not a number"),
        ("h:0", "the port must be between 1 and 65535"),
        ("h:99999", "the port must be between 1 and 65535"),
        ("[::1", "'[::1' is not host:port: an IPv6 address is written [::1]:9092"),
        ("[::1]", "'[::1]' is not host:port: it has no port"),
        ("[h]:9092", "an IPv6 address is written [::1]:9092"),
        ("::1:9092", "an IPv6 address needs brackets"),
        ("a b:9092", "'a b:9092' is not host:port: the host has a character that no host name has"),
        ("user@h:9092", "takes host:port without a user: 'h:9092'"),
        ("user:pw@h:9092", "takes host:port without a user: 'h:9092'"),
        ("sasl://user:pw@h:9092", "takes host:port without a user: 'h:9092'"),
        (["kafka://user:pw@h1:9092,h2:9092"], "takes host:port without a user: 'h1:9092,h2:9092'"),
        ("kafka://user:pw,x@h:9092", "takes host:port without a user: 'h:9092'"),
        (["kafka://user:pw", "x@h:9092"], "takes host:port without a user: 'h:9092'"),
        ("g:x,kafka://user:pw@h:9092", "takes host:port without a user: 'h:9092'"),
        (["h:1,g:2"], "'h:1,g:2' is not host:port: each item of a sequence is one server"),
        ("kafka://h:9092", "takes host:port without a scheme: 'h:9092', not 'kafka://h:9092'"),
    ],
)
def test_bootstrap_servers_are_refused(given: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        ProducerConfig(bootstrap_servers=given)

    assert "bootstrap_servers" in str(caught.value)
    assert "pw" not in str(caught.value)
    assert caught.value.option == "bootstrap_servers"


@pytest.mark.parametrize("given", [None, 9092, b"h:9092", {"h:9092"}, {"h": 9092}, [9092], [("h", 9092)]])
def test_bootstrap_servers_of_another_type_are_refused(given: object) -> None:
    """A set has no order, and bytes or a pair are not text."""
    with pytest.raises(ConfigurationTypeError, match=r"^bootstrap_servers(\[0\])? must be a str"):
        ProducerConfig(bootstrap_servers=given)


# Wrong values and wrong types


def shown(given: dict[str, object] | str) -> str | None:
    """A short test id, the same in every run: functions and classes by their names."""
    if isinstance(given, str):
        return None
    return ", ".join(f"{name}={getattr(value, '__name__', value_shown(value))}" for name, value in given.items())[:60]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"linger_ms": -5}, "linger_ms must be between 0 and 9223372036854775807, not -5"),
        ({"linger_ms": 2**63}, "linger_ms must be between 0 and"),
        ({"linger_ms": float("nan")}, "linger_ms must be an int, not float (nan)"),
        ({"linger_ms": float("inf")}, "linger_ms must be an int, not float (inf)"),
        ({"batch_size": -1}, "batch_size must be between 0 and 2147483647, not -1"),
        ({"buffer_memory": 0}, "buffer_memory must be between 1024 and"),
        ({"buffer_memory": 1023}, "buffer_memory must be between 1024 and 9223372036854775807, not 1023"),
        ({"linger_ms": 10**5000}, "linger_ms must be between 0 and 9223372036854775807, not a number of 16610 bits"),
        ({"linger_ms": -(10**5000)}, "linger_ms must be between 0 and"),
        ({"acks": 10**5000}, 'acks must be "all", -1, 1 or 0, not a number of 16610 bits'),
        ({"acks": "1" * 5000}, 'acks must be "all", -1, 1 or 0, not \'1111'),
        ({"max_request_size": 0}, "max_request_size must be between 1 and 2147483647, not 0"),
        ({"max_request_size": 2**31}, "max_request_size must be between 1 and 2147483647, not 2147483648"),
        ({"request_timeout_ms": 0}, "request_timeout_ms must be between 1 and"),
        ({"delivery_timeout_ms": 0}, "delivery_timeout_ms must be between 1 and"),
        ({"max_block_ms": -1}, "max_block_ms must be between 0 and"),
        ({"close_timeout_ms": -1}, "close_timeout_ms must be between 0 and"),
        ({"retries": -1}, "retries must be between 0 and"),
        ({"retry_backoff_ms": -1}, "retry_backoff_ms must be between 0 and"),
        ({"reconnect_backoff_ms": 0}, "reconnect_backoff_ms must be between 1 and"),
        ({"socket_connection_setup_timeout_ms": 0}, "socket_connection_setup_timeout_ms must be between 1 and"),
        ({"acks": 2}, 'acks must be "all", -1, 1 or 0, not 2'),
        ({"acks": "most"}, "acks must be \"all\", -1, 1 or 0, not 'most'"),
        ({"max_in_flight_requests_per_connection": 0}, "max_in_flight_requests_per_connection must be between 1"),
        ({"compression_type": "lzma"}, "compression_type must be one of none, gzip, snappy, lz4, zstd, not 'lzma'"),
        ({"compression_gzip_level": 0}, "compression_gzip_level must be -1, or 1 to 9, not 0"),
        ({"compression_gzip_level": 10}, "compression_gzip_level must be between -1 and 9, not 10"),
        ({"compression_lz4_level": 18}, "compression_lz4_level must be between 1 and 17, not 18"),
        ({"compression_zstd_level": 23}, "compression_zstd_level must be between -131072 and 22, not 23"),
        ({"client_id": "a\nb"}, "client_id must be printable text, without control characters, not 'a\\nb'"),
        ({"client_id": "x" * 40_000}, "client_id must be at most 32767 bytes long"),
        ({"client_rack": "a\nb"}, "client_rack must be printable text, without control characters, not 'a\\nb'"),
        ({"partitioner_availability_timeout_ms": -1}, "partitioner_availability_timeout_ms must be between 0 and"),
        ({"partitioner_availability_timeout_ms": 2**63}, "partitioner_availability_timeout_ms must be between 0 and"),
        ({"metadata_max_age_ms": 0}, "metadata_max_age_ms must be between 1 and"),
        ({"metadata_max_idle_ms": 4999}, "metadata_max_idle_ms must be between 5000 and"),
        ({"connections_max_idle_ms": -1}, "connections_max_idle_ms must be between 1 and"),
        ({"send_buffer_bytes": -2}, "send_buffer_bytes must be between -1 and"),
        ({"receive_buffer_bytes": -2}, "receive_buffer_bytes must be between -1 and"),
        ({"max_waiting_records": -1}, "max_waiting_records must be between 0 and"),
        ({"max_waiting_bytes": -1}, "max_waiting_bytes must be between 0 and"),
        ({"transactional_id": ""}, "transactional_id must be None, or text that is not empty, not ''"),
        ({"transactional_id": "t" * 32_768}, "transactional_id must be at most 32767 bytes long (32768 were given)"),
        ({"transactional_id": "\ud800"}, "transactional_id cannot be encoded as UTF-8"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms must be between 1 and 2147483647, not 0"),
        ({"transaction_timeout_ms": -1}, "transaction_timeout_ms must be between 1 and 2147483647, not -1"),
        (
            {"security_protocol": "TLS"},
            "security_protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL (Kafka",
        ),
        (
            {"security_protocol": "SASL"},
            "security_protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not",
        ),
    ],
    ids=shown,
)
def test_value_out_of_range_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        config(**options)

    assert [caught.value.option] == list(options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"linger_ms": "5"}, "linger_ms must be an int, not str ('5')"),
        ({"linger_ms": 5.0}, "linger_ms must be an int, not float (5.0)"),
        ({"linger_ms": True}, "linger_ms must be an int, not bool (True)"),
        ({"linger_ms": None}, "linger_ms must be an int, not NoneType (None)"),
        ({"linger_ms": [10**5000]}, "linger_ms must be an int, not list (an object of type list)"),
        ({"client_id": 10**5000}, "client_id must be a str, not int (a number of 16610 bits)"),
        ({"acks": True}, 'acks must be an int or "all", not bool (True)'),
        ({"acks": 1.0}, 'acks must be an int or "all", not float (1.0)'),
        ({"enable_idempotence": 1}, "enable_idempotence must be True or False, not int (1)"),
        ({"compression_type": None}, "compression_type must be a str, not NoneType (None)"),
        ({"client_id": 5}, "client_id must be a str, not int (5)"),
        ({"client_rack": None}, "client_rack must be a str, not NoneType (None)"),
        ({"partitioner_rack_aware": "true"}, "partitioner_rack_aware must be True or False, not str ('true')"),
        (
            {"partitioner_availability_timeout_ms": 1.5},
            "partitioner_availability_timeout_ms must be an int, not float (1.5)",
        ),
        ({"transactional_id": 5}, "transactional_id must be a str or None, not int (5)"),
        ({"key_serializer": 5}, "key_serializer must be a function of the value, or an object"),
        ({"value_serializer": 5}, "value_serializer must be a function of the value, or an object"),
        ({"value_serializer": StringSerializer}, "value_serializer must be an instance: StringSerializer()"),
        ({"partitioner": 5}, "partitioner must be an object with partition("),
        ({"partitioner": RoundRobinPartitioner}, "partitioner must be an instance: RoundRobinPartitioner()"),
        ({"interceptors": 5}, "interceptors must be a list of ProducerInterceptor, not int"),
        ({"interceptors": [5]}, "interceptors[0] must be a ProducerInterceptor, not int"),
    ],
    ids=shown,
)
def test_value_of_wrong_type_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)) as caught:
        config(**options)

    assert isinstance(caught.value, ConfigurationError)
    assert [caught.value.option] == list(options)


# Names


@pytest.mark.parametrize(
    "name, message",
    [
        ("linger", "there is no option 'linger'; did you mean 'linger_ms'?"),
        ("linger.sm", "there is no option 'linger.sm'; did you mean 'linger.ms'?"),
        ("max_in_flight", "there is no option 'max_in_flight'"),
        ("LINGER_MS", "there is no option 'LINGER_MS'; did you mean 'linger_ms'?"),
        ("Linger.Ms", "there is no option 'Linger.Ms'; did you mean 'linger.ms'?"),
        (
            "ssl.trustore.location",
            "there is no option 'ssl.trustore.location'; did you mean 'ssl.truststore.location'?",
        ),
        ("colour", "there is no option 'colour'"),
    ],
)
def test_unknown_option_is_refused_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)) as caught:
        config(**{name: 1})

    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(
    "name, message",
    [
        ("ssl_crl_location", "aioproducer has no option 'ssl_crl_location': pass ssl_context="),
        ("sasl_plain_password", "there is no option 'sasl_plain_password'; use 'sasl_password'"),
        ("sasl_kerberos_kinit_cmd", "nothing here corresponds to it; only '/usr/bin/kinit' is accepted"),
        ("metric.reporters", "metrics are read with Producer.statistics()"),
        ("partitioner.class", "partitioner must be an object with partition("),
        ("loop", "it belongs to another client, and nothing here corresponds to it"),
    ],
)
def test_foreign_option_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(ConfigurationTypeError, match=re.escape(message)) as caught:
        config(**{name: "hunter2"})

    assert "hunter2" not in str(caught.value)


def test_options_may_have_kafkas_spelling() -> None:
    assert config(**{"linger.ms": 20, "batch.size": 5}).linger_ms == 20


def test_option_in_both_spellings_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"linger_ms is given twice, as 'linger.ms' and 'linger_ms'"):
        config(**{"linger.ms": 20, "linger_ms": 20})


def test_typed_options_are_the_fields() -> None:
    fields = {field.name for field in dataclasses.fields(ProducerConfig) if field.init}

    assert set(ProducerOptions.__annotations__) == fields - {"bootstrap_servers"}


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
        {"delivery_timeout_ms": 2**31 - 1, "linger_ms": 2**31 - 1},  # the longest of both, for who sends by `flush`
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
    assert result.replace(bootstrap_servers="other:9092").bootstrap_servers == ("other:9092",)


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
