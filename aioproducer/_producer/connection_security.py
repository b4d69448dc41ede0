"""Makes what secures the connections of a producer, or of a command: the clients of TLS and SASL."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING

from aioproducer._logs import event_log
from aioproducer._network.context import ClusterAccess, ConnectionSecurity
from aioproducer._network.kerberos import KerberosSettings, TicketCache, TicketSource
from aioproducer._network.proxy_socket import opens_through
from aioproducer._network.sasl_client import SaslClient, SaslSettings
from aioproducer._network.token_cache import TokenCache, TokenSettings, fetch_timeout_s
from aioproducer._producer.component_settings import network_settings
from aioproducer.config._jaas import MECHANISMS, parse_jaas
from aioproducer.config._security_rules import SASL_PROTOCOLS, is_jaas_read_later, jaas_of
from aioproducer.config._token_texts import extensions_of_module
from aioproducer.errors import ConfigurationError
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.security._tokens import provider_through

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aioproducer._logs import EventLog
    from aioproducer._network.sasl_client import Password
    from aioproducer._network.tls_reloader import TlsReloader
    from aioproducer._timing.retry_backoff import RandomSource
    from aioproducer.config import ProducerConfig
    from aioproducer.security import TokenProvider


def cluster_access(config: ProducerConfig) -> ClusterAccess:
    """Return how commands, and the driver of Spark, reach the cluster of a configuration beside its producers."""
    return ClusterAccess(network_settings(config).routes, partial(security_of, config))


def security_of(config: ProducerConfig, loop: asyncio.AbstractEventLoop) -> ConnectionSecurity | None:
    """Return what connections beside those of a producer do before the first request."""
    jitter = random.Random()  # noqa: S311  # for pauses
    return connection_security(config, loop, wall_clock=None, random=jitter, log=event_log(config.client_id))


@clears_frames
def connection_security(
    config: ProducerConfig,
    loop: asyncio.AbstractEventLoop,
    *,
    wall_clock: Callable[[], int] | None,
    random: RandomSource,
    log: EventLog,
) -> ConnectionSecurity | None:
    """Return what connections do before the first request; None if plaintext, so no code of TLS is loaded.

    Args:
        wall_clock: milliseconds since the epoch; None reads the system's clock.
    """
    if config.security_protocol == "PLAINTEXT":
        return None
    sasl = None
    if config.security_protocol in SASL_PROTOCOLS:
        sasl = _sasl_client(config, loop, wall_clock=wall_clock, random=random, log=log)
    tls = _tls_reloader(config, log) if config.security_protocol.endswith("SSL") else None
    return ConnectionSecurity(tls=tls, sasl=sasl)


def _tls_reloader(config: ProducerConfig, log: EventLog) -> TlsReloader:
    from aioproducer._network.tls_reloader import StoreOptions, TlsReloader  # noqa: PLC0415  # only with TLS
    from aioproducer.security._tls_context import TlsRules  # noqa: PLC0415  # as above

    rules = TlsRules(
        enabled_protocols=config.ssl_enabled_protocols,
        protocol=config.ssl_protocol,
        cipher_suites=config.ssl_cipher_suites,
        checks_name=bool(config.ssl_endpoint_identification_algorithm),
    )
    stores = StoreOptions(
        truststore_location=config.ssl_truststore_location,
        truststore_type=config.ssl_truststore_type,
        truststore_certificates=config.ssl_truststore_certificates,
        truststore_password=config.ssl_truststore_password,
        keystore_location=config.ssl_keystore_location,
        keystore_type=config.ssl_keystore_type,
        keystore_key=config.ssl_keystore_key,
        keystore_certificate_chain=config.ssl_keystore_certificate_chain,
        key_location=config.ssl_key_location,
        keystore_password=config.ssl_keystore_password,
        key_password=config.ssl_key_password,
    )
    return TlsReloader(rules, stores, config.ssl_context, log=log)


def _sasl_client(
    config: ProducerConfig,
    loop: asyncio.AbstractEventLoop,
    *,
    wall_clock: Callable[[], int] | None,
    random: RandomSource,
    log: EventLog,
) -> SaslClient:
    tokens = None
    if config.sasl_token_provider is not None:
        tokens = TokenCache(
            _routed_provider(config, config.sasl_token_provider),
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


def _routed_provider(config: ProducerConfig, provider: TokenProvider) -> TokenProvider:
    """Return the provider with an endpoint that is asked through `proxy_url`, as brokers are connected to."""
    proxy = network_settings(config).routes.proxy
    return provider if proxy is None else provider_through(provider, opens_through(proxy))


@clears_frames
def _settings_of_jaas(config: ProducerConfig) -> SaslSettings:
    """Return user and password of a `sasl_jaas_config` that may have changed."""
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
        extensions=extensions_of_module(jaas_of(config)),
    )
