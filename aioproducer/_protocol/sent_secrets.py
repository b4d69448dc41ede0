"""Secrets that were sent to a peer, and are hidden in what it says: errors and logs show its text.

A peer may say a secret back as it is, in base64, quoted as in a URL or in JSON, or a part of any of these. So every run
of six characters that a form of a secret has is hidden; words of a message and a secret hardly share so many.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from aioproducer._protocol.cluster_text import LONGEST_NAME, printable

HIDDEN: Final = "<hidden>"

_RUN: Final = 6
_MOST: Final = 16  # secrets kept: passwords and tokens change
_LOOKED_AT: Final = 1024  # characters of a text, ...
_LONGEST_SECRET: Final = 4096  # ... of a secret, and ...
_MOST_CHARACTERS: Final = 4 * _LONGEST_SECRET  # ... of all that are kept: comparing them is work of the event loop
_LONG: Final = 128
_OF_KAFKA: Final = re.compile(
    r"(Authentication failed: )?Invalid (username or password|user credentials)"
    r"|Authentication failed during (re-)?authentication due to invalid credentials with SASL mechanism "
    r"(PLAIN|SCRAM-SHA-(256|512)|OAUTHBEARER|GSSAPI)"
)
"""Texts that Kafka says of any password: to hide a word of them would tell that it is the password."""
_UNSHARED: Final = (0, 2, 3)  # characters of base64 in which the bytes before a secret have a part, by their number


class SentSecrets:
    """Secrets that one peer was sent, and that are not shown as its words."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Callable[[str], Iterator[str]]], None] = {}

    def add(self, secret: str) -> None:
        """Hide a secret in all its forms."""
        self._keep(secret, _forms)

    def add_encoded(self, message: bytes) -> None:
        """Hide a message that has a secret where it is in base64 or hex: what else is in it may be shown."""
        self._keep(message.decode("latin-1"), _encoded)

    def shown(self, text: str, at_most: int = LONGEST_NAME) -> str:
        """Return the peer's text as `printable` shows it, without the secrets."""
        return printable(self.hidden(text), at_most)

    def hidden(self, text: str) -> str:
        """Return the text with `<hidden>` for the secrets; of a long text its beginning."""
        text = text[:_LOOKED_AT]
        if not self._kept or not text or _OF_KAFKA.fullmatch(text):
            return text
        is_secret = bytearray(len(text))
        for secret, forms_of in self._kept:
            for start, end in _places(text, set(forms_of(secret))):
                is_secret[start:end] = b"\x01" * (end - start)
        parts = re.finditer(rb"\x01+|\x00+", bytes(is_secret))
        return "".join(HIDDEN if each[0][0] else text[each.start() : each.end()] for each in parts)

    def __repr__(self) -> str:
        return f"SentSecrets({len(self._kept)})"

    def _keep(self, secret: str, forms_of: Callable[[str], Iterator[str]]) -> None:
        if not secret:
            return
        half = _LONGEST_SECRET // 2
        key = (secret if len(secret) <= _LONGEST_SECRET else secret[:half] + secret[-half:]), forms_of
        self._kept.pop(key, None)
        self._kept[key] = None
        while len(self._kept) > _MOST or sum(len(each) for each, _ in self._kept) > _MOST_CHARACTERS:
            del self._kept[next(iter(self._kept))]


def _places(text: str, forms: set[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of what the text has in common with the forms."""
    together = "\n".join(forms)
    # Every run of six has four characters that begin at a multiple of three: most texts need a third of the look-ups.
    parts = [part for part in range(0, len(text) - 3, 3) if text[part : part + 4] in together]
    for at in sorted({at for part in parts for at in range(max(part - 2, 0), part + 1)}):
        run = text[at : at + _RUN]
        if len(run) == _RUN and run in together:
            yield at, at + _RUN
    for form in forms:
        if 0 < len(form) < _RUN:  # as a word of its own: "x" is a part of many
            for match in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", text):
                yield match.span()


def _forms(secret: str) -> Iterator[str]:
    """Yield the secret as peers write it."""
    content = secret.encode(errors="replace")
    yield secret
    yield from _in_base64(content)
    if len(secret) > _LONG:  # a token: little of it is written in another way
        return
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    yield from (html.escape(secret), content.hex(), content.hex().upper())
    # UTF-8 where bytes are shown one by one, as in a header of HTTP.
    for each in {*_quoted(secret), content.decode("latin-1")}:
        yield each
        yield from _in_base64(each.encode(errors="replace"))


def _encoded(message: str) -> Iterator[str]:
    content = message.encode("latin-1")
    yield from _in_base64(content)
    yield from (content.hex(), content.hex().upper())


def _in_base64(content: bytes) -> Iterator[str]:
    """Yield bytes in base64, also as a part of more: behind one or two other bytes it has other letters."""
    for before, unshared in enumerate(_UNSHARED):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = encode(bytes(before) + content).decode()[unshared:]
            yield form
            if len(content) <= _LONG:
                yield from (form.rstrip("="), *_quoted(form))


def _quoted(text: str) -> Iterator[str]:
    """Yield the text as in a URL, with digits of both cases."""
    for form in (quote(text, errors="replace"), quote(text, "", errors="replace"), quote_plus(text, errors="replace")):
        yield form
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form)
