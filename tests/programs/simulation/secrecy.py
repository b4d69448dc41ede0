"""SECRECY: no payload and no password, token or key in events, errors and what hangs on them, and every `repr`.

Payloads of a simulation begin with the name of their record and a bar, and most go on with words that are used
nowhere else. So a text that quotes one, from its beginning or out of its middle, is recognized.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

LOOKS_FOR_PAYLOADS: Final = 16  # one in so many seeds makes events and searches errors, which costs a tenth of a run
LOOKS_FOR_SECRETS: Final = 4  # the same, of those with secrets

_PAYLOAD: Final = re.compile(r"\d+\.\d+\.\d+\||\bk\d+\||\d\.\d+\|xx|brown fox|lazy dog")

_SECRET: Final = re.compile(r"alice-secret|eyJ[\w-]{10,}|PRIVATE KEY")
_PARTS: Final = ("|", "brown fox", "lazy dog", "-secret", "eyJ", "PRIVATE KEY")
"""One of them is in each such text."""


class Secrecy:
    """Looks for payloads where none may be."""

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self._violated = violated

    def look_at(self, what: str, text: str) -> None:
        """Look at a text of the producer's."""
        if not any(part in text for part in _PARTS):
            return  # as almost always, and to know it takes less time than to search
        secret = _SECRET.search(text)
        if secret is not None:
            self._violated("SECRECY", f"{what} holds a secret ({secret[0]:.12}...)")
        found = _PAYLOAD.search(text)
        if found is not None:
            self._violated("SECRECY", f"{what} holds a payload ({found[0]!r}): {text[:200]}")

    def look_at_error(self, error: BaseException) -> None:
        """Look at an error, at what it came of, and at what hangs on each of them."""
        for each in _chain(error):
            name = type(each).__name__
            self.look_at(f"the text of {name}", f"{each} {each.args!r}")
            for attribute, value in vars(each).items():
                self.look_at(f"{name}.{attribute}", repr(value))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    rest = [error]
    while rest:
        each = rest.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        rest += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            rest += each.exceptions
