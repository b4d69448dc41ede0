"""Every option is checked in the constructor, and every mistake says what is allowed."""

import copy
import dataclasses
import pickle
import re

import pytest

from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.config.option_names import kafka_name
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import BytesSerializer, StringSerializer


async def async_serializer(value: object) -> bytes:
    """Be of no use as a serializer."""
    return bytes(str(value), "ascii")


def config(**options: object) -> ProducerConfig:
    """Return a configuration with these options; also with wrong ones."""
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
    ],
)
def test_bootstrap_servers_are_read(given: object, expected: object) -> None:
    """A string with commas, or a sequence."""
    assert ProducerConfig(bootstrap_servers=given).bootstrap == expected


def test_bootstrap_servers_keep_one_spelling() -> None:
    """Whatever was given, the field holds host:port texts."""
    assert ProducerConfig(bootstrap_servers=" a:1,[::1]:2").bootstrap_servers == ("a:1", "[::1]:2")


@pytest.mark.parametrize(
    "given, message",
    [
        ([], "bootstrap_servers is empty; give at least one host:port"),
        ("", "bootstrap_servers is empty"),
        (" , ", "bootstrap_servers is empty"),
        ([""], "'' is not host:port: it has no port"),
        (":9092", "':9092' is not host:port: it has no host"),
        ("h", "'h' is not host:port: it has no port"),
        ("h:", "'h:' is not host:port: it has no port"),
        ("h:abc", "'h:abc' is not host:port: the port is no number"),
        ("h:-1", "the port is no number"),
        ("h:\u0661", "the port is no number"),
        ("h:0", "the port must be between 1 and 65535"),
        ("h:99999", "the port must be between 1 and 65535"),
        ("[::1", "'[::1' is not host:port: an IPv6 address is written [::1]:9092"),
        ("[::1]", "'[::1]' is not host:port: it has no port"),
        ("[h]:9092", "an IPv6 address is written [::1]:9092"),
        ("::1:9092", "an IPv6 address needs brackets"),
        ("a b:9092", "'a b:9092' is not host:port: the host has a character that no host name has"),
        ("user@h:9092", "the host has a character that no host name has"),
        ("kafka://h:9092", "takes host:port without a scheme: 'h:9092', not 'kafka://h:9092'"),
        ("h:9092,h:9092", "names h:9092 twice"),
    ],
)
def test_bootstrap_servers_are_refused(given: object, message: str) -> None:
    """Which server, and what is wrong with it."""
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        ProducerConfig(bootstrap_servers=given)

    assert "bootstrap_servers" in str(caught.value)
    assert caught.value.option == "bootstrap_servers"


@pytest.mark.parametrize("given", [None, 9092, b"h:9092", {"h:9092"}, {"h": 9092}, [9092], [("h", 9092)]])
def test_bootstrap_servers_of_another_type_are_refused(given: object) -> None:
    """A set has no order, bytes are no text, a pair is no text."""
    with pytest.raises(ConfigurationTypeError, match=r"^bootstrap_servers(\[0\])? must be a str"):
        ProducerConfig(bootstrap_servers=given)


# Wrong values and wrong types


@pytest.mark.parametrize(
    "options, message",
    [
        ({"linger_ms": -5}, "linger_ms must be between 0 and 9223372036854775807, not -5"),
        ({"linger_ms": 2**63}, "linger_ms must be between 0 and"),
        ({"linger_ms": float("nan")}, "linger_ms must be an int, not float (nan)"),
        ({"linger_ms": float("inf")}, "linger_ms must be an int, not float (inf)"),
        ({"batch_size": -1}, "batch_size must be between 0 and 2147483647, not -1"),
        ({"buffer_memory": 0}, "buffer_memory must be between 1 and"),
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
        ({"security_protocol": "TLS"}, "security_protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security_protocol": "SSL"}, "TLS and SASL are not supported in this version"),
        ({"security_protocol": "SASL_SSL"}, "TLS and SASL are not supported in this version"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:60],
)
def test_value_out_of_range_is_refused(options: dict[str, object], message: str) -> None:
    """The message names the option, the range and the value."""
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
        ({"acks": True}, 'acks must be an int or "all", not bool (True)'),
        ({"acks": 1.0}, 'acks must be an int or "all", not float (1.0)'),
        ({"enable_idempotence": 1}, "enable_idempotence must be True or False, not int (1)"),
        ({"compression_type": None}, "compression_type must be a str, not NoneType (None)"),
        ({"client_id": 5}, "client_id must be a str, not int (5)"),
        ({"transactional_id": 5}, "transactional_id must be a str or None, not int (5)"),
        ({"key_serializer": 5}, "key_serializer must be a function of the value, or an object"),
        ({"value_serializer": 5}, "value_serializer must be a function of the value, or an object"),
        ({"value_serializer": async_serializer}, "value_serializer must not be async: async_serializer"),
        ({"value_serializer": StringSerializer}, "value_serializer must be an instance: StringSerializer()"),
        ({"partitioner": 5}, "partitioner must be an object with partition("),
        ({"partitioner": RoundRobinPartitioner}, "partitioner must be an instance: RoundRobinPartitioner()"),
        ({"interceptors": 5}, "interceptors must be a list of ProducerInterceptor, not int"),
        ({"interceptors": [5]}, "interceptors[0] must be a ProducerInterceptor, not int"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:60],
)
def test_value_of_wrong_type_is_refused(options: dict[str, object], message: str) -> None:
    """A TypeError, which is also a ConfigurationError."""
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
        ("colour", "there is no option 'colour'"),
    ],
)
def test_unknown_option_is_refused_with_the_nearest(name: str, message: str) -> None:
    """In the spelling that was used."""
    with pytest.raises(TypeError, match=re.escape(message)) as caught:
        config(**{name: 1})

    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(
    "name, message",
    [
        ("ssl_context", "aioproducer has no option 'ssl_context': TLS is not supported in this version"),
        ("sasl_mechanism", "SASL is not supported in this version"),
        ("sasl_plain_password", "SASL is not supported in this version"),
        ("metric.reporters", "metrics are read with Producer.statistics()"),
        ("partitioner.class", "pass an object as partitioner="),
        ("loop", "the producer binds to the running event loop at start"),
    ],
)
def test_option_that_kafka_or_others_have_is_refused_with_the_reason(name: str, message: str) -> None:
    """What a user tried is not just unknown; its value, perhaps a password, is not shown."""
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        config(**{name: "hunter2"})

    assert "hunter2" not in str(caught.value)


def test_options_may_have_kafkas_spelling() -> None:
    """Unpacked from a dict."""
    assert config(**{"linger.ms": 20, "batch.size": 5}).linger_ms == 20


def test_option_in_both_spellings_is_refused() -> None:
    """Which of the two was meant?"""
    with pytest.raises(ConfigurationError, match=r"linger_ms is given twice, as 'linger_ms' and 'linger.ms'"):
        config(**{"linger.ms": 20, "linger_ms": 20})


def test_typed_options_are_the_fields() -> None:
    """What editors complete is what the configuration has."""
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
        ("partitioner_ignore_keys", False),
        ("client_id", ""),
    ],
)
def test_default_is_kafkas(name: str, expected: object) -> None:
    """But for batch_size, and for what Kafka has not."""
    assert getattr(config(), name) == expected


@pytest.mark.parametrize(
    "acks, expected", [("all", -1), (-1, -1), ("-1", -1), (1, 1), ("1", 1), (0, 0), ("0", 0)], ids=repr
)
def test_acks_is_a_number_in_effect(acks: object, expected: int) -> None:
    """As it goes on the wire."""
    assert config(acks=acks).acks == expected


def test_defaults_need_no_adjustment() -> None:
    """Nothing to log for a producer with defaults."""
    assert config().adjustments == ()


@pytest.mark.parametrize(
    "options, adjusted",
    [
        ({"acks": 1}, ("enable_idempotence", False, "acks=1")),
        ({"acks": 0}, ("enable_idempotence", False, "acks=0")),
        ({"retries": 0}, ("enable_idempotence", False, "retries=0")),
        ({"linger_ms": 100_000}, ("delivery_timeout_ms", 130_000, "linger_ms + request_timeout_ms")),
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
    """As in Kafka, with the reason for the log."""
    result = config(**options)

    assert result.adjustments == (adjusted,)
    assert getattr(result, adjusted[0]) == adjusted[1]


@pytest.mark.parametrize(
    "given, expected", [({}, 250), ({"max_waiting_bytes": None}, 250), ({"max_waiting_bytes": 7}, 7)]
)
def test_max_waiting_bytes_is_a_quarter_of_the_buffer(given: dict[str, object], expected: int) -> None:
    """Unless given."""
    assert config(buffer_memory=1000, **given).max_waiting_bytes == expected


@pytest.mark.parametrize(
    "options, message",
    [
        ({"enable_idempotence": True, "acks": 1}, 'enable_idempotence=True needs acks="all", not 1'),
        ({"enable_idempotence": True, "acks": 0}, 'enable_idempotence=True needs acks="all", not 0'),
        ({"enable_idempotence": True, "retries": 0}, "enable_idempotence=True needs retries above 0"),
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
        ({"linger_ms": 2**40}, "delivery_timeout_ms must be at least"),
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
    """The message says what would work."""
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
    """The edge of each range is inside it."""
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
    """Nobody changes a running producer's configuration."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().linger_ms = 1  # type: ignore[misc]


def test_config_equals_by_content_and_can_be_copied() -> None:
    """Also to another process."""
    original = config(linger_ms=3, acks=1)

    assert config(acks=1, linger_ms=3) == original
    assert copy.deepcopy(original) == original
    assert pickle.loads(pickle.dumps(original)) == original
    assert config() != original


def test_config_repr_shows_what_was_given() -> None:
    """One line; the defaults are in the documentation."""
    assert repr(config(linger_ms=3)) == "ProducerConfig(bootstrap_servers='h:9092', linger_ms=3)"


def test_replace_keeps_what_was_given_and_works_out_the_rest_anew() -> None:
    """Idempotence switched off by acks=1 comes back with acks="all"."""
    result = config(acks=1, linger_ms=3).replace(acks="all")

    assert (result.acks, result.enable_idempotence, result.linger_ms) == (-1, True, 3)
    assert result.bootstrap == (("h", 9092),)


def test_of_takes_servers_or_a_whole_config() -> None:
    """The two forms of the producer's first argument."""
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


# Property files


def test_kafka_properties_are_read() -> None:
    """Texts as a Java program writes them, both spellings, other values as they are."""
    result = ProducerConfig.from_kafka_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "linger.ms": " 20 ",
            "acks": "1",
            "enable.idempotence": "FALSE",
            "compression.type": "zstd",
            "compression.zstd.level": "-3",
            "client_id": "mine",
            "batch_size": 5,
            "security.protocol": "plaintext",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
        }
    )

    assert result.bootstrap == (("a", 1), ("b", 2))
    assert (result.linger_ms, result.acks, result.enable_idempotence, result.batch_size) == (20, 1, False, 5)
    assert (result.compression_type, result.compression_zstd_level, result.client_id) == ("zstd", -3, "mine")
    assert isinstance(result.key_serializer, StringSerializer)
    assert isinstance(result.value_serializer, BytesSerializer)


@pytest.mark.parametrize(
    "properties, message",
    [
        ({}, "bootstrap.servers is missing"),
        ({"linger.ms": "5ms"}, "linger_ms must be a whole number, not '5ms'"),
        ({"linger.ms": "5.0"}, "linger_ms must be a whole number, not '5.0'"),
        ({"linger.ms": "1_000"}, "linger_ms must be a whole number, not '1_000'"),
        ({"linger.ms": "-5"}, "linger_ms must be between 0 and"),
        ({"compression.gzip.level": "x"}, "compression_gzip_level must be a whole number, not 'x'"),
        ({"enable.idempotence": "yes"}, "enable_idempotence must be true or false, not 'yes'"),
        ({"acks": "2"}, 'acks must be "all", -1, 1 or 0'),
        ({"linger.ms": "5", "linger_ms": "5"}, "linger_ms is given twice"),
        ({"value.serializer": "com.example.Avro"}, "'com.example.Avro': a class name cannot be loaded here"),
        ({"partitioner": "com.example.Mine"}, "a class name cannot be loaded here"),
        ({"lingerms": "5"}, "did you mean 'linger_ms'?"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:60],
)
def test_kafka_properties_are_refused(properties: dict[str, object], message: str) -> None:
    """A text that cannot be read, or a value that cannot be."""
    servers = {"bootstrap.servers": "h:1"} if properties else {}

    with pytest.raises(ConfigurationError, match=re.escape(message)):
        ProducerConfig.from_kafka_properties({**servers, **properties})


def test_kafka_name_is_the_name_with_dots() -> None:
    """For messages and docs."""
    assert kafka_name("max_in_flight_requests_per_connection") == "max.in.flight.requests.per.connection"
