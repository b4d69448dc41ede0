"""`ProducerConfig`: every option, its default, its range and what it means.

The reference page in the docs is made from the texts under the fields.
"""

import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from itertools import count
from os import PathLike
from typing import Annotated, Any, ClassVar, Final, Self, Unpack, cast, get_type_hints

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK
from aioproducer._network.addresses import place_text
from aioproducer._network.proxy import Proxy
from aioproducer._network.routes import AddressMap, BrokerPattern
from aioproducer._shown_values import in_any_state
from aioproducer.config import _rules as rules
from aioproducer.config import _text_options as texts
from aioproducer.config._network_types import AddressMapOption, AllowedBrokers, ProxyUrl, parse_bootstrap_servers
from aioproducer.config._option_names import in_python_spelling, python_name
from aioproducer.config._option_types import (
    INT64_MAX,
    INTERCEPTORS,
    PARTITIONERS,
    Acks,
    BoolOption,
    ClientId,
    EnumOption,
    FloatOption,
    GzipLevel,
    IntOption,
    OptionalTimeout,
    OptionalWhole,
    OptionKind,
    Plugin,
    TransactionalId,
    serializer_option,
)
from aioproducer.config._properties_file import read_properties
from aioproducer.config._security_rules import check_sasl, check_security, credentials_of_jaas, notes_of_jaas
from aioproducer.config._security_types import (
    FileName,
    NameCheck,
    Password,
    PasswordOption,
    PemText,
    SaslMechanism,
    SecretText,
    SecurityProtocol,
    StoreType,
    TlsContextArgument,
    TlsContextOption,
    Username,
    Words,
    check_versions,
)
from aioproducer.config.producer_options import Presets, ProducerOptions
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.interceptors import ProducerInterceptor, check_interceptors
from aioproducer.partitioners import Partitioner, check_partitioner
from aioproducer.security import Secret, TokenProvider
from aioproducer.security._cleared_frames import clears_frames_of
from aioproducer.security._tokens import check_token_provider
from aioproducer.serializers import SerializerArgument

_PROVIDER = "an object with async def token()"
_AS_THEY_ARE: Final = object()
_DNS_LOOKUPS: Final = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")


@clears_frames_of("__init__", "of", "from_kafka_properties", "from_properties_file", "from_environment", "replace")
@dataclass(frozen=True, slots=True, init=False, repr=False)
class ProducerConfig(Presets):
    """The configuration of one producer: checked, complete, immutable.

    The fields hold the values in effect. Where Kafka changes one value because of another, so does this; `adjustments`
    says which, and `given` keeps what the user asked for.

    Args:
        bootstrap_servers: as the field says.
        **options: the other fields, in Python's or, unpacked from a dict, in Kafka's spelling.

    Raises:
        ConfigurationError: a value out of range, or options that cannot go together.
        ConfigurationTypeError: (also a TypeError) a value of the wrong type, or no such option.
    """

    bootstrap_servers: tuple[str, ...]
    """The brokers to ask first, as `"host:port,host:port"` or a sequence of `"host:port"`;
    one is enough to find the cluster, two or three survive the death of one.
    An IPv6 address needs brackets: `[::1]:9092`. A server given twice counts once, as in Kafka."""

    client_id: Annotated[str, ClientId()] = ""
    """The producer's name in logs, metrics, and the brokers' logs and quotas.
    Empty: `producer-1`, `producer-2`, ... When it starts, `{pid}` becomes the process id: `"orders-{pid}"`."""

    key_serializer: Annotated[SerializerArgument | None, serializer_option("key_serializer")] = None
    """Turns keys into bytes. Without one, keys must be bytes. A null key stays null."""

    value_serializer: Annotated[SerializerArgument | None, serializer_option("value_serializer")] = None
    """Turns values into bytes. Without one, values must be bytes. A null value stays null."""

    partitioner: Annotated[
        Partitioner | None,
        Plugin(
            "an object with partition(topic, key, key_bytes, value, value_bytes, cluster)",
            check_partitioner,
            classes=PARTITIONERS,
        ),
    ] = None
    """Chooses partitions instead of Kafka's own rule: by the murmur2 hash of the key,
    or, without a key, one partition after another for a batch's worth of bytes each.
    It is a Python call a record; Kafka's rule is native."""

    partitioner_adaptive_partitioning_enable: Annotated[bool, BoolOption()] = True
    """Records without a key are more likely to go to partitions with a shorter queue, so that a slow broker gets
    fewer. Outside of transactions they also move on to another partition with the first batch after 100 ms."""

    partitioner_availability_timeout_ms: Annotated[int, IntOption(0, INT64_MAX)] = 0
    """How long batches may wait for a broker that takes none, in ms; then records without a key go to other brokers
    until it takes them. With 0 there is no limit. Has no effect without adaptive partitioning, as in Kafka."""

    partitioner_rack_aware: Annotated[bool, BoolOption()] = False
    """Send records without a key to partitions with a leader in `client_rack`, if there are any (KIP-1123)."""

    client_rack: Annotated[str, ClientId()] = ""
    """The place where the producer runs, such as an availability zone, named as `broker.rack` names it for brokers."""

    partitioner_ignore_keys: Annotated[bool, BoolOption()] = False
    """Spread records with a key as those without one. Their order is then not kept by key."""

    interceptors: Annotated[
        tuple[ProducerInterceptor, ...],
        Plugin("a list of ProducerInterceptor", check_interceptors, nothing=(), classes=INTERCEPTORS),
    ] = ()
    """Called with every record before it is sent, and with its outcome."""

    acks: Annotated[int, Acks()] = rules.ACKS_ALL
    """How many brokers must have a record before it counts as delivered: `"all"` (or -1) those in sync, 1 the leader
    alone, 0 none: then it is known only that the record was written to the socket."""

    enable_idempotence: Annotated[bool, BoolOption()] = True
    """Resend without duplicates and without changing the order. Switched off, with a line in the log, when `acks` is
    not `"all"` or `retries` is 0, as in Kafka; asked for together with one of those, it is an error."""

    retries: Annotated[int, IntOption(0)] = 2**31 - 1
    """How often a batch is sent again. Leave it: `delivery_timeout_ms` is the better bound."""

    max_in_flight_requests_per_connection: Annotated[int, IntOption(1)] = 5
    """Produce requests to one broker that are not answered yet. At most 5 with idempotence: a broker remembers five
    batches of each partition. A request for metadata does not wait behind them, so there may be one more."""

    linger_ms: Annotated[int, IntOption(0, INT64_MAX)] = 5
    """How long a batch waits for more records, in ms. An awaited record does not wait:
    its batch leaves at the end of this turn of the event loop. When one has waited so long,
    the others that wait for its broker go with it, in the same request."""

    batch_size: Annotated[int, IntOption(0)] = 262_144
    """The size at which a batch is full, in bytes; 0: one record per batch.
    Kafka's default is 16384. Here a batch starts small and grows on demand, so a large limit costs no
    memory, and larger batches are fewer for the broker to handle."""

    max_request_size: Annotated[int, IntOption(1)] = 1_048_576
    """The largest request, and the largest record before compression, in bytes.
    The broker has a limit of its own, `message.max.bytes`, for a batch after compression."""

    buffer_memory: Annotated[int, IntOption(SMALLEST_CHUNK, INT64_MAX)] = 33_554_432
    """The bytes that batches may take until they are answered. When they are taken, `enqueue` waits,
    the record of `send` waits, and `send_nowait` raises `BufferFullError`. One record may take three quarters of it.
    The smallest value is that of one batch, which Kafka does not ask for."""

    max_waiting_records: Annotated[int, IntOption(0)] = 65_536
    """How many unawaited records may wait for metadata or memory;
    beyond it `send` raises `BufferFullError`. Not an option of Kafka, whose `send` blocks its thread."""

    max_waiting_bytes: Annotated[int, OptionalWhole(0, INT64_MAX)] = -1
    """How many bytes those records may have. `None`: a quarter of `buffer_memory`. Not an option of Kafka."""

    compression_type: Annotated[str, EnumOption(("none", "gzip", "snappy", "lz4", "zstd"))] = "none"
    """How batches are compressed. A batch that would not become smaller is sent as it is."""

    compression_gzip_level: Annotated[int, GzipLevel()] = -1
    """gzip's level; -1 is the library's default, 6."""

    compression_lz4_level: Annotated[int, IntOption(1, 17)] = 9
    """lz4's level."""

    compression_zstd_level: Annotated[int, IntOption(-131_072, 22)] = 3
    """zstd's level; below 0 is faster and larger."""

    max_block_ms: Annotated[int, IntOption(0, INT64_MAX)] = 60_000
    """How long a call waits for metadata and memory together, in ms; also the bound of `start`."""

    delivery_timeout_ms: Annotated[int, IntOption(1)] = 120_000
    """How long a record may take from the call to its acknowledgement, retries included, in ms.
    At least `linger_ms` + `request_timeout_ms`; not given, it grows to that, as in Kafka."""

    request_timeout_ms: Annotated[int, IntOption(1)] = 30_000
    """How long a broker may take to answer a request, in ms.
    Then its connection is closed, and its unanswered requests are sent again."""

    close_timeout_ms: Annotated[int, IntOption(0, INT64_MAX)] = 30_000
    """How long leaving `async with` waits for what is not delivered yet, in ms. Not an option of Kafka."""

    exit_flush_timeout_ms: Annotated[int, IntOption(0, INT64_MAX)] = 1_000
    """How long the end of the program, or of a `multiprocessing` child, waits for records of a `BlockingProducer` that
    was not closed, in ms, and the end of `asyncio.run` for those of a `Producer`; 0: not at all. What is not delivered
    by then is reported on standard error and by the event `producer_not_closed`. Not an option of Kafka."""

    retry_backoff_ms: Annotated[int, IntOption(0, INT64_MAX)] = 100
    """The wait before a batch or request is sent again, in ms.
    It doubles with every failure up to `retry_backoff_max_ms`, give or take 20 %."""

    retry_backoff_max_ms: Annotated[int, IntOption(0, INT64_MAX)] = 1_000
    """The longest such wait, in ms. Not given, it is at least `retry_backoff_ms`."""

    reconnect_backoff_ms: Annotated[int, IntOption(1, INT64_MAX)] = 50
    """The wait before connecting again to the same broker, in ms. Grows as `retry_backoff_ms` does."""

    reconnect_backoff_max_ms: Annotated[int, IntOption(1, INT64_MAX)] = 1_000
    """The longest such wait, in ms. As in Kafka, it is `reconnect_backoff_ms` when only that is given."""

    socket_connection_setup_timeout_ms: Annotated[int, IntOption(1, INT64_MAX)] = 10_000
    """How long connecting may take, in ms. Doubles with every failed attempt in a row."""

    socket_connection_setup_timeout_max_ms: Annotated[int, IntOption(1, INT64_MAX)] = 30_000
    """The longest such time, in ms. Not given, it is at least `socket_connection_setup_timeout_ms`."""

    connections_max_idle_ms: Annotated[int, IntOption(1, INT64_MAX)] = 540_000
    """The time after which an unused connection is closed, in ms; below the brokers' own ten minutes."""

    send_buffer_bytes: Annotated[int, IntOption(-1)] = 131_072
    """The socket's send buffer, in bytes; -1 leaves it to the operating system."""

    receive_buffer_bytes: Annotated[int, IntOption(-1)] = 32_768
    """The socket's receive buffer, in bytes; -1 leaves it to the operating system."""

    metadata_max_age_ms: Annotated[int, IntOption(1, INT64_MAX)] = 300_000
    """The time after which leaders and partitions are fetched again, in ms, even if nothing failed."""

    metadata_max_idle_ms: Annotated[int, IntOption(5_000, INT64_MAX)] = 300_000
    """The time after which a topic without records is forgotten, in ms; it is fetched again when needed."""

    metadata_recovery_rebootstrap_trigger_ms: Annotated[int, IntOption(0, INT64_MAX)] = 300_000
    """The time without any response after which the bootstrap servers are tried again, in ms (KIP-1102)."""

    security_protocol: Annotated[str, SecurityProtocol()] = "PLAINTEXT"
    """The protocol of the connections to brokers, in any case: `PLAINTEXT`, `SSL` (TLS), `SASL_PLAINTEXT` or
    `SASL_SSL` (SASL over TLS). Never follows from other options: credentials without it are an error."""

    ssl_truststore_location: Annotated[str | None, FileName()] = None
    """The file with the CAs, or certificates of brokers, to trust: PEM, PKCS12 or JKS.
    Without it and `ssl_truststore_certificates`, the system's CAs are trusted.
    Files are looked at before each connection, and loaded again if they have changed."""

    ssl_truststore_type: Annotated[str | None, StoreType()] = None
    """The type of that file. It need not be given, and does not matter: the bytes of the file tell."""

    ssl_truststore_password: Annotated[Password | None, PasswordOption()] = None
    """The password of that file, if it is PKCS12 or JKS: text, a `Secret`, or a function, also `async`."""

    ssl_truststore_certificates: Annotated[str | None, PemText()] = None
    """Instead of a file: the certificates to trust, as PEM text."""

    ssl_keystore_location: Annotated[str | None, FileName()] = None
    """The file with this client's certificate, for brokers that want one: PEM (the certificate and its intermediates,
    and the private key unless that is in `ssl_key_location`), PKCS12 or JKS."""

    ssl_key_location: Annotated[str | None, FileName()] = None
    """The PEM file with the private key, if it is a file of its own, such as `tls.key` beside `tls.crt`. Loaded again
    when it changes, as all files. Not an option of Kafka; librdkafka's `ssl.key.location`."""

    ssl_keystore_type: Annotated[str | None, StoreType()] = None
    """The type of that file. It need not be given, and does not matter: the bytes of the file tell."""

    ssl_keystore_password: Annotated[Password | None, PasswordOption()] = None
    """The password of that file, if it is PKCS12 or JKS: text, a `Secret`, or a function, also `async`."""

    ssl_keystore_key: Annotated[Password | None, PasswordOption()] = None
    """Instead of a file: the private key, as PEM text, a `Secret` or a function. Needs the next option."""

    ssl_keystore_certificate_chain: Annotated[str | None, PemText()] = None
    """The certificate of `ssl_keystore_key`, and its intermediates, as PEM text."""

    ssl_key_password: Annotated[Password | None, PasswordOption()] = None
    """The password of the private key, if it is encrypted: text, a `Secret`, or a function, also `async`."""

    ssl_enabled_protocols: Annotated[tuple[str, ...], Words("TLSv1.2, TLSv1.3", check_versions)] = (
        "TLSv1.2",
        "TLSv1.3",
    )
    """The versions of TLS that may be spoken; older ones are not safe."""

    ssl_protocol: Annotated[str, EnumOption(("TLS", "TLSv1.2", "TLSv1.3"))] = "TLSv1.3"
    """The highest version of TLS that may be spoken."""

    ssl_endpoint_identification_algorithm: Annotated[str, NameCheck()] = "https"
    """`https`: a broker's certificate must be for the host name under which the cluster advertises it.
    Empty: for any name, with a warning, since anyone with a certificate of a trusted CA can then pass as a broker."""

    ssl_cipher_suites: Annotated[tuple[str, ...], Words("names of IANA or OpenSSL", lambda _: None)] = ()
    """The cipher suites that may be used with TLS 1.2, best first; empty: OpenSSL's choice.
    Python cannot choose among those of TLS 1.3."""

    ssl_context: Annotated[TlsContextArgument | None, TlsContextOption()] = None
    """Instead of all other `ssl_` options: a context of Python's, or a function that is called for each connection
    and returns one. Takes the place of Java's `ssl.engine.factory.class`. Not an option of Kafka."""

    sasl_mechanism: Annotated[str | None, SaslMechanism()] = None
    """How a `SASL_...` connection authenticates, as the brokers spell it. Only this mechanism is used, also when a
    broker offers others. Kafka's default is GSSAPI; here there is none."""

    sasl_username: Annotated[str | None, Username()] = None
    """The user of PLAIN and SCRAM."""

    sasl_password: Annotated[Password | None, PasswordOption()] = None
    """The password of PLAIN and SCRAM: text, a `Secret`, or a function that returns one, also `async`.
    It is asked for at each authentication, so a function, or a `Secret` of a variable or file, takes a new password
    without a restart. Of an exception of the function only the class is shown; of `AuthenticationError`, the text."""

    sasl_jaas_config: Annotated[Secret | None, SecretText()] = None
    """The credentials in the form of Java's clients, as a `client.properties` has them:
    `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";`.
    `sasl_username` and `sasl_password` are taken from it; `tokenauth="true"` says that they are a delegation token.
    As a `Secret` of a variable or file, both are read for each authentication. With Java's `Krb5LoginModule`, `keyTab`,
    `principal` and `serviceName` become `sasl_kerberos_` options; `useTicketCache` and `ticketCache` are followed."""

    sasl_token_provider: Annotated[TokenProvider | None, Plugin(_PROVIDER, check_token_provider)] = None
    """The source of tokens of OAUTHBEARER: an object with `async def token()`, which returns text or a `Token`.
    `aioproducer.security` has ready-made ones. Not an option of Kafka, whose callback handlers are Java classes."""

    sasl_kerberos_service_name: Annotated[str | None, Username()] = None
    """The first part of the brokers' Kerberos principals, for GSSAPI: `kafka` nearly everywhere. The second is the
    broker's host name, as in `bootstrap_servers` and as the cluster advertises it."""

    sasl_kerberos_keytab: Annotated[str | None, FileName()] = None
    """A file with the keys of `sasl_kerberos_principal`, with which tickets are fetched without `kinit`. Without one,
    the ticket cache (`KRB5CCNAME`) is read. Not an option of Kafka, which has it in `sasl.jaas.config`."""

    sasl_kerberos_principal: Annotated[str | None, Username()] = None
    """The principal that authenticates with GSSAPI, such as `billing@EXAMPLE.COM`; None is the first one of the keytab,
    or that of the ticket cache. Not an option of Kafka, which has it in `sasl.jaas.config`."""

    sasl_login_refresh_window_factor: Annotated[float, FloatOption(0.5, 1.0)] = 0.8
    """The part of a token's lifetime after which the next token is fetched."""

    sasl_login_refresh_window_jitter: Annotated[float, FloatOption(0.0, 0.25)] = 0.05
    """The largest random part of the lifetime that is added to it."""

    sasl_login_refresh_min_period_seconds: Annotated[int, IntOption(0, 900)] = 60
    """The shortest time between two tokens, in seconds. This and the next option do not apply to a token whose lifetime
    is shorter than both together."""

    sasl_login_refresh_buffer_seconds: Annotated[int, IntOption(0, 3_600)] = 300
    """How long before its end a token is replaced at the latest, in seconds."""

    sasl_login_connect_timeout_ms: Annotated[int | None, OptionalTimeout(1)] = None
    """How long a token provider may take to connect, in ms; with `sasl_login_read_timeout_ms` the bound of a
    whole fetch. `None`: 10 s each."""

    sasl_login_read_timeout_ms: Annotated[int | None, OptionalTimeout(1)] = None
    """How long a token provider may take to read, in ms."""

    sasl_login_retry_backoff_ms: Annotated[int, IntOption(0, INT64_MAX)] = 100
    """The wait in ms before a token is fetched again: after a failure, or if refused. Grows as `retry_backoff_ms`."""

    sasl_login_retry_backoff_max_ms: Annotated[int, IntOption(0, INT64_MAX)] = 10_000
    """The longest such wait, in ms; also the longest between two connections while a broker refuses the credentials."""

    allow_plaintext_credentials: Annotated[bool, BoolOption()] = False
    """Allow PLAIN and OAUTHBEARER over `SASL_PLAINTEXT`, readable by all on the way. Not an option of Kafka."""

    client_dns_lookup: Annotated[str, EnumOption(_DNS_LOOKUPS)] = _DNS_LOOKUPS[0]
    """The names that are connected to. All addresses of a name are tried, of both families, each started 250 ms after
    the one before it. With `resolve_canonical_bootstrap_servers_only`, the names of bootstrap servers become those that
    their addresses have, which Kerberos may ask for."""

    proxy_url: Annotated[Proxy | Secret | None, ProxyUrl()] = None
    """A proxy for all connections: `"socks5h://user:password@host:1080"`, whose names the proxy resolves, `socks5://`,
    whose names are resolved here, or `http://`, which is asked with CONNECT. Also for the token endpoint of
    `ClientCredentials` and `JwtBearer`. Special characters in user and password are written as in `%40`. A `Secret` of
    a variable or file is read for each connection. The password is shown nowhere. Not an option of Kafka."""

    address_map: Annotated[AddressMap | None, AddressMapOption()] = None
    """Addresses to connect to instead of those that brokers advertise, for port forwards and NAT:
    a dict `{"kafka-1.internal:9092": "localhost:19092"}`, or a function of `"host:port"` that returns another
    `"host:port"`, or None. TLS still checks the advertised name.
    In a property file: `kafka-1.internal:9092=localhost:19092,...`. Not an option of Kafka."""

    allowed_brokers: Annotated[tuple[BrokerPattern, ...], AllowedBrokers()] = ()
    """The only brokers that metadata may lead to, as patterns of host or host:port such as `"kafka-*.internal"` or
    `"10.0.0.*:9092"`; with none, all are allowed. Bootstrap servers always are. Not an option of Kafka."""

    enable_metrics_push: Annotated[bool, BoolOption()] = False
    """Push metrics to a broker that asks for them (KIP-714), as the cluster's `client-metrics` resources say. Needs the
    extra `telemetry`. Kafka's default is true. Here it is off, since metrics name topics to people who do not run the
    application, and since records wait behind a push that a broker's plug-in is slow to take."""

    metrics_num_samples: Annotated[int, IntOption(1)] = 2
    """How many sample windows Kafka's `-avg`, `-max` and `-rate` metrics are of: by default, the last minute."""

    metrics_sample_window_ms: Annotated[int, IntOption(1)] = 30_000
    """Length of one sample window, in ms."""

    transactional_id: Annotated[str | None, TransactionalId()] = None
    """The name under which a producer's transactions survive its restart; with it, every record belongs to one.
    Of two live ones the older is fenced: give each worker its own, by a variable perhaps: `"billing-{WORKER}"`.
    Brokers with authorization want Write and Describe on it."""

    transaction_timeout_ms: Annotated[int, IntOption(1)] = 60_000
    """How long a transaction may stay open before the broker aborts it, in ms.
    At most the broker's `transaction.max.timeout.ms`, 15 minutes unless changed."""

    bootstrap: tuple[tuple[str, int], ...] = field(init=False, compare=False)
    """`bootstrap_servers` as (host, port) pairs."""

    given: Mapping[str, object] = field(init=False, compare=False)
    """The options that the user gave: name in Python spelling -> value."""

    adjustments: tuple[rules.Adjustment, ...] = field(init=False, compare=False)
    """Values that follow from other options, each with the reason."""

    notes: tuple[str, ...] = field(init=False, compare=False)
    """What a property file or JAAS text says that is not used, or read differently from Java; logged at start."""

    _client_numbers: ClassVar = count(1)  # as Kafka's: one series for the process

    def __init__(self, *, bootstrap_servers: object, **options: Unpack[ProducerOptions]) -> None:
        named = in_python_spelling(options, option_kinds())
        self._put("bootstrap", parse_bootstrap_servers(bootstrap_servers))
        self._put("bootstrap_servers", tuple(place_text(host, port) for host, port in self.bootstrap))
        for name, value in texts.accept_all(option_kinds(), named, option_defaults()).items():
            self._put(name, value)
            if name in named and getattr(option_kinds()[name], "is_secret", False):
                named[name] = value  # no repr shows it
        self._put("given", named)
        if self.max_waiting_bytes < 0:
            self._put("max_waiting_bytes", self.buffer_memory // 4)
        self._put("adjustments", tuple(self._adjust()))
        for name, value in credentials_of_jaas(self).items():
            self._put(name, value)
        self._put("notes", notes_of_jaas(self))
        rules.check_rules(self)
        check_security(self, option_defaults())
        check_sasl(self)

    @classmethod
    def of(cls, bootstrap_servers: object, options: ProducerOptions) -> Self:
        """Return the configuration that the arguments of `Producer(...)` mean.

        `bootstrap_servers` may be a whole configuration, which `options` then change.
        """
        if isinstance(bootstrap_servers, cls):
            return bootstrap_servers.replace(**options) if options else bootstrap_servers
        return cls(bootstrap_servers=bootstrap_servers, **options)

    @classmethod
    def from_kafka_properties(cls, properties: Mapping[str, object]) -> Self:
        """Return the configuration that Kafka's properties mean: `{"linger.ms": "5"}`.

        Args:
            properties: names in either spelling; texts are read as Kafka reads them, other values are taken as they
                are. Kafka's serializers and partitioners may be given by the names of their Java classes. Options of
                consumers and of schema registries are ignored, and named in `notes`.

        Raises:
            ConfigurationError: as the constructor; also a text that cannot be read, or an option in both spellings.
            ConfigurationTypeError: as the constructor; also no mapping, and no `bootstrap.servers`.
        """
        return cls._of_texts(properties)

    @classmethod
    def from_properties_file(cls, path: str | PathLike[str], **options: Unpack[ProducerOptions]) -> Self:
        r"""Return the configuration of a Java property file, such as Kafka's `producer.properties`.

        The file is read as `java.util.Properties.load` reads it: comments, separators, continued lines, `\uXXXX`.
        Text that is not ASCII is UTF-8 or, where it cannot be, ISO-8859-1; Java takes it for ISO-8859-1 always.

        Args:
            path: of the file.
            options: what the file cannot say, such as a `sasl_token_provider`; they take precedence over it, and a
                provider over the options with which Java fetches tokens.

        Raises:
            ConfigurationError: as `from_kafka_properties`; says in which lines.
            ConfigurationTypeError: likewise.
            OSError: the file cannot be read.
        """
        properties = read_properties(path)
        try:
            beside = in_python_spelling(options, option_kinds())
            left = {name: found.value for name, found in properties.items() if python_name(name) not in beside}
            config = cls._of_texts({**left, **beside})
        except ConfigurationError as error:
            refused = texts.in_file(error, path, properties)
            raise refused from error
        config._put("notes", (*config.notes, *texts.notes_of_file(path, properties)))
        return config

    @classmethod
    def from_environment(cls, prefix: str = "AIOPRODUCER_") -> Self:
        """Return the configuration of environment variables: `AIOPRODUCER_LINGER_MS=5` is `linger_ms=5`.

        Args:
            prefix: of the variables' names; the option follows, in capitals. Every variable with it must be an option.

        Raises:
            ConfigurationError: as `from_kafka_properties`; names the variable.
            ConfigurationTypeError: likewise; also a prefix that is empty or no text.
        """
        if not isinstance(prefix, str) or not prefix:
            raise ConfigurationTypeError(f"prefix must be text, and not empty, not {prefix!r}")
        try:
            return cls._of_texts(texts.options_of_variables(prefix), is_shared=False)
        except ConfigurationError as error:
            refused = texts.in_environment(error, prefix)
            raise refused from error

    @classmethod
    def _of_texts(cls, properties: Mapping[str, object], *, is_shared: bool = True) -> Self:
        read = texts.read_options(properties, option_kinds(), is_shared=is_shared)
        config = cls(**cast("Any", read.options))
        config._put("notes", (*read.notes, *config.notes))
        return config

    @classmethod
    def _preset(cls, preset: ProducerOptions, bootstrap_servers: object, options: ProducerOptions) -> Self:
        changed = {**preset, **in_python_spelling(options, option_kinds())}
        return cls(bootstrap_servers=bootstrap_servers, **cast("ProducerOptions", changed))

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return a JSON Schema (draft 2020-12) of the documents that `from_kafka_properties` takes.

        It has names in Python's spelling, types, ranges, defaults and texts, and marks secrets as `writeOnly`. It lacks
        options that only Python objects can be, such as `ssl_context`, and the rules of options that go together.
        """
        from aioproducer.config._json_schema import schema_of  # noqa: PLC0415  # rarely used

        return schema_of(option_kinds(), option_defaults(), sys.modules[__name__])

    def replace(self, *, bootstrap_servers: object = _AS_THEY_ARE, **options: Unpack[ProducerOptions]) -> Self:
        """Return a configuration with some options changed, and what follows from them.

        Args:
            bootstrap_servers: as the field; not given, they stay.
            options: as the constructor's.

        Raises:
            ConfigurationError, ConfigurationTypeError: as the constructor.
        """
        changed = {**self.given, **in_python_spelling(options, option_kinds())}
        servers = self.bootstrap_servers if bootstrap_servers is _AS_THEY_ARE else bootstrap_servers
        config = type(self)(bootstrap_servers=servers, **cast("ProducerOptions", changed))
        config._put("notes", tuple(dict.fromkeys((*self.notes, *config.notes))))
        return config

    @property
    def times_transactions_out_early(self) -> bool:
        """Whether brokers are told, on purpose, to abort transactions before their records are given up."""
        if self.transactional_id is None or not {"transaction_timeout_ms", "delivery_timeout_ms"} <= self.given.keys():
            return False
        return self.transaction_timeout_ms < self.delivery_timeout_ms

    def name_client(self) -> str:
        """Return `client_id`, or the next number of the process's series: `producer-1`."""
        return self.client_id or f"producer-{next(self._client_numbers)}"

    @in_any_state
    def __repr__(self) -> str:
        """Show what was given; the rest are defaults."""
        options = "".join(f", {name}={value!r}" for name, value in self.given.items())
        return f"ProducerConfig(bootstrap_servers={','.join(self.bootstrap_servers)!r}{options})"

    def _adjust(self) -> list[rules.Adjustment]:
        adjustments: list[rules.Adjustment] = []
        for rule in rules.ADJUSTING_RULES:
            adjustment = rule(self, self.given.keys())
            if adjustment is not None:
                self._put(adjustment.option, adjustment.value)
                adjustments.append(adjustment)
        return adjustments

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # a frozen dataclass


@cache
def option_kinds() -> Mapping[str, OptionKind]:
    """Option name -> its kind, in the order of the fields; without `bootstrap_servers`."""
    hints = get_type_hints(ProducerConfig, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


@cache
def option_defaults() -> Mapping[str, object]:
    """Option name -> the value in effect when nothing is given, but for what follows from other options."""
    return {each.name: each.default for each in fields(ProducerConfig) if each.default is not MISSING}
