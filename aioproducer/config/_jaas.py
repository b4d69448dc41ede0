"""Reads `sasl.jaas.config`, the text in which Java's clients have their credentials.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";

Source: JaasConfig and JaasContext in Apache Kafka; KIP-85.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from aioproducer.errors import ConfigurationError
from aioproducer.security import Secret

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>   \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<quoted>  "(?:\\.|[^"\\])*" )
  | (?P<mark>    [=;] )
  | (?P<word>    [^\s=;"]+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r"}
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

PLAIN: Final = "PlainLoginModule"
SCRAM: Final = "ScramLoginModule"
OAUTHBEARER: Final = "OAuthBearerLoginModule"
KERBEROS: Final = "Krb5LoginModule"
MSK_IAM: Final = "IAMLoginModule"

MECHANISMS: Final[Mapping[str, tuple[str, ...]]] = {
    PLAIN: ("PLAIN",),
    SCRAM: ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    OAUTHBEARER: ("OAUTHBEARER",),
    KERBEROS: ("GSSAPI",),
    MSK_IAM: ("OAUTHBEARER", "AWS_MSK_IAM"),
}
"""Login module -> the mechanisms that it serves."""


class JaasConfig(NamedTuple):
    """One login module with its options."""

    module: str  # without its package
    options: Mapping[str, str]

    @property
    def username(self) -> str | None:
        return self.options.get("username") if self._has_password else None

    @property
    def password(self) -> Secret | None:
        text = self.options.get("password") if self._has_password else None
        return None if text is None else Secret(text)

    @property
    def keytab(self) -> str | None:
        return self.options.get("keyTab", "").removeprefix("FILE:") or None if self._is_set("useKeyTab") else None

    @property
    def principal(self) -> str | None:
        return self.options.get("principal") if self.module == KERBEROS else None

    @property
    def service_name(self) -> str | None:
        return self.options.get("serviceName") if self.module == KERBEROS else None

    @property
    def uses_ticket_cache(self) -> bool:
        return self._is_set("useTicketCache")

    @property
    def ticket_cache(self) -> str | None:
        return self.options.get("ticketCache") if self.uses_ticket_cache else None

    @property
    def is_delegation_token(self) -> bool:
        return self.module == SCRAM and self.options.get("tokenauth", "").lower() == "true"

    @property
    def _has_password(self) -> bool:
        return self.module in {PLAIN, SCRAM}

    def _is_set(self, option: str) -> bool:
        return self.module == KERBEROS and self.options.get(option, "").lower() == "true"

    def __repr__(self) -> str:
        return f"JaasConfig({self.module}, {len(self.options)} options)"


def parse_jaas(text: str, *, option: str = "sasl_jaas_config") -> JaasConfig:
    """Return the login module of a JAAS text. A ConfigurationError shows no value of the text."""
    words = _words(text, option)
    module, flag = _next(words, option, "the class of a login module"), _next(words, option, "a flag")
    name = module.rpartition(".")[2]
    if name not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ConfigurationError(
            f"{option}: login module {name[:100]!r} is not known; known are {known}", option=option
        )
    if flag.lower() not in _FLAGS:
        raise ConfigurationError(f'{option}: "required" is expected behind {name}', option=option)
    options: dict[str, str] = {}
    while (key := _next(words, option, "an option or ;")) != ";":
        if _next(words, option, "=") != "=":
            raise ConfigurationError(
                f"{option}: = is expected behind option {len(options) + 1} of {name}", option=option
            )
        options[key] = _next(words, option, "a value")
    if words:
        raise ConfigurationError(f"{option} must have one login module, and ends at its ;", option=option)
    return JaasConfig(name, options)


def _words(text: str, option: str) -> list[str]:
    """Return the words of the text, last first."""
    words = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigurationError(f"{option}: a quote that is opened is not closed", option=option)
        position = match.end()
        if match.lastgroup == "quoted":
            words.append(_ESCAPE.sub(lambda escape: _CONTROLS.get(escape[1], escape[1]), match[0][1:-1]))
        elif match.lastgroup != "blank":
            words.append(match[0])
    return words[::-1]


def _next(words: list[str], option: str, wanted: str) -> str:
    if not words:
        text = f'{option} ends where {wanted} is expected; it has the form "Module required name=\\"value\\" ...;"'
        raise ConfigurationError(text, option=option)
    return words.pop()
