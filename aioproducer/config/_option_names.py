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
_KINIT: Final = "tickets are taken from the keytab, or read from the ticket cache each time; no kinit is run"
_HANDLER: Final = (
    "callback handlers are Java classes; tokens come from sasl_token_provider, passwords from sasl_password"
)
_TLS: Final = "pass ssl_context=, an ssl.SSLContext or a function that returns one, for what the ssl_ options here lack"
_JAVA_TLS: Final = "it chooses among parts of the JVM; ssl_context, an ssl.SSLContext or a function, takes its place"
_METRICS: Final = "metrics are read with Producer.statistics() and Producer.metrics()"
_ON_DELIVERY: Final = "outcomes are awaited, or given to the on_delivery of each call"
_LOGGING: Final = 'events go to structlog or to logging.getLogger("aioproducer")'
_VERSIONS: Final = "versions are negotiated with each broker"
_SOCKETS: Final = "sockets are opened by the event loop"
_UNKNOWN_TOPICS: Final = "an unknown topic is asked for again until max_block_ms is over"
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

REASONS: Final[Mapping[str, str]] = {
    # Kafka
    "auto_include_jmx_reporter": "there is no JMX here",
    "bootstrap_resolve_timeout_ms": "names are resolved at start, within max_block_ms",
    "buffer_memory_allocation_strategy": "batches always grow on demand",
    "config_providers": "they are Java classes",
    "key_serializer_encoding": "pass key_serializer=StringSerializer(encoding)",
    "metadata_cluster_check_enable": "it is not supported in this version",
    "metadata_recovery_strategy": "the producer always bootstraps again, as Kafka's default does",
    "metric_reporters": _METRICS,
    "metrics_recording_level": "all metrics are recorded, as with INFO",
    "sasl_client_callback_handler_class": _HANDLER,
    "sasl_kerberos_kinit_cmd": _KINIT,
    "sasl_oauthbearer_extensions": (
        "pass extensions={...} to the object given as sasl_token_provider, such as ClientCredentials"
    ),
    "sasl_kerberos_min_time_before_relogin": _KINIT,
    "sasl_kerberos_ticket_renew_jitter": _KINIT,
    "sasl_kerberos_ticket_renew_window_factor": _KINIT,
    "sasl_login_callback_handler_class": _HANDLER,
    "sasl_login_class": _HANDLER,
    "security_providers": _JAVA_TLS,
    "ssl_engine_factory_class": _JAVA_TLS,
    "ssl_keymanager_algorithm": _JAVA_TLS,
    "ssl_provider": _JAVA_TLS,
    "ssl_secure_random_implementation": _JAVA_TLS,
    "ssl_trustmanager_algorithm": _JAVA_TLS,
    "serializer_encoding": "pass key_serializer and value_serializer as StringSerializer(encoding)",
    "transaction_two_phase_commit_enable": "two-phase commit is not supported in this version",
    "value_serializer_encoding": "pass value_serializer=StringSerializer(encoding)",
    # librdkafka
    "allow_auto_create_topics": "the broker's auto.create.topics.enable decides",
    "api_version_fallback_ms": _VERSIONS,
    "api_version_request": _VERSIONS,
    "background_event_cb": "callbacks run on the event loop",
    "broker_address_family": "all addresses of a name are tried, of both families",
    "broker_address_ttl": "names are resolved at each connection",
    "broker_version_fallback": _VERSIONS,
    "builtin_features": "all codecs are always there",
    "closesocket_cb": _SOCKETS,
    "connect_cb": "use proxy_url or address_map",
    "debug": 'set the level of logging.getLogger("aioproducer") to DEBUG',
    "default_topic_conf": _OF_TOPICS,
    "delivery_report_only_error": _ON_DELIVERY,
    "dr_cb": _ON_DELIVERY,
    "dr_msg_cb": _ON_DELIVERY,
    "enable_gapless_guarantee": "a failed record does not stop the others; use a transaction for all or none",
    "enable_random_seed": "Python's random module is used",
    "enable_sasl_oauthbearer_unsecure_jwt": _TOKENS,
    "enable_ssl_certificate_verification": _TLS,
    "enabled_events": "there is no event queue; callbacks run on the event loop",
    "error_cb": _LOGGING,
    "https_ca_location": _TLS,
    "https_ca_pem": _TLS,
    "internal_termination_signal": "it has no thread to end at exit; close() ends the producer",
    "log_cb": _LOGGING,
    "log_connection_close": _LOGGING,
    "log_level": _LOGGING,
    "log_queue": _LOGGING,
    "log_thread_name": _LOGGING,
    "message_copy_max_bytes": "records are copied once, into their batch",
    "msg_order_cmp": "records of a partition keep the order of the calls",
    "oauthbearer_token_refresh_cb": _TOKENS,
    "opaque": "the on_delivery of a call can hold what belongs to its record",
    "open_cb": "the producer opens no files",
    "plugin_library_paths": "pass objects as interceptors=",
    "produce_offset_report": "every result has its offset",
    "queuing_strategy": "records of a partition keep the order of the calls",
    "receive_message_max_bytes": "the largest response is fixed",
    "reconnect_backoff_jitter_ms": "reconnect_backoff_ms has a jitter of 20 %, as in Kafka",
    "resolve_cb": "use address_map, or the getaddrinfo of the event loop",
    "socket_blocking_max_ms": "no thread waits in a socket",
    "socket_cb": _SOCKETS,
    "socket_keepalive_enable": "keep-alive is always on",
    "socket_max_fails": "a connection is closed at its first request that times out",
    "socket_nagle_disable": "TCP_NODELAY is always set",
    "statistics_interval_ms": _METRICS,
    "stats_cb": _METRICS,
    "sticky_partitioning_linger_ms": "a partition is left after a batch's worth of bytes, as in Kafka",
    "throttle_cb": "throttling by brokers is applied, without a callback",
    "topic_blacklist": "only topics that records are sent to are asked for",
    "topic_metadata_refresh_fast_cnt": _UNKNOWN_TOPICS,
    "topic_metadata_refresh_sparse": "only topics that records are sent to are asked for",
    # confluent-kafka
    "default_topic_config": _OF_TOPICS,
    "logger": _LOGGING,
    "oauth_cb": _TOKENS,
    "on_delivery": _ON_DELIVERY,
    # aiokafka, kafka-python
    "sasl_kerberos_domain_name": "the host of each broker's principal is the one that the cluster advertises",
    "sasl_kerberos_name": "the principal of each broker is sasl_kerberos_service_name and the host it is advertised as",
    "api_version": _VERSIONS,
    "bootstrap_topics_filter": "only topics that records are sent to are asked for",
    "kafka_client": "the producer makes its own connections",
    "loop": "the producer binds to the running event loop at start",
    "metrics_enabled": "they are always kept, and read with Producer.statistics() and Producer.metrics()",
    "selector": _SOCKETS,
    "sock_chunk_buffer_count": _SOCKETS,
    "sock_chunk_bytes": _SOCKETS,
    "socket_options": "TCP_NODELAY and keep-alive are always set; see send_buffer_bytes and receive_buffer_bytes",
    # consumers
    "check_crcs": _CONSUMER,
    "consume_cb": _CONSUMER,
    "coordinator_query_interval_ms": _CONSUMER,
    "enable_auto_commit": _CONSUMER,
    "enable_auto_offset_store": _CONSUMER,
    "enable_partition_eof": _CONSUMER,
    "exclude_internal_topics": _CONSUMER,
    "heartbeat_interval_ms": _CONSUMER,
    "isolation_level": _CONSUMER,
    "key_deserializer": _CONSUMER,
    "max_partition_fetch_bytes": _CONSUMER,
    "max_poll_interval_ms": _CONSUMER,
    "max_poll_records": _CONSUMER,
    "partition_assignment_strategy": _CONSUMER,
    "queued_max_messages_kbytes": _CONSUMER,
    "queued_min_messages": _CONSUMER,
    "rebalance_cb": _CONSUMER,
    "session_timeout_ms": _CONSUMER,
    "value_deserializer": _CONSUMER,
    "internal_leave_group_on_close": _CONSUMER,
    "internal_throw_on_fetch_stable_offset_unsupported": _CONSUMER,
    # Kafka Streams, admin clients
    "application_id": _OTHERS,
    "application_server": _OTHERS,
    "default_api_timeout_ms": _OTHERS,
    "default_key_serde": _OTHERS,
    "default_value_serde": _OTHERS,
    "num_stream_threads": _OTHERS,
    "num_standby_replicas": _OTHERS,
    "processing_guarantee": _OTHERS,
    "replication_factor": _OTHERS,
    "state_dir": _OTHERS,
    "statestore_cache_max_bytes": _OTHERS,
    # serializers of Confluent
    "auto_register_schemas": _REGISTRY,
    "context_name_strategy": _REGISTRY,
    "fail_invalid_schema": _REGISTRY,
    "fail_unknown_properties": _REGISTRY,
    "id_compatibility_strict": _REGISTRY,
    "key_schema_id_serializer": _REGISTRY,
    "key_subject_name_strategy": _REGISTRY,
    "latest_cache_size": _REGISTRY,
    "latest_cache_ttl_sec": _REGISTRY,
    "latest_compatibility_strict": _REGISTRY,
    "max_schemas_per_subject": _REGISTRY,
    "normalize_schemas": _REGISTRY,
    "proxy_host": _REGISTRY,
    "proxy_port": _REGISTRY,
    "reference_subject_name_strategy": _REGISTRY,
    "schema_format": _REGISTRY,
    "schema_reflection": _REGISTRY,
    "specific_avro_reader": _REGISTRY,
    "subject_name_strategy": _REGISTRY,
    "use_latest_version": _REGISTRY,
    "use_latest_with_metadata": _REGISTRY,
    "use_schema_id": _REGISTRY,
    "value_schema_id_serializer": _REGISTRY,
    "value_subject_name_strategy": _REGISTRY,
}
"""Name elsewhere -> why there is no such option here."""

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
    reason = REASONS.get(name)
    if reason is None:
        reason = next((text for prefix, text in PREFIXES.items() if name.startswith(prefix)), None)
    return reason if reason in _IGNORED else None


def reason_against(name: str) -> str | None:
    """Return why there is no option of this name of Kafka's or another client's; None for other names."""
    reason = REASONS.get(name)
    if reason is None:
        return next((text for prefix, text in PREFIXES.items() if name.startswith(prefix)), None)
    accepted = WITHOUT_EFFECT.get(name)
    if accepted is None:
        return reason
    return f"{reason}; only {accepted!r} is accepted, which changes nothing"
