"""Secrets in the words of the peer that they were sent to."""

import base64
import html
import json
import secrets
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioproducer._protocol.sent_secrets import SentSecrets

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "its beginning": lambda secret: secret[:-1],
    "its end": lambda secret: secret[1:],
    "quoted": lambda secret: quote(secret, safe=""),
    "quoted in small letters": lambda secret: quote(secret, safe="").replace("%C3%A4", "%c3%a4"),
    "quoted plus": quote_plus,
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="),
    "behind one byte": lambda secret: base64.b64encode(b"\0" + secret.encode()).decode()[2:],
    "behind two bytes": lambda secret: base64.b64encode(b"\0a" + secret.encode()).decode()[3:],
    "quoted base64": lambda secret: quote(base64.b64encode(secret.encode()).decode(), safe=""),
    "base64 of quoted": lambda secret: base64.b64encode(quote_plus(secret).encode()).decode(),
    "JSON": lambda secret: json.dumps(secret)[1:-1],
    "HTML": html.escape,
    "repr": lambda secret: repr(secret)[1:-1],
    "bytes one by one": lambda secret: secret.encode().decode("latin-1"),
    "hex": lambda secret: secret.encode().hex(),
}
SECRETS = ("canary-7f3a", "p&ss/w:rd+ ä\"1'\\", "ä" * 7, "x" * 5 + "?>" * 9, "correct horse battery")


def sent(*secrets: str) -> SentSecrets:
    hiding = SentSecrets()
    for secret in secrets:
        hiding.add(secret)
    return hiding


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", FORMS)
def test_secret_is_hidden_in_each_form(form: str, secret: str) -> None:
    said = FORMS[form](secret)

    assert sent(secret).hidden(f"no user has [{said}], sorry") == "no user has [<hidden>], sorry"


@given(st.text(min_size=6, max_size=40), st.sampled_from(sorted(FORMS)))
@example("000000", "base64")
def test_any_secret_is_hidden_in_any_form(secret: str, form: str) -> None:
    said = FORMS[form](secret)

    assert len(said) < 6 or said not in sent(secret).hidden(f"\N{SNOWMAN}{said}\N{SNOWMAN}")


@pytest.mark.parametrize("which", [slice(0, 1000), slice(-1000, None), slice(700, 900)], ids=str)
def test_long_token_is_hidden_in_part(which: slice) -> None:
    token = base64.urlsafe_b64encode(bytes(i * i % 251 for i in range(2_000))).decode()

    assert sent(token).hidden(f"bad token {token[which]}!") == "bad token <hidden>!"


def test_signature_of_a_huge_token_is_hidden() -> None:
    token = "h" * 40_000 + "." + base64.urlsafe_b64encode(bytes(range(256))).decode()

    assert "hidden" in sent(token).hidden(token[-64:])
    assert token[-64:] not in sent(token).hidden(token[-64:])


@pytest.mark.parametrize("short", ["x", "pw1", "ä/b"])
def test_short_secret_is_hidden_as_a_word(short: str) -> None:
    assert sent(short).hidden(f"no {short}, sorry: x{short}x fox") == f"no <hidden>, sorry: x{short}x fox"


def test_name_in_credentials_is_hidden_in_base64_alone() -> None:
    hiding = SentSecrets()
    hiding.add_encoded(b"administrator:canary-1")
    header = base64.b64encode(b"administrator:canary-1").decode()

    assert hiding.hidden(f"administrator sent Basic {header}") == "administrator sent Basic <hidden>"


@pytest.mark.parametrize("said", ["", "Authentication failed: Invalid username or password", "no such user: alice"])
def test_words_without_a_secret_stay(said: str) -> None:
    assert sent("password", "alice-secret").hidden(said) == said


@pytest.mark.parametrize("password", ["password", "credentials", "authentication", "SASL", "invalid", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    "said",
    [
        "Authentication failed: Invalid user credentials",
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
        "Authentication failed during re-authentication due to invalid credentials with SASL mechanism PLAIN",
    ],
)
def test_kafkas_own_texts_do_not_tell_the_password(said: str, password: str) -> None:
    assert sent(password).hidden(said) == said


def test_later_secrets_take_the_place_of_the_first() -> None:
    hiding = sent(*(f"canary-{number:04}-{number:04}" for number in range(100)))

    assert hiding.hidden("canary-0099-0099") == "<hidden>"
    assert repr(hiding) == "SentSecrets(16)"


def test_long_tokens_are_kept_up_to_a_total_length() -> None:
    tokens = [secrets.token_urlsafe(6_000) for _ in range(16)]
    hiding = sent(*tokens)

    assert repr(hiding) == "SentSecrets(4)"
    assert [hiding.hidden(f"a {token[-64:]}") == "a <hidden>" for token in tokens] == [False] * 12 + [True] * 4


def test_text_is_shown_without_control_characters() -> None:
    assert sent("canary-1").shown("\x1b[31mcanary-1", 20) == r"\x1b[31m<hidden>"


def test_empty_secret_hides_nothing() -> None:
    assert sent("").shown("as it is") == "as it is"
