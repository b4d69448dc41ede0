"""Rules between options: what follows from what, and what cannot go together.

Each function is one rule. `adjust_...` returns what Kafka would change by itself, for the log;
`require_...` raises.

Source: org.apache.kafka.clients.producer.{ProducerConfig,KafkaProducer},
org.apache.kafka.clients.CommonClientConfigs.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, Protocol

from aioproducer.config.option_types import INT32_MAX
from aioproducer.errors import ConfigurationError

ACKS_ALL = -1
MAX_IN_FLIGHT_IDEMPOTENT = 5  # a broker remembers the last five batches of a producer and partition


class _Options(Protocol):
    """The options of a `ProducerConfig` that rules read."""

    @property
    def acks(self) -> int: ...

    @property
    def delivery_timeout_ms(self) -> int: ...

    @property
    def enable_idempotence(self) -> bool: ...

    @property
    def linger_ms(self) -> int: ...

    @property
    def max_in_flight_requests_per_connection(self) -> int: ...

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
    """An option whose value the user did not give, changed because of one the user gave."""

    option: str
    value: int | bool
    reason: str


def adjust_reconnect_backoff(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """Who sets only `reconnect_backoff_ms` wants that wait every time: no growth."""
    if "reconnect_backoff_max_ms" in given or "reconnect_backoff_ms" not in given:
        return None
    return Adjustment("reconnect_backoff_max_ms", config.reconnect_backoff_ms, "only reconnect_backoff_ms was given")


def adjust_retry_backoff(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """A first backoff above the default maximum lifts the maximum."""
    if "retry_backoff_max_ms" in given or config.retry_backoff_ms <= config.retry_backoff_max_ms:
        return None
    reason = f"retry_backoff_ms={config.retry_backoff_ms}"
    return Adjustment("retry_backoff_max_ms", config.retry_backoff_ms, reason)


def adjust_connection_setup_timeout(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """A first time-out above the default maximum lifts the maximum."""
    first = config.socket_connection_setup_timeout_ms
    if "socket_connection_setup_timeout_max_ms" in given or first <= config.socket_connection_setup_timeout_max_ms:
        return None
    reason = f"socket_connection_setup_timeout_ms={first}"
    return Adjustment("socket_connection_setup_timeout_max_ms", first, reason)


def adjust_delivery_timeout(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """The default grows with the linger and the request time-out it must cover."""
    needed = _shortest_delivery_timeout_ms(config)
    if "delivery_timeout_ms" in given or config.delivery_timeout_ms >= needed:
        return None
    return Adjustment("delivery_timeout_ms", needed, "linger_ms + request_timeout_ms")


def adjust_idempotence(config: _Options, given: AbstractSet[str]) -> Adjustment | None:
    """Without all acknowledgements or without retries there is no idempotence to be had."""
    if "enable_idempotence" in given or (config.acks == ACKS_ALL and config.retries > 0):
        return None
    reason = "retries=0" if config.acks == ACKS_ALL else f"acks={config.acks}"
    return Adjustment("enable_idempotence", False, reason)


def require_idempotence_has_acks_all(config: _Options) -> None:
    """An idempotent producer hears of every record from all replicas in sync.

    Raises:
        ConfigurationError: acks is 0 or 1.
    """
    if config.enable_idempotence and config.acks != ACKS_ALL:
        raise ConfigurationError(
            f'enable_idempotence=True needs acks="all", not {config.acks}; leave out one of the two', option="acks"
        )


def require_idempotence_has_retries(config: _Options) -> None:
    """What may not be sent again needs no protection from duplicates.

    Raises:
        ConfigurationError: retries is 0.
    """
    if config.enable_idempotence and config.retries == 0:
        raise ConfigurationError(
            "enable_idempotence=True needs retries above 0, not 0; leave out one of the two", option="retries"
        )


def require_idempotence_has_few_in_flight(config: _Options) -> None:
    """Beyond five requests in flight a broker could not tell a duplicate.

    Raises:
        ConfigurationError: more than five in flight.
    """
    in_flight = config.max_in_flight_requests_per_connection
    if config.enable_idempotence and in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        raise ConfigurationError(
            f"max_in_flight_requests_per_connection must be at most {MAX_IN_FLIGHT_IDEMPOTENT} "
            f"with idempotence, not {in_flight}; or set enable_idempotence=False",
            option="max_in_flight_requests_per_connection",
        )


def require_transactions_are_idempotent(config: _Options) -> None:
    """A transaction is made of batches that are written once, by all replicas in sync.

    Raises:
        ConfigurationError: idempotence is off, or what it needs is.
    """
    if config.transactional_id is not None and not config.enable_idempotence:
        raise ConfigurationError(
            f'transactional_id={config.transactional_id!r} needs enable_idempotence=True, and so acks="all" and '
            "retries above 0",
            option="transactional_id",
        )


def require_delivery_timeout_covers_a_request(config: _Options) -> None:
    """A record must have the time to linger and be answered once.

    Raises:
        ConfigurationError: the delivery time-out is shorter than that.
    """
    needed = _shortest_delivery_timeout_ms(config)
    if config.delivery_timeout_ms < needed:
        total = config.linger_ms + config.request_timeout_ms
        limit = "" if total == needed else f", or {needed}, the longest there is"
        raise ConfigurationError(
            f"delivery_timeout_ms must be at least linger_ms + request_timeout_ms = {config.linger_ms} + "
            f"{config.request_timeout_ms} = {total}{limit}, not {config.delivery_timeout_ms}",
            option="delivery_timeout_ms",
        )


def _shortest_delivery_timeout_ms(config: _Options) -> int:
    # Who wants a batch to wait for company without end gives the longest of both, which have one range in Kafka.
    return min(config.linger_ms + config.request_timeout_ms, INT32_MAX)


def require_backoff_maxima_not_below(config: _Options) -> None:
    """A maximum below the first value is a mistake in one of the two.

    Raises:
        ConfigurationError: one of the three pairs is upside down.
    """
    for name, first, maximum in (
        ("retry_backoff", config.retry_backoff_ms, config.retry_backoff_max_ms),
        ("reconnect_backoff", config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
        (
            "socket_connection_setup_timeout",
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
        ),
    ):
        if first > maximum:
            raise ConfigurationError(
                f"{name}_max_ms must be at least {name}_ms = {first}, not {maximum}", option=f"{name}_max_ms"
            )


ADJUSTING_RULES: Final = (
    adjust_reconnect_backoff,
    adjust_retry_backoff,
    adjust_connection_setup_timeout,
    adjust_delivery_timeout,
    adjust_idempotence,
)
