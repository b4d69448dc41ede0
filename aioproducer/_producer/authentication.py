"""Builds what authenticates the connections of a producer."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from aioproducer._network.kerberos import KerberosSettings, TicketSource
from aioproducer._network.sasl_client import SaslClient, SaslSettings
from aioproducer._network.tickets import TicketCache
from aioproducer._network.token_cache import TokenCache, TokenSettings, fetch_timeout_s
from aioproducer.config._jaas import MECHANISMS, parse_jaas
from aioproducer.config._sasl_rules import is_jaas_read_later, jaas_of
from aioproducer.config._security_rules import SASL_PROTOCOLS
from aioproducer.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioproducer._logs import EventLog
    from aioproducer._network.sasl_client import Password
    from aioproducer._timing.retry_backoff import RandomSource
    from aioproducer.config import ProducerConfig


def sasl_client(
    config: ProducerConfig,
    loop: asyncio.AbstractEventLoop,
    *,
    wall_clock: Callable[[], int] | None,
    random: RandomSource,
    log: EventLog,
) -> SaslClient | None:
    """Return what authenticates connections; None without SASL.

    Args:
        config: of the producer.
        loop: of the producer.
        wall_clock: milliseconds since the epoch; None reads the system's clock.
        random: for jitter.
        log: of the producer.
    """
    if config.security_protocol not in SASL_PROTOCOLS:
        return None
    tokens = None
    if config.sasl_token_provider is not None:
        tokens = TokenCache(
            config.sasl_token_provider,
            _token_settings(config),
            loop,
            wall_clock=time.time if wall_clock is None else lambda: wall_clock() / 1000,  # noqa: TID251  # as brokers
            random=random,
            log=log,
        )
    tickets = None
    if config.sasl_mechanism == "GSSAPI":
        tickets = TicketCache(TicketSource(_kerberos_settings(config)), loop, log=log)
    read_again = partial(_settings_of_jaas, config) if is_jaas_read_later(config) else None
    settings = _sasl_settings(config) if read_again is None else _settings(config, "", None)
    return SaslClient(settings, loop, tokens=tokens, tickets=tickets, read_again=read_again)


def _settings_of_jaas(config: ProducerConfig) -> SaslSettings:
    """Return user and password of a `sasl_jaas_config` that may have changed.

    Raises:
        ConfigurationError: it cannot be read, or does not have them.
    """
    assert config.sasl_jaas_config is not None
    assert config.sasl_mechanism is not None
    jaas = parse_jaas(config.sasl_jaas_config.reveal())
    if not jaas.username or jaas.password is None or config.sasl_mechanism not in MECHANISMS[jaas.module]:
        text = f"sasl_jaas_config must have a login module for {config.sasl_mechanism} with username and password"
        raise ConfigurationError(text, option="sasl_jaas_config")
    return _settings(config, jaas.username, jaas.password, is_delegation_token=jaas.is_delegation_token)


def _sasl_settings(config: ProducerConfig) -> SaslSettings:
    jaas = jaas_of(config)
    is_delegation_token = jaas is not None and jaas.is_delegation_token
    return _settings(config, config.sasl_username or "", config.sasl_password, is_delegation_token=is_delegation_token)


def _settings(
    config: ProducerConfig, username: str, password: Password | None, *, is_delegation_token: bool = False
) -> SaslSettings:
    assert config.sasl_mechanism is not None
    return SaslSettings(
        mechanism=config.sasl_mechanism,
        username=username,
        password=password,
        is_delegation_token=is_delegation_token,
        retry_backoff_max_ms=config.sasl_login_retry_backoff_max_ms,
    )


def _kerberos_settings(config: ProducerConfig) -> KerberosSettings:
    jaas = jaas_of(config)
    return KerberosSettings(
        service_name=config.sasl_kerberos_service_name or "",
        principal=config.sasl_kerberos_principal,
        keytab=config.sasl_kerberos_keytab,
        uses_cache=config.sasl_kerberos_keytab is None or (jaas is not None and jaas.uses_ticket_cache),
        cache=None if jaas is None else jaas.ticket_cache,
    )


def _token_settings(config: ProducerConfig) -> TokenSettings:
    return TokenSettings(
        window_factor=config.sasl_login_refresh_window_factor,
        window_jitter=config.sasl_login_refresh_window_jitter,
        min_period_s=config.sasl_login_refresh_min_period_seconds,
        buffer_s=config.sasl_login_refresh_buffer_seconds,
        timeout_s=fetch_timeout_s(config.sasl_login_connect_timeout_ms, config.sasl_login_read_timeout_ms),
        retry_backoff_ms=config.sasl_login_retry_backoff_ms,
        retry_backoff_max_ms=config.sasl_login_retry_backoff_max_ms,
    )
