"""Reads `sasl.jaas.config`, the text in which Java's clients have their credentials.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";

Read as Java reads it: both kinds of quotes, escapes of C in them, comments; a text that Java refuses is refused here.

Source: JaasConfig and JaasContext in Apache Kafka, java.io.StreamTokenizer; KIP-85.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from aioproducer.errors import ConfigurationError
from aioproducer.security import Secret
from aioproducer.security._secret import NOT_UNICODE, is_unicode

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>    [\x00-\x20]+ | /\*(?:.*?\*/|.*) | //[^\n\r]* | /.?[^\n\r]* )
  | (?P<quote>    ["'] ) (?P<text> (?: \\. | (?!(?P=quote))[^\\\n\r] )* ) (?P<end> (?P=quote) | \\\Z )?
  | (?P<number>   -?(?=[.0-9])[0-9]*\.?[0-9]* )
  | (?P<word>     [A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\xa0-\U0010ffff-]* )
  | (?P<mark>     . )
    """,
    re.VERBOSE | re.DOTALL,
)
"""One token of java.io.StreamTokenizer as JaasConfig sets it up.

A single / begins a comment too, and takes the character behind it, also the end of a line. A quote ends at its line.
"""
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
_CONTROLS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OF_A_LONE_BACKSLASH: Final = "\uffff"  # Java's reader gives -1 there, as a char
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


class _Token(NamedTuple):
    """A token: its text if it is a word or in quotes, or else its mark; a number has neither."""

    text: str | None
    mark: str = ""
    is_closed: bool = True


def parse_jaas(text: str, *, option: str = "sasl_jaas_config") -> JaasConfig:
    """Return the login module of a JAAS text. A ConfigurationError shows no value of the text."""
    if not is_unicode(text):
        raise ConfigurationError(f"{option} {NOT_UNICODE}", option=option)
    tokens = _Tokens(text, option)
    module = tokens.next("the class of a login module").text or ""
    name = module.rpartition(".")[2]
    is_flag = _is_flag(tokens.next("a flag"))
    if name not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ConfigurationError(
            f"{option}: login module {name[:100]!r} is not known; known are {known}", option=option
        )
    if not is_flag:
        raise tokens.refusal(f'"required" is expected behind {name}')
    options = _parse_options(tokens, name)
    if tokens:
        raise tokens.refusal("it must have one login module, and ends at its ;, which in a value must be in quotes")
    return JaasConfig(name, options)


def _is_flag(token: _Token) -> bool:
    return token.text is not None and token.text.lower() in _FLAGS


def _parse_options(tokens: _Tokens, name: str) -> dict[str, str]:
    options: dict[str, str] = {}
    count = 0
    while (key := tokens.next("an option or ;")).mark != ";":
        count += 1
        if tokens.next("=").mark != "=":
            raise tokens.refusal(
                f"= is expected behind option {count} of {name}; a value without quotes begins with a letter, and has "
                "letters, digits, . - _ and $ alone"
            )
        value = tokens.next("a value").text
        if value is None:
            raise tokens.refusal(f"the value of option {count} of {name} must be in quotes: it begins with no letter")
        if key.text is not None:  # else a number, which Java keeps under no name
            options[key.text] = value
    return options


class _Tokens:
    """The tokens of a JAAS text, in order."""

    def __init__(self, text: str, option: str) -> None:
        self._option = option
        self._left = [_token(found) for found in _TOKEN.finditer(text) if found["blank"] is None][::-1]
        self._is_closed = all(token.is_closed for token in self._left)

    def __bool__(self) -> bool:
        return bool(self._left)

    def next(self, wanted: str) -> _Token:
        """Return the next token; a ConfigurationError if there is none."""
        if self._left:
            return self._left.pop()
        raise self.refusal(f'it ends where {wanted} is expected; it has the form "Module required name="value" ...;"')

    def refusal(self, why: str) -> ConfigurationError:
        """Return the error of a text that cannot be read."""
        if not self._is_closed:
            why = f"a quote that is opened is not closed on its line; {why}"
        return ConfigurationError(f"{self._option}: {why}", option=self._option)


def _token(found: re.Match[str]) -> _Token:
    if found["quote"] is not None:
        text = _ESCAPE.sub(_character, found["text"])
        is_cut = found["end"] == "\\"
        return _Token(text + _OF_A_LONE_BACKSLASH if is_cut else text, is_closed=found["end"] == found["quote"])
    return _Token(found["word"], mark=found["mark"] or "")


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8)) if escape[1] else _CONTROLS.get(escape[2], escape[2])
