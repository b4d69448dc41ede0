"""Rules between the options of secured connections: those that cannot go together, and those that need others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from aioproducer.config._jaas import KERBEROS, MECHANISMS, MSK_IAM, OAUTHBEARER, PLAIN, SCRAM, JaasConfig, parse_jaas
from aioproducer.config._token_texts import PROVIDER, extensions_of_module, options_of_module
from aioproducer.errors import ConfigurationError
from aioproducer.security import Secret
from aioproducer.security._secret import is_read_later, revealed_if_there

if TYPE_CHECKING:
    from aioproducer.config._security_types import Password


TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})
SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})


class _Options(Protocol):  # noqa: PLR0904  # one line per option
    """The options of a `ProducerConfig` that these rules read."""

    @property
    def allow_plaintext_credentials(self) -> bool: ...

    @property
    def given(self) -> Mapping[str, object]: ...

    @property
    def sasl_jaas_config(self) -> Secret | None: ...

    @property
    def sasl_kerberos_keytab(self) -> str | None: ...

    @property
    def sasl_kerberos_principal(self) -> str | None: ...

    @property
    def sasl_kerberos_service_name(self) -> str | None: ...

    @property
    def sasl_mechanism(self) -> str | None: ...

    @property
    def sasl_password(self) -> Password | None: ...

    @property
    def sasl_token_provider(self) -> object | None: ...

    @property
    def sasl_username(self) -> str | None: ...

    @property
    def security_protocol(self) -> str: ...

    @property
    def ssl_context(self) -> object: ...

    @property
    def ssl_enabled_protocols(self) -> tuple[str, ...]: ...

    @property
    def ssl_keystore_certificate_chain(self) -> str | None: ...

    @property
    def ssl_keystore_key(self) -> object: ...

    @property
    def ssl_key_location(self) -> str | None: ...

    @property
    def ssl_keystore_location(self) -> str | None: ...

    @property
    def ssl_protocol(self) -> str: ...

    @property
    def ssl_truststore_certificates(self) -> str | None: ...

    @property
    def ssl_truststore_location(self) -> str | None: ...


def check_security(config: _Options, defaults: Mapping[str, object]) -> None:
    """Refuse options of TLS that cannot go together."""
    tls = [
        name
        for name in config.given
        if name.startswith("ssl_") and getattr(config, name) != defaults[name]  # a default asks for nothing
    ]
    if tls and config.security_protocol not in TLS_PROTOCOLS:
        _refuse_without_tls(config, tls[0])
    if config.ssl_context is not None and len(tls) > 1:
        other = next(name for name in tls if name != "ssl_context")
        _refuse(other, f"ssl_context takes the place of all other ssl_ options; leave out {other}, or ssl_context")
    if config.security_protocol in TLS_PROTOCOLS:
        _check_stores(config)
        _check_versions(config)


def _refuse_without_tls(config: _Options, name: str) -> None:
    wanted = "SASL_SSL" if config.security_protocol in SASL_PROTOCOLS else "SSL"
    found = (
        config.security_protocol if "security_protocol" in config.given else f"{config.security_protocol}, the default"
    )
    _refuse(name, f"{name} is for TLS, and security_protocol is {found}: set security_protocol={wanted!r}")


def _check_stores(config: _Options) -> None:
    key, chain = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if key is not None and chain is None:
        _refuse("ssl_keystore_certificate_chain", "ssl_keystore_key needs ssl_keystore_certificate_chain, as PEM text")
    if chain is not None and key is None:
        _refuse("ssl_keystore_key", "ssl_keystore_certificate_chain needs ssl_keystore_key, as PEM text")
    if key is not None and config.ssl_keystore_location is not None:
        _refuse("ssl_keystore_location", "ssl_keystore_location and ssl_keystore_key both give a key; leave out one")
    if config.ssl_key_location is not None and key is not None:
        _refuse("ssl_key_location", "ssl_key_location and ssl_keystore_key both give a key; leave out one")
    if config.ssl_key_location is not None and config.ssl_keystore_location is None:
        text = "ssl_key_location needs ssl_keystore_location, the PEM file with the certificate of this key"
        _refuse("ssl_keystore_location", text)
    if config.ssl_truststore_location is not None and config.ssl_truststore_certificates is not None:
        text = "ssl_truststore_location and ssl_truststore_certificates both say whom to trust; leave out one"
        _refuse("ssl_truststore_location", text)


def _check_versions(config: _Options) -> None:
    if config.ssl_protocol == "TLSv1.2" and "TLSv1.2" not in config.ssl_enabled_protocols:
        text = f"ssl_protocol='TLSv1.2' leaves no version of ssl_enabled_protocols={config.ssl_enabled_protocols!r}"
        _refuse("ssl_protocol", text)


_SCRAM: Final = "SCRAM-"
_IN_THE_CLEAR: Final = frozenset({"PLAIN", "OAUTHBEARER"})
_OF_PASSWORDS: Final = ("sasl_username", "sasl_password")
_OF_KERBEROS: Final = ("sasl_kerberos_service_name", "sasl_kerberos_keytab", "sasl_kerberos_principal")
_CREDENTIALS: Final = ("sasl_mechanism", *_OF_PASSWORDS, "sasl_jaas_config", "sasl_token_provider", *_OF_KERBEROS)


def jaas_of(config: _Options) -> JaasConfig | None:
    """Return the login module of `sasl_jaas_config` as it is now; None if the text need not be there yet."""
    secret = config.sasl_jaas_config
    if secret is None or (is_jaas_read_later(config) and revealed_if_there(secret) is None):
        return None
    return parse_jaas(secret.reveal())


def is_jaas_read_later(config: _Options) -> bool:
    """Whether user and password stand in a variable or file, which is read for each authentication."""
    return (
        config.sasl_jaas_config is not None
        and is_read_later(config.sasl_jaas_config)
        and config.sasl_mechanism in MECHANISMS[PLAIN] + MECHANISMS[SCRAM]
    )


def credentials_of_jaas(config: _Options) -> dict[str, object]:
    """Return the options that `sasl_jaas_config` gives; without the password if that is read for each authentication.

    Raises:
        ConfigurationError: it does not fit the other options.
    """
    jaas = jaas_of(config)
    if jaas is None:
        return {}
    mechanism = config.sasl_mechanism
    if mechanism is not None and mechanism not in MECHANISMS[jaas.module]:
        fitting = " or ".join(MECHANISMS[jaas.module])
        _refuse(
            "sasl_jaas_config",
            f"sasl_jaas_config has {jaas.module}, which is for {fitting}, and sasl_mechanism={mechanism!r}",
        )
    found: dict[str, object] = {
        "sasl_username": jaas.username,
        "sasl_password": jaas.password,
        "sasl_kerberos_service_name": jaas.service_name,
        "sasl_kerberos_keytab": jaas.keytab,
        "sasl_kerberos_principal": jaas.principal,
    }
    if jaas.module == KERBEROS:
        _check_krb5_module(jaas)
        found["sasl_mechanism"] = "GSSAPI"  # the default of Java's clients, whose files therefore leave it out
    if jaas.module == MSK_IAM:
        found["sasl_mechanism"] = "OAUTHBEARER"  # the listener of MSK takes both
    for name, value in found.items():
        is_twice = name in _OF_PASSWORDS or (value is not None and value != config.given.get(name))
        if config.given.get(name) is not None and is_twice:
            _refuse(name, f"{name} is given twice: alone, and in sasl_jaas_config; leave out one of them")
    if is_jaas_read_later(config):
        del found["sasl_password"]
    return {name: value for name, value in found.items() if value is not None}


def notes_of_jaas(config: _Options) -> tuple[str, ...]:
    """Return a line about what of `sasl_jaas_config` the given token provider replaces.

    Raises:
        ConfigurationError: both say something, and not the same; or brokers could not read an extension.
    """
    jaas, provider = jaas_of(config), config.sasl_token_provider
    if jaas is None or provider is None or jaas.module not in {OAUTHBEARER, MSK_IAM}:
        return ()
    extensions_of_module(jaas)
    return tuple(options_of_module(jaas, provider))


def check_sasl(config: _Options) -> None:
    """Refuse options of SASL that cannot go together."""
    given = [name for name in _CREDENTIALS if config.given.get(name) is not None]
    if config.security_protocol not in SASL_PROTOCOLS:
        if given:
            _refuse_without_sasl(config, given[0])
        return
    mechanism = config.sasl_mechanism
    if mechanism is None:
        _refuse(
            "sasl_mechanism",
            f"security_protocol={config.security_protocol!r} needs sasl_mechanism: PLAIN, SCRAM-SHA-256, "
            "SCRAM-SHA-512, OAUTHBEARER or GSSAPI, whichever the cluster offers",
        )
    if mechanism != "GSSAPI":
        _refuse_given(config, _OF_KERBEROS, f"is for GSSAPI, and sasl_mechanism={mechanism!r}")
    if mechanism == "GSSAPI":
        _check_kerberos(config)
    elif mechanism == "OAUTHBEARER":
        _check_tokens(config)
    else:
        _check_password(config, mechanism)
    if (
        mechanism in _IN_THE_CLEAR
        and config.security_protocol == "SASL_PLAINTEXT"
        and not config.allow_plaintext_credentials
    ):
        what = "the password" if mechanism == "PLAIN" else "the token"
        _refuse(
            "security_protocol",
            f"{mechanism} over SASL_PLAINTEXT sends {what} in the clear, where everyone on the way can read it: use "
            "SASL_SSL, or for a test allow_plaintext_credentials=True",
        )


def _refuse_without_sasl(config: _Options, name: str) -> NoReturn:
    if "security_protocol" in config.given:
        text = (
            f"{name} has no effect with security_protocol={config.security_protocol!r}: set SASL_SSL or SASL_PLAINTEXT"
        )
    else:
        text = (
            f"{name} needs security_protocol, which is never guessed: SASL_SSL (with TLS), or SASL_PLAINTEXT, which "
            "everyone on the way can read"
        )
    _refuse("security_protocol", text)


def _check_kerberos(config: _Options) -> None:
    _refuse_given(config, (*_OF_PASSWORDS, PROVIDER), "is not for GSSAPI, which takes a ticket or a keytab")
    service = config.sasl_kerberos_service_name
    if not service:
        _refuse(
            "sasl_kerberos_service_name",
            "sasl_mechanism='GSSAPI' needs sasl_kerberos_service_name, the first part of the brokers' principals: "
            "'kafka' nearly everywhere",
        )
    if any(mark in service for mark in "/@\0"):
        _refuse(
            "sasl_kerberos_service_name",
            f"sasl_kerberos_service_name is only the first part of the brokers' principals, such as 'kafka', not "
            f"{service!r}: host and realm follow from the broker",
        )
    for name, text in (
        ("sasl_kerberos_principal", config.sasl_kerberos_principal),
        ("sasl_kerberos_keytab", config.sasl_kerberos_keytab),
    ):
        if text is not None and (not text or "\0" in text):
            _refuse(name, f"{name} must not be empty, and have no NUL character")
    if find_spec("gssapi") is None:
        _refuse(
            "sasl_mechanism",
            "sasl_mechanism='GSSAPI' needs the package gssapi, which is not installed: "
            "pip install 'aioproducer[kerberos]'",
        )


def _check_krb5_module(jaas: JaasConfig) -> None:
    if jaas.keytab is None and not jaas.uses_ticket_cache:
        _refuse(
            "sasl_jaas_config",
            f'sasl_jaas_config: {KERBEROS} needs useKeyTab=true with keyTab="...", or useTicketCache=true: this '
            "client asks no one for a password",
        )


def _refuse_given(config: _Options, names: Collection[str], why: str) -> None:
    for name in names:
        if config.given.get(name) is not None:
            _refuse(name, f"{name} {why}")


def _check_password(config: _Options, mechanism: str) -> None:
    username, password = config.sasl_username, config.sasl_password
    if config.sasl_token_provider is not None:
        _refuse("sasl_token_provider", f"sasl_token_provider is for OAUTHBEARER, and sasl_mechanism={mechanism!r}")
    if username is None and is_jaas_read_later(config):
        return
    if not username:
        _refuse("sasl_username", f"sasl_mechanism={mechanism!r} needs sasl_username{_not_empty(username)}")
    if "\0" in username:
        _refuse("sasl_username", "sasl_username must have no NUL character")
    if mechanism.startswith(_SCRAM) and not username.isascii():
        _refuse(
            "sasl_username", f"sasl_username must be ASCII for {mechanism}: brokers refuse others, not {username!r}"
        )
    if password is None and not is_jaas_read_later(config):
        _refuse("sasl_password", f"sasl_mechanism={mechanism!r} needs sasl_password: text, a Secret or a function")
    if isinstance(password, Secret):
        _check_text(password)


def _check_text(password: Secret) -> None:
    text = revealed_if_there(password)
    if text is None:
        return
    if not text:
        _refuse("sasl_password", "sasl_password must not be empty")
    if "\0" in text:
        _refuse("sasl_password", "sasl_password must have no NUL character")


def _check_tokens(config: _Options) -> None:
    if config.sasl_token_provider is not None:
        return
    jaas = jaas_of(config)
    example = "sasl_token_provider=ClientCredentials(url, client_id=..., client_secret=...)"
    if jaas is not None and jaas.module == MSK_IAM:
        example = "sasl_token_provider=MskIam(region)"
    _refuse(
        "sasl_token_provider",
        f"OAUTHBEARER needs {example}, or another object with async def token(): no text of a configuration makes this "
        "client fetch a token",
    )


def _not_empty(username: str | None) -> str:
    return "" if username is None else ", which must not be empty"


def _refuse(option: str, text: str) -> NoReturn:
    raise ConfigurationError(text, option=option)
