"""The options of `Producer(...)` as keyword arguments, for editors and type checkers; and the presets of them.

docs/reference/configuration.md shows what each preset is measured to bring.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Final, Literal, Self, TypedDict, Unpack

from aioproducer.config._security_types import PasswordArgument, TlsContextArgument
from aioproducer.interceptors import ProducerInterceptor
from aioproducer.partitioners import Partitioner
from aioproducer.security import Secret, TokenProvider
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.serializers import SerializerArgument


class TopicOptions(TypedDict, total=False):
    """The options that `Producer.topic` takes for one topic; `ProducerConfig` says what each means."""

    linger_ms: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    delivery_timeout_ms: int


class ProducerOptions(TypedDict, total=False):
    """Every option but `bootstrap_servers`; `ProducerConfig` says what each means."""

    client_id: str
    key_serializer: SerializerArgument | None
    value_serializer: SerializerArgument | None
    partitioner: Partitioner | None
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    client_rack: str
    partitioner_ignore_keys: bool
    interceptors: Sequence[ProducerInterceptor]
    acks: Literal["all", -1, 0, 1]
    enable_idempotence: bool
    retries: int
    max_in_flight_requests_per_connection: int
    linger_ms: int
    batch_size: int
    max_request_size: int
    buffer_memory: int
    max_waiting_records: int
    max_waiting_bytes: int | None
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    max_block_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    close_timeout_ms: int
    exit_flush_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_rebootstrap_trigger_ms: int
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_truststore_location: str | PathLike[str] | None
    ssl_truststore_type: str | None
    ssl_truststore_password: PasswordArgument | None
    ssl_truststore_certificates: str | None
    ssl_keystore_location: str | PathLike[str] | None
    ssl_key_location: str | PathLike[str] | None
    ssl_keystore_type: str | None
    ssl_keystore_password: PasswordArgument | None
    ssl_keystore_key: PasswordArgument | None
    ssl_keystore_certificate_chain: str | None
    ssl_key_password: PasswordArgument | None
    ssl_enabled_protocols: Sequence[str]
    ssl_protocol: Literal["TLS", "TLSv1.2", "TLSv1.3"]
    ssl_endpoint_identification_algorithm: Literal["https", ""]
    ssl_cipher_suites: Sequence[str]
    ssl_context: TlsContextArgument | None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None
    sasl_username: str | None
    sasl_password: PasswordArgument | None
    sasl_jaas_config: str | Secret | None
    sasl_token_provider: TokenProvider | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_keytab: str | PathLike[str] | None
    sasl_kerberos_principal: str | None
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    sasl_login_connect_timeout_ms: int | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    allow_plaintext_credentials: bool
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    proxy_url: str | Secret | None
    address_map: Mapping[str, str] | Callable[[str], str | None] | None
    allowed_brokers: str | Sequence[str] | None
    enable_metrics_push: bool
    metrics_num_samples: int
    metrics_sample_window_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int


LOW_LATENCY: Final[ProducerOptions] = {"linger_ms": 0, "compression_type": "none"}

THROUGHPUT: Final[ProducerOptions] = {
    "linger_ms": 50,
    "batch_size": 1_048_576,
    "max_request_size": 4_194_304,
    "buffer_memory": 134_217_728,
    "compression_type": "lz4",
    "compression_lz4_level": 1,
}

DURABLE: Final[ProducerOptions] = {
    "acks": "all",
    "enable_idempotence": True,
    "delivery_timeout_ms": 900_000,
    "max_block_ms": 300_000,
    "close_timeout_ms": 120_000,
    "exit_flush_timeout_ms": 10_000,
}


class Presets:
    """Classmethods of `ProducerConfig` that begin with other values than the defaults."""

    __slots__ = ()

    @classmethod
    @clears_frames
    def low_latency(cls, bootstrap_servers: object, **options: Unpack[ProducerOptions]) -> Self:
        """Return a configuration whose records leave at once, also those that no one awaits.

        Args:
            bootstrap_servers: as the field.
            options: as the constructor's; they take precedence.

        Raises:
            ConfigurationError, ConfigurationTypeError: as the constructor.
        """
        return cls._preset(LOW_LATENCY, bootstrap_servers, options)

    @classmethod
    @clears_frames
    def throughput(cls, bootstrap_servers: object, **options: Unpack[ProducerOptions]) -> Self:
        """Return a configuration with few, large, compressed batches; arguments and errors as `low_latency`."""
        return cls._preset(THROUGHPUT, bootstrap_servers, options)

    @classmethod
    @clears_frames
    def durable(cls, bootstrap_servers: object, **options: Unpack[ProducerOptions]) -> Self:
        """Return a configuration that rides out long outages; arguments and errors as `low_latency`.

        Records are given up after 15 minutes, not two, and `acks` other than `"all"` is an error. What waits must fit
        into `buffer_memory`, which is the default's: 32 MiB, about 160 seconds of 200 records of 1 kB per second.
        """
        return cls._preset(DURABLE, bootstrap_servers, options)

    if TYPE_CHECKING:

        @classmethod
        def _preset(cls, preset: ProducerOptions, bootstrap_servers: object, options: ProducerOptions) -> Self:
            """Return the configuration of a preset, changed by options."""
