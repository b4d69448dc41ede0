"""Text from the cluster is always one short line."""

import pytest

from aioproducer._protocol.cluster_text import LONGEST_MESSAGE, LONGEST_NAME, printable, printable_message


@pytest.mark.parametrize(
    "text, shown",
    [
        ("orders", "orders"),
        ("Grüße, 世界", "Grüße, 世界"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("", ""),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_long_text_is_cut() -> None:
    assert printable("x" * LONGEST_NAME) == "x" * LONGEST_NAME
    assert printable("x" * 40_000) == "x" * LONGEST_NAME + "..."
    assert printable("x" * 40_000, None) == "x" * 40_000
    assert printable_message("x" * 40_000) == "x" * LONGEST_MESSAGE + "..."
    assert printable_message(None) is None
