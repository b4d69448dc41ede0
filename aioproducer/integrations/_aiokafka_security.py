"""The options of a configuration in aiokafka's words, for the commands and the reader of Spark, which read with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioproducer._producer.connection_security import security_of
from aioproducer._protocol.sasl_exchange import Bearer, BearerWanted, PasswordWanted
from aioproducer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer._network.sasl_client import SaslClient
    from aioproducer.config import ProducerConfig

_NOT_OF_AIOKAFKA: Final = ("proxy_url", "address_map", "allowed_brokers")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


def check_readable(config: ProducerConfig) -> None:
    """Refuse what aiokafka, which reads, cannot do.

    Raises:
        ConfigurationError: names the option.
    """
    for option in _NOT_OF_AIOKAFKA:
        if getattr(config, option):
            text = f"{option} cannot be used here: records are read with aiokafka, which connects by itself"
            raise ConfigurationError(text, option=option)
    if config.security_protocol.startswith("SASL") and config.sasl_mechanism not in _MECHANISMS:
        text = f"records are read with aiokafka, which has no {config.sasl_mechanism}"
        raise ConfigurationError(text, option="sasl_mechanism")


async def aiokafka_security(config: ProducerConfig) -> dict[str, object]:
    """Return the arguments of aiokafka's clients for TLS and SASL; none for plaintext.

    Raises:
        ConfigurationError: a certificate, key or password cannot be read.
    """
    security = security_of(config, asyncio.get_running_loop())
    if security is None:
        return {}
    arguments: dict[str, object] = {"security_protocol": config.security_protocol}
    if security.tls is not None:
        await security.tls.prepare()
        arguments["ssl_context"] = security.tls.context()
    if security.sasl is not None:
        arguments |= await _sasl_arguments(config, security.sasl)
    return arguments


async def _sasl_arguments(config: ProducerConfig, sasl: SaslClient) -> dict[str, object]:
    if sasl.settings.is_delegation_token:
        text = "records are read with aiokafka, which cannot use a delegation token"
        raise ConfigurationError(text, option="sasl_jaas_config")
    arguments: dict[str, object] = {"sasl_mechanism": sasl.mechanism}
    if sasl.mechanism == "OAUTHBEARER":
        arguments["sasl_oauth_token_provider"] = _token_provider(sasl)
    elif sasl.mechanism == "GSSAPI":
        if config.sasl_kerberos_keytab is not None or config.sasl_kerberos_principal is not None:
            text = (
                "records are read with aiokafka, which takes the default ticket cache alone: run kinit, and leave out"
            )
            option = "sasl_kerberos_keytab" if config.sasl_kerberos_keytab is not None else "sasl_kerberos_principal"
            raise ConfigurationError(f"{text} {option}", option=option)
        arguments["sasl_kerberos_service_name"] = config.sasl_kerberos_service_name
    else:
        arguments["sasl_plain_username"] = sasl.settings.username
        password = sasl.at_once(PasswordWanted())
        arguments["sasl_plain_password"] = await sasl.carry_out(PasswordWanted()) if password is None else password
    return arguments


def _token_provider(sasl: SaslClient) -> object:
    from aiokafka.abc import AbstractTokenProvider  # noqa: PLC0415  # only for OAUTHBEARER

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        def __init__(self) -> None:
            self._extensions: Mapping[str, str] = {}

        async def token(self) -> str:
            bearer = await sasl.carry_out(BearerWanted())
            assert isinstance(bearer, Bearer)
            self._extensions = bearer.extensions
            return bearer.token

        def extensions(self) -> Mapping[str, str]:
            """Return those of the last token: aiokafka asks for them right after it."""
            return self._extensions

    return TokenProvider()
