"""Text from brokers and other clients of the cluster: topics, transactional ids, messages.

It may contain terminal control sequences or forged log lines, and be 32 KiB long. Errors, events and printed lines
show it by `printable`.
"""

from __future__ import annotations

from typing import Final

LONGEST_NAME: Final = 256  # characters shown of a name; a topic's has 249 at most
LONGEST_MESSAGE: Final = 1000  # characters shown of a broker's error message
_CUT: Final = "..."


def printable(text: str, at_most: int | None = LONGEST_NAME) -> str:
    r"""Return text on one line without control characters.

    Args:
        text: any text; unprintable characters are escaped as in Python (`\n`, `\x1b`, `\u202e`).
        at_most: characters to keep; longer text ends with `...`. None keeps all.
    """
    if at_most is not None and len(text) > at_most:
        text = text[:at_most] + _CUT
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def printable_message(text: str | None) -> str | None:
    return None if text is None else printable(text, LONGEST_MESSAGE)
