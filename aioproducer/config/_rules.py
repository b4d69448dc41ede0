"""Rules between options: values that follow from other options, and options that cannot go together.

`adjust_...` functions return the change that Kafka would make by itself, for the log; `check_rules` raises.

Source: org.apache.kafka.clients.producer.{ProducerConfig,KafkaProducer},
org.apache.kafka.clients.CommonClientConfigs.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from importlib.util import find_spec
from typing import Final, NamedTuple, Protocol

from aioproducer.config._option_types import INT32_MAX
from aioproducer.errors import ConfigurationError

ACKS_ALL = -1
MAX_IN_FLIGHT_IDEMPOTENT = 5  # a broker remembers the last five batches of a producer and partition


class _Options(Protocol):  # noqa: PLR0904  # one line per option
    """The options of a `ProducerConfig` that rules read."""

    @property
    def acks(self) -> int: ...

    @property
    def client_rack(self) -> str: ...

    @property
    def delivery_timeout_ms(self) -> int: ...

    @property
    def enable_idempotence(self) -> bool: ...

    @property
    def enable_metrics_push(self) -> bool: ...

    @property
    def linger_ms(self) -> int: ...

    @property
    def max_in_flight_requests_per_connection(self) -> int: ...

    @property
    def partitioner_rack_aware(self) -> bool: ...

    @property
    def reconnect_backoff_max_ms(self) -> int: ...

    @property
    def reconnect_backoff_ms(self) -> int: ...

    @property
    def request_timeout_ms(self) -> int: ...

    @property
    def retries(self) -> int: ...

    @property
    def retry_backoff_max_ms(self) -> int: ...

    @property
    def retry_backoff_ms(self) -> int: ...

    @property
    def socket_connection_setup_timeout_max_ms(self) -> int: ...

    @property
    def socket_connection_setup_timeout_ms(self) -> int: ...

    @property
    def transactional_id(self) -> str | None: ...


class Adjustment(NamedTuple):
    """A change to an option that the user did not give, because of one that the user gave."""

    option: str
    value: int | bool
    reason: str


def adjust_reconnect_backoff(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """Let the wait not grow if only `reconnect_backoff_ms` is given."""
    if "reconnect_backoff_max_ms" in given or "reconnect_backoff_ms" not in given:
        return None
    return Adjustment("reconnect_backoff_max_ms", config.reconnect_backoff_ms, "only reconnect_backoff_ms was given")


def adjust_retry_backoff(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """Raise the default maximum to a larger first backoff."""
    if "retry_backoff_max_ms" in given or config.retry_backoff_ms <= config.retry_backoff_max_ms:
        return None
    reason = f"retry_backoff_ms={config.retry_backoff_ms}"
    return Adjustment("retry_backoff_max_ms", config.retry_backoff_ms, reason)


def adjust_connection_setup_timeout(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """Raise the default maximum to a larger first time-out."""
    first = config.socket_connection_setup_timeout_ms
    if "socket_connection_setup_timeout_max_ms" in given or first <= config.socket_connection_setup_timeout_max_ms:
        return None
    reason = f"socket_connection_setup_timeout_ms={first}"
    return Adjustment("socket_connection_setup_timeout_max_ms", first, reason)


def adjust_delivery_timeout(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """Let the default cover the linger and the request time-out."""
    needed = _shortest_delivery_timeout_ms(config)
    if "delivery_timeout_ms" in given or config.delivery_timeout_ms >= needed:
        return None
    return Adjustment("delivery_timeout_ms", needed, "linger_ms + request_timeout_ms")


def adjust_idempotence(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """Switch idempotence off without all acknowledgements, or without retries."""
    if "enable_idempotence" in given or (config.acks == ACKS_ALL and config.retries > 0):
        return None
    reason = "retries=0" if config.acks == ACKS_ALL else f"acks={config.acks}"
    return Adjustment("enable_idempotence", False, reason)


def check_rules(config: _Options) -> None:
    """Refuse options that cannot go together."""
    if config.enable_idempotence:
        _check_idempotence(config)
    elif config.transactional_id is not None:
        raise ConfigurationError(
            f'transactional_id={config.transactional_id!r} needs enable_idempotence=True, and so acks="all" and '
            "retries above 0",
            option="transactional_id",
        )
    needed = _shortest_delivery_timeout_ms(config)
    if config.delivery_timeout_ms < needed:
        total = config.linger_ms + config.request_timeout_ms
        limit = "" if total == needed else f", or {needed}, the longest there is"
        raise ConfigurationError(
            f"delivery_timeout_ms must be at least linger_ms + request_timeout_ms = {config.linger_ms} + "
            f"{config.request_timeout_ms} = {total}{limit}, not {config.delivery_timeout_ms}",
            option="delivery_timeout_ms",
        )
    for name in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"):
        first, maximum = getattr(config, f"{name}_ms"), getattr(config, f"{name}_max_ms")
        if first > maximum:
            text = f"{name}_max_ms must be at least {name}_ms = {first}, not {maximum}"
            raise ConfigurationError(text, option=f"{name}_max_ms")
    if config.partitioner_rack_aware and not config.client_rack.strip():
        text = "partitioner_rack_aware=True needs client_rack, the broker.rack of the brokers to prefer"
        raise ConfigurationError(text, option="client_rack")
    if config.enable_metrics_push and not _can_encode_metrics():
        text = "enable_metrics_push=True needs opentelemetry-proto: pip install 'aioproducer[telemetry]'"
        raise ConfigurationError(text, option="enable_metrics_push")


def _can_encode_metrics() -> bool:
    try:
        return find_spec("opentelemetry.proto.metrics") is not None
    except ModuleNotFoundError:
        return False


def _check_idempotence(config: _Options) -> None:
    in_flight = config.max_in_flight_requests_per_connection
    if config.acks != ACKS_ALL:
        raise ConfigurationError(
            f'enable_idempotence=True needs acks="all", not {config.acks}: leave acks out, or set '
            "enable_idempotence=False",
            option="acks",
        )
    if config.retries == 0:
        raise ConfigurationError(
            "enable_idempotence=True needs retries above 0, not 0: leave retries out, or set enable_idempotence=False",
            option="retries",
        )
    if in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        raise ConfigurationError(
            f"max_in_flight_requests_per_connection must be at most {MAX_IN_FLIGHT_IDEMPOTENT} "
            f"with idempotence, not {in_flight}; or set enable_idempotence=False",
            option="max_in_flight_requests_per_connection",
        )


def _shortest_delivery_timeout_ms(config: _Options) -> int:
    # A linger and a delivery time-out that are both as long as possible go together: Kafka gives them one range.
    return min(config.linger_ms + config.request_timeout_ms, INT32_MAX)


ADJUSTING_RULES: Final = (
    adjust_reconnect_backoff,
    adjust_retry_backoff,
    adjust_connection_setup_timeout,
    adjust_delivery_timeout,
    adjust_idempotence,
)
