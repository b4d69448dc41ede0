"""Option names: Kafka's spelling and ours, and errors for names that are not options.

Source: org.apache.kafka.clients.producer.ProducerConfig of Kafka 3.9 to 4.4, librdkafka's CONFIGURATION.md,
confluent_kafka.Producer, aiokafka.AIOKafkaProducer, kafka.KafkaProducer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from aioproducer.config._problems import raise_any
from aioproducer.errors import ConfigurationError, ConfigurationTypeError

_LEVELS: Final[Mapping[str, str]] = {
    "gzip": "compression_gzip_level, -1 or 1 to 9",
    "lz4": "compression_lz4_level, 1 to 17",
    "zstd": "compression_zstd_level, -131072 to 22",
}
"""Codec -> its option and range; librdkafka has one `compression.level` for all."""


def check_properties(properties: object) -> None:
    if not isinstance(properties, Mapping):
        text = f"properties must be a mapping of names to values, not {type(properties).__name__}"
        raise ConfigurationTypeError(text)


class NamedOptions(NamedTuple):
    """Options by their Python names, and those that mean something to other clients alone."""

    options: dict[str, object]
    ignored: dict[str, str]
    """Name as given -> why it has no effect here."""

    problems: list[ConfigurationError]


def in_python_spelling(options: Mapping[str, object], known: Collection[str]) -> dict[str, object]:
    """Return the options under their Python names, `linger_ms` for `linger.ms`.

    An option of Kafka without effect here, such as `metadata.recovery.strategy=rebootstrap`, is left out.
    """
    named = read_names(options, known, is_shared=False)
    raise_any(named.problems)
    return named.options


def read_names(options: Mapping[str, object], known: Collection[str], *, is_shared: bool) -> NamedOptions:
    """Return the options under their Python names, and all that is wrong with the names.

    Args:
        is_shared: whether other clients read them too, as a file, so that their options are ignored and not refused.
    """
    found = NamedOptions({}, {}, [])
    spelled: dict[str, str] = {}
    said: dict[str, str] = {}  # reason -> the first option that was refused for it
    for given, value in options.items():
        if not isinstance(given, str):
            raise ConfigurationTypeError(f"the name of an option must be a str, not {type(given).__name__} ({given!r})")
        name = python_name(given)
        if name in known:
            if name in found.options:
                text = f"{name} is given twice, as {spelled[name]!r} and {given!r}"
                found.problems.append(ConfigurationError(text, option=name))
            found.options[name] = value
            spelled[name] = given
        elif is_shared and (reason := reason_to_ignore(name)) is not None:
            found.ignored[given] = reason
        elif not is_without_effect(name, value):
            found.problems.append(_refusal(given, known, options=options, said=said))
    return found


def python_name(name: str) -> str:
    """Return an option's name as it is spelled here, from either spelling."""
    name = name.replace(".", "_")
    return ALIASES.get(name, name)


def kafka_name(name: str) -> str:
    return name.replace("_", ".")


def _refusal(
    given: str, known: Collection[str], *, options: Mapping[str, object], said: dict[str, str]
) -> ConfigurationTypeError:
    name = python_name(given)
    if name == "compression_level":
        return ConfigurationTypeError(f"there is no option {given!r}; use {_level_options(options)}", option=name)
    if name in REPLACEMENTS:
        ours, note = REPLACEMENTS[name]
        text = f"there is no option {given!r}; use {_spelled_like(given, ours)!r}{note and f', {note}'}"
        return ConfigurationTypeError(text, option=name)
    from difflib import get_close_matches  # noqa: PLC0415  # only for errors

    reason = reason_against(name)
    # A name that only begins as others do that there are not is more likely a misspelt one that there is.
    cutoff = 0.6 if reason is None else _MISSPELT
    is_named = name in REASONS or reason == _SPRING
    nearest = [] if is_named else get_close_matches(name.lower(), known, n=1, cutoff=cutoff)
    if reason is not None and not nearest:
        first = said.setdefault(reason, given)
        why = reason if first == given else f"as {first!r}"
        return ConfigurationTypeError(f"aioproducer has no option {given!r}: {why}", option=name)
    if not nearest:
        return ConfigurationTypeError(f"there is no option {given!r}", option=name)
    meant = _spelled_like(given, nearest[0])
    return ConfigurationTypeError(f"there is no option {given!r}; did you mean {meant!r}?", option=name)


def _spelled_like(given: str, name: str) -> str:
    return kafka_name(name) if "." in given else name


def _level_options(given: Mapping[str, object]) -> str:
    codec = given.get("compression_type", given.get("compression.type"))
    level = _LEVELS.get(codec) if isinstance(codec, str) else None
    return level or "; ".join(_LEVELS.values())


ALIASES: Final[Mapping[str, str]] = {"partitioner_class": "partitioner", "interceptor_classes": "interceptors"}
"""Kafka's names of options that have another name here."""

_PEM_FILES: Final = "one file in PEM with the private key and then the certificates, or beside ssl_key_location"

REPLACEMENTS: Final[Mapping[str, tuple[str, str]]] = {
    # librdkafka
    "metadata_broker_list": ("bootstrap_servers", ""),
    "message_timeout_ms": ("delivery_timeout_ms", ""),
    "request_required_acks": ("acks", ""),
    "message_max_bytes": ("max_request_size", ""),
    "max_in_flight": ("max_in_flight_requests_per_connection", ""),
    "queue_buffering_max_ms": ("linger_ms", ""),
    "queue_buffering_max_kbytes": ("buffer_memory", "in bytes"),
    "queue_buffering_max_messages": ("buffer_memory", "in bytes; records are not counted"),
    "queue_buffering_backpressure_threshold": ("max_in_flight_requests_per_connection", ""),
    "batch_num_messages": ("batch_size", "in bytes; records are not counted"),
    "message_send_max_retries": ("retries", ""),
    "compression_codec": ("compression_type", ""),
    "topic_metadata_refresh_interval_ms": ("metadata_max_age_ms", ""),
    "topic_metadata_refresh_fast_interval_ms": ("retry_backoff_ms", ""),
    "topic_metadata_propagation_max_ms": ("max_block_ms", ""),
    "socket_timeout_ms": ("request_timeout_ms", ""),
    "socket_send_buffer_bytes": ("send_buffer_bytes", ""),
    "socket_receive_buffer_bytes": ("receive_buffer_bytes", ""),
    "api_version_request_timeout_ms": ("socket_connection_setup_timeout_ms", ""),
    "partitioner_cb": ("partitioner", ""),
    "sasl_mechanisms": ("sasl_mechanism", ""),
    "ssl_ca_location": ("ssl_truststore_location", ""),
    "ssl_ca_pem": ("ssl_truststore_certificates", ""),
    "ssl_certificate_location": ("ssl_keystore_location", _PEM_FILES),
    "ssl_certificate_pem": ("ssl_keystore_certificate_chain", ""),
    "ssl_key_pem": ("ssl_keystore_key", ""),
    # aiokafka, kafka-python
    "sasl_plain_username": ("sasl_username", ""),
    "sasl_plain_password": ("sasl_password", ""),
    "sasl_oauth_token_provider": ("sasl_token_provider", ""),
    "max_batch_size": ("batch_size", ""),
    "bootstrap_timeout_ms": ("max_block_ms", ""),
    "ssl_cafile": ("ssl_truststore_location", ""),
    "ssl_certfile": ("ssl_keystore_location", _PEM_FILES),
    "ssl_keyfile": ("ssl_key_location", ""),
    "ssl_password": ("ssl_key_password", ""),
    "ssl_check_hostname": ("ssl_endpoint_identification_algorithm", '"" for False'),
    "ssl_ciphers": ("ssl_cipher_suites", ""),
    "api_version_auto_timeout_ms": ("socket_connection_setup_timeout_ms", ""),
    "socks5_proxy": ("proxy_url", "such as 'socks5://host:1080'"),
}
"""Name elsewhere -> (the option here, what differs)."""

_TOKENS: Final = (
    "tokens come from the object given as sasl_token_provider, such as ClientCredentials(url, client_id=..., "
    "client_secret=...): no text of a configuration makes this client fetch one"
)
_HANDLER: Final = (
    "callback handlers are Java classes; tokens come from sasl_token_provider, passwords from sasl_password"
)
_TLS: Final = "pass ssl_context=, an ssl.SSLContext or a function that returns one, for what the ssl_ options here lack"
_METRICS: Final = "metrics are read with Producer.statistics() and Producer.metrics()"
_ON_DELIVERY: Final = "outcomes are awaited, or given to the on_delivery of each call"
_LOGGING: Final = 'events go to structlog or to logging.getLogger("aioproducer")'
_VERSIONS: Final = "versions are negotiated with each broker"
_NONE: Final = "it belongs to another client, and nothing here corresponds to it"
_CONSUMER: Final = "it is an option of consumers"
_OTHERS: Final = "it is an option of Kafka Streams or of an admin client"
_REGISTRY: Final = (
    "it is an option of serializers with a schema registry, which are objects here: pass value_serializer=..., see "
    "docs/how-to/use_schemas.md"
)
_SPRING: Final = (
    "it is a name of Spring Boot, where Kafka's own are read here, without spring.kafka.producer.properties. before "
    "them: bootstrap.servers, acks, linger.ms"
)
_OF_TOPICS: Final = (
    "give its options to the producer; linger_ms, compression_type and delivery_timeout_ms of one topic to "
    "producer.topic(name, value=bytes, linger_ms=...)"
)
_MISSPELT: Final = 0.9
"""How close a name is to an option that is meant rather than one of another client."""

_NAMES: Final[Mapping[str, str]] = {
    _CONSUMER: """
        check_crcs consume_cb coordinator_query_interval_ms enable_auto_commit enable_auto_offset_store
        enable_partition_eof exclude_internal_topics heartbeat_interval_ms internal_leave_group_on_close
        internal_throw_on_fetch_stable_offset_unsupported isolation_level key_deserializer
        max_partition_fetch_bytes max_poll_interval_ms max_poll_records partition_assignment_strategy
        queued_max_messages_kbytes queued_min_messages rebalance_cb session_timeout_ms value_deserializer
    """,
    _OTHERS: """
        application_id application_server default_api_timeout_ms default_key_serde default_value_serde
        num_standby_replicas num_stream_threads processing_guarantee replication_factor state_dir
        statestore_cache_max_bytes
    """,
    _REGISTRY: """
        auto_register_schemas context_name_strategy fail_invalid_schema fail_unknown_properties
        id_compatibility_strict key_schema_id_serializer key_subject_name_strategy latest_cache_size
        latest_cache_ttl_sec latest_compatibility_strict max_schemas_per_subject normalize_schemas proxy_host
        proxy_port reference_subject_name_strategy schema_format schema_reflection specific_avro_reader
        subject_name_strategy use_latest_version use_latest_with_metadata use_schema_id
        value_schema_id_serializer value_subject_name_strategy
    """,
    _NONE: """
        auto_include_jmx_reporter background_event_cb bootstrap_resolve_timeout_ms bootstrap_topics_filter
        broker_address_family broker_address_ttl buffer_memory_allocation_strategy builtin_features
        closesocket_cb config_providers enable_random_seed enabled_events internal_termination_signal
        kafka_client loop message_copy_max_bytes metadata_cluster_check_enable metadata_recovery_strategy
        metrics_recording_level msg_order_cmp open_cb produce_offset_report queuing_strategy
        receive_message_max_bytes reconnect_backoff_jitter_ms sasl_kerberos_kinit_cmd
        sasl_kerberos_min_time_before_relogin sasl_kerberos_ticket_renew_jitter
        sasl_kerberos_ticket_renew_window_factor selector sock_chunk_buffer_count sock_chunk_bytes
        socket_blocking_max_ms socket_cb socket_keepalive_enable socket_max_fails socket_nagle_disable
        sticky_partitioning_linger_ms throttle_cb topic_blacklist topic_metadata_refresh_fast_cnt
        topic_metadata_refresh_sparse transaction_two_phase_commit_enable
    """,
    _HANDLER: """
        sasl_client_callback_handler_class sasl_login_callback_handler_class sasl_login_class
    """,
    _LOGGING: """
        error_cb log_cb log_connection_close log_level log_queue log_thread_name logger
    """,
    _METRICS: """
        metric_reporters metrics_enabled statistics_interval_ms stats_cb
    """,
    _OF_TOPICS: """
        default_topic_conf default_topic_config
    """,
    _ON_DELIVERY: """
        delivery_report_only_error dr_cb dr_msg_cb on_delivery opaque
    """,
    _TLS: """
        enable_ssl_certificate_verification https_ca_location https_ca_pem security_providers
    """,
    _TOKENS: """
        enable_sasl_oauthbearer_unsecure_jwt oauth_cb oauthbearer_token_refresh_cb
    """,
    _VERSIONS: """
        api_version api_version_fallback_ms api_version_request broker_version_fallback
    """,
}
"""What to use instead, or whose options they are -> names elsewhere."""

REASONS: Final[Mapping[str, str]] = {
    **{name: reason for reason, names in _NAMES.items() for name in names.split()},
    "allow_auto_create_topics": "the broker's auto.create.topics.enable decides",
    "connect_cb": "use proxy_url or address_map",
    "debug": 'set the level of logging.getLogger("aioproducer") to DEBUG',
    "enable_gapless_guarantee": "use a transaction, of which all records are written or none",
    "key_serializer_encoding": "pass key_serializer=StringSerializer(encoding)",
    "plugin_library_paths": "pass objects as interceptors=",
    "resolve_cb": "use address_map",
    "sasl_kerberos_domain_name": "use sasl_kerberos_service_name, and address_map for the host",
    "sasl_kerberos_name": "use sasl_kerberos_service_name, and address_map for the host",
    "sasl_oauthbearer_extensions": "pass extensions={...} to the object given as sasl_token_provider",
    "serializer_encoding": "pass key_serializer and value_serializer as StringSerializer(encoding)",
    "socket_options": "use send_buffer_bytes and receive_buffer_bytes",
    "value_serializer_encoding": "pass value_serializer=StringSerializer(encoding)",
}
"""Name elsewhere -> what to use instead, or whose option it is; never how this client works inside, which changes."""

PREFIXES: Final[Mapping[str, str]] = {
    "ssl_": _TLS,
    "sasl_oauthbearer_": _TOKENS,
    "auto_commit_": _CONSUMER,
    "auto_offset_": _CONSUMER,
    "consume_": _CONSUMER,
    "fetch_": _CONSUMER,
    "group_": _CONSUMER,
    "offset_": _CONSUMER,
    "share_": _CONSUMER,
    "consumer_": _CONSUMER,
    "main_consumer_": _CONSUMER,
    "restore_consumer_": _CONSUMER,
    "global_consumer_": _CONSUMER,
    "admin_": _OTHERS,
    "apicurio_": _REGISTRY,
    "avro_": _REGISTRY,
    "basic_auth_": _REGISTRY,
    "bearer_auth_": _REGISTRY,
    "schema_registry_": _REGISTRY,
    "spring": _SPRING,
}
"""Beginning of names elsewhere -> why there are no such options here."""

_IGNORED: Final = frozenset({_CONSUMER, _OTHERS, _REGISTRY})

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "api_version_request": "true",
    "auto_include_jmx_reporter": "false",
    "broker_address_family": "any",
    "buffer_memory_allocation_strategy": "incremental",
    "config_providers": "",
    "enable_ssl_certificate_verification": "true",
    "key_serializer_encoding": "utf-8",
    "metadata_cluster_check_enable": "false",
    "metadata_recovery_strategy": "rebootstrap",
    "metric_reporters": "",
    "metrics_recording_level": "info",
    "sasl_kerberos_kinit_cmd": "/usr/bin/kinit",
    "sasl_kerberos_min_time_before_relogin": "60000",
    "sasl_kerberos_ticket_renew_jitter": "0.05",
    "sasl_kerberos_ticket_renew_window_factor": "0.8",
    "security_providers": "",
    "serializer_encoding": "utf-8",
    "ssl_engine_factory_class": "",
    "ssl_keymanager_algorithm": "sunx509",
    "ssl_provider": "",
    "ssl_secure_random_implementation": "",
    "socket_keepalive_enable": "true",
    "socket_nagle_disable": "true",
    "ssl_trustmanager_algorithm": "pkix",
    "statistics_interval_ms": "0",
    "transaction_two_phase_commit_enable": "false",
    "value_serializer_encoding": "utf-8",
}
"""Kafka's name -> the value, in lower case, that asks for what is done anyway; it is accepted without effect."""


def is_without_effect(name: str, value: object) -> bool:
    """Return whether the option with this value asks for what is done anyway."""
    wanted = WITHOUT_EFFECT.get(name)
    if wanted is None:
        return False
    if value is None or value in ([], ()):
        return not wanted
    return isinstance(value, str | int) and str(value).strip().lower() == wanted


def reason_to_ignore(name: str) -> str | None:
    """Return why an option of another client, which Java's producer would only warn about, has no effect here."""
    reason = _reason(name)
    return reason if reason in _IGNORED else None


def reason_against(name: str) -> str | None:
    """Return why there is no option of this name of Kafka's or another client's; None for other names."""
    reason, accepted = _reason(name), WITHOUT_EFFECT.get(name)
    if reason is None or accepted is None:
        return reason
    return f"{reason}; only {accepted!r} is accepted, which changes nothing"


def _reason(name: str) -> str | None:
    return REASONS.get(name) or next((text for prefix, text in PREFIXES.items() if name.startswith(prefix)), None)
