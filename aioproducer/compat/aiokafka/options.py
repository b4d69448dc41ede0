"""aiokafka's constructor arguments as a `ProducerConfig`."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from operator import index
from socket import AF_INET6
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, SupportsIndex, TypeAlias, cast

from aiokafka.conn import collect_hosts
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.producer import AIOKafkaProducer as _Theirs

from aioproducer._network.addresses import place_text
from aioproducer.config._option_types import INT32_MAX, IntOption
from aioproducer.errors import ConfigurationError, ConfigurationTypeError

if TYPE_CHECKING:
    from aioproducer.cluster import Cluster
    from aioproducer.config.producer_options import ProducerOptions

ChoosePartition: TypeAlias = Callable[[Any, list[int], list[int]], int]  # type: ignore[explicit-any]  # `key: bytes` is allowed
"""aiokafka's partitioner: (serialized key, all partitions, those with a leader) to one of them."""

ACKS_NOT_GIVEN: Final = cast("Literal['all']", inspect.signature(_Theirs).parameters["acks"].default)
"""aiokafka's own default of `acks`, an object. Frameworks import it and pass it on, FastStream for one."""

NEVER_IDLE_MS: Final = 10 * 365 * 24 * 3_600_000
"""For `connections_max_idle_ms=None`."""

_BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Memory for all partitions together, the default of a `Producer`."""

_COMPRESSION_TYPES: Final = ("gzip", "snappy", "lz4", "zstd", None)

_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class AiokafkaPartitioner:
    """A partitioner of aiokafka's form.

    Args:
        choose: the user's.
    """

    def __init__(self, choose: ChoosePartition) -> None:
        self._choose = choose

    def partition(  # noqa: PLR0917  # Kafka's signature
        self,
        topic: str,
        key: object,  # noqa: ARG002  # aiokafka shows the bytes alone
        key_bytes: bytes | None,
        value: object,  # noqa: ARG002
        value_bytes: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        """Ask the user's."""
        every = list(range(cluster.partition_count(topic) or 0))
        with_leader = [one for one in every if cluster.leader_of(topic, one) is not None]
        return cast("int", as_whole(self._choose(key_bytes, every, with_leader)))


def with_default_port(bootstrap_servers: str | Sequence[str]) -> list[str]:
    """Read aiokafka's `bootstrap_servers`: a port may be left out.

    Raises:
        ConfigurationError: they cannot be read.
    """
    try:
        hosts: list[tuple[str, int, int]] = collect_hosts(bootstrap_servers, randomize=False)
    except (TypeError, ValueError, AttributeError) as error:  # the last for an item that is no str
        raise ConfigurationError(
            f"bootstrap_servers must be 'host:port', 'host' or a sequence of such, not {bootstrap_servers!r}: {error}",
            option="bootstrap_servers",
        ) from error
    # Other hosts with a colon, such as one with a scheme, are refused by the producer, as they were given.
    return [place_text(host, port) if family == AF_INET6 else f"{host}:{port}" for host, port, family in hosts]


def own_partitioner(partitioner: ChoosePartition) -> AiokafkaPartitioner | None:
    """Wrap the user's; None leaves the choice to the producer, whose choice for keys is aiokafka's."""
    return None if isinstance(partitioner, DefaultPartitioner) else AiokafkaPartitioner(partitioner)


class SaslArguments(NamedTuple):
    """The arguments whose names begin with `sasl_`."""

    mechanism: str
    username: str | None
    password: str | None
    token_provider: object
    kerberos_service_name: str
    kerberos_domain_name: str | None


def security_options(security_protocol: str, ssl_context: object, sasl: SaslArguments) -> ProducerOptions:
    """Return aiokafka's options of secured connections as those of a `Producer`.

    Raises:
        ConfigurationError: they do not fit together, or cannot be served.
    """
    if security_protocol not in _SECURITY_PROTOCOLS:
        raise ConfigurationError(
            f"`security_protocol` should be SSL or PLAINTEXT, or one of these after SASL_, not {security_protocol!r}",
            option="security_protocol",
        )
    if security_protocol.endswith("SSL") and ssl_context is None:
        raise ConfigurationError(
            f"`ssl_context` is mandatory if security_protocol=={security_protocol!r}", option="ssl_context"
        )
    options: dict[str, object] = {"security_protocol": security_protocol}
    if security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context
    if security_protocol.startswith("SASL"):
        # aiokafka sends passwords in the clear if it is asked to, with a warning of its own.
        options |= {"sasl_mechanism": sasl.mechanism, "allow_plaintext_credentials": True}
        if sasl.mechanism == "OAUTHBEARER":
            options["sasl_token_provider"] = sasl.token_provider
        elif sasl.mechanism == "GSSAPI":
            if sasl.kerberos_domain_name is not None:
                raise ConfigurationError(
                    "sasl_kerberos_domain_name is not supported: each broker's ticket is for the name that the cluster "
                    "advertises",
                    option="sasl_kerberos_domain_name",
                )
            options["sasl_kerberos_service_name"] = sasl.kerberos_service_name
        else:
            options |= {"sasl_username": sasl.username, "sasl_password": sasl.password}
    return cast("ProducerOptions", options)


def refuse_unknown(acks: object, compression_type: object) -> None:
    """Refuse what aiokafka refuses and `ProducerConfig` would take, such as `acks="1"`.

    Raises:
        ConfigurationError: `acks` is another text than "all", or `compression_type` is not a codec of aiokafka's.
    """
    if isinstance(acks, str) and acks != "all":
        raise ConfigurationError(f"acks must be 'all', -1, 0 or 1, not {acks!r}", option="acks")
    if compression_type not in _COMPRESSION_TYPES:
        raise ConfigurationError(
            f"compression_type must be 'gzip', 'snappy', 'lz4', 'zstd' or None, not {compression_type!r}",
            option="compression_type",
        )


def refuse_uncallable(**functions: object) -> None:
    """Refuse at the constructor what every `send` would fail of.

    Raises:
        ConfigurationTypeError: one that is given cannot be called, or the partitioner is not given.
    """
    for option, function in functions.items():
        if not callable(function) and not (function is None and option != "partitioner"):
            raise ConfigurationTypeError(f"{option} must be a function, not {function!r}", option=option)


def warn_of_deprecated(*, loop: object, api_version: object) -> None:
    """Warn as aiokafka does of what is ignored, from the line that constructs."""
    for name, given, text in (
        ("loop", loop, "has been deprecated since 0.7.1 and will be removed in a future release."),
        (
            "api_version",
            api_version,
            "has been deprecated since 0.13.0. It is now a no-op and will be removed in a future release.",
        ),
    ):
        if given is not None:
            warnings.warn(f"The `{name}` parameter {text}", DeprecationWarning, stacklevel=4)


def buffer_for(max_request_size: int) -> int:
    """Bytes of the buffer: a record has three quarters of it at most, and aiokafka's is as large as a request."""
    return max(_BUFFER_BYTES, (max_request_size // 3 + 1) * 4) if isinstance(max_request_size, int) else _BUFFER_BYTES


def as_whole(number: object) -> object:
    """An int for what is one, numpy's too; anything else as it is, to be refused by name."""
    if isinstance(number, bool | type) or not isinstance(number, SupportsIndex):
        return number
    return index(number)


def as_milliseconds(timestamp: object) -> object:
    """As `as_whole`, and what is left of `time.time() * 1000`: aiokafka drops the fraction."""
    if isinstance(timestamp, float) and math.isfinite(timestamp):
        return math.floor(timestamp)  # of a time below zero nothing is left that could be one
    return as_whole(timestamp)


def life_of_a_record(request_timeout_ms: int, linger_ms: int, *, transaction_timeout_ms: int | None = None) -> int:
    """Milliseconds: aiokafka's `request_timeout_ms` bounds the wait in its queue, and then the last request.

    No record need outlive its transaction.

    Raises:
        ConfigurationError: one of them is no such number.
    """
    IntOption(1).accept("request_timeout_ms", request_timeout_ms)
    least = request_timeout_ms + IntOption(0).accept("linger_ms", linger_ms)
    longest = min(2 * request_timeout_ms, INT32_MAX)
    if transaction_timeout_ms is not None:
        IntOption(1).accept("transaction_timeout_ms", transaction_timeout_ms)
    return max(least, longest if transaction_timeout_ms is None else min(longest, transaction_timeout_ms))
