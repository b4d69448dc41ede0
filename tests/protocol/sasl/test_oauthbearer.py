"""OAUTHBEARER: the bytes, the characters that tokens may have, and what a refusal tells of a token."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._protocol.sasl.oauthbearer import (
    LONGEST_TOKEN,
    OAuthBearer,
    check_extensions,
    check_token,
    describe_claims,
)
from aioproducer._protocol.sasl.steps import Bearer, BearerWanted, Message
from aioproducer.errors import TokenError


def jwt(claims: dict[str, object]) -> str:
    parts = ({"alg": "none"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join((*encoded, "c2lnbmF0dXJl"))


def test_token_is_sent_with_its_extensions() -> None:
    conversation = OAuthBearer().converse()
    assert isinstance(next(conversation), BearerWanted)
    message = conversation.send(Bearer("abc", {"logicalCluster": "lkc-1", "pool": "p"}, 0.0))

    assert message == Message(b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01pool=p\x01\x01", is_last=True)
    with pytest.raises(StopIteration):
        conversation.send(b"")


def test_refusal_is_answered_with_a_single_separator() -> None:
    conversation = OAuthBearer().converse()
    next(conversation)
    conversation.send(Bearer("canary", {}, 0.0))
    message = conversation.send(b'{"status":"invalid_token"}')

    assert message == Message(b"\x01", is_last=True)
    with pytest.raises(TokenError, match="invalid_token") as caught:
        conversation.send(b"")
    assert "canary" not in str(caught.value)


def test_claims_are_told_without_the_token() -> None:
    token = jwt({"exp": 1_000.0, "aud": ["kafka"], "iss": "https://idp", "sub": "alice", "email": "private"})
    text = describe_claims(token, 2_000.0)

    assert text == ('it says exp=1970-01-01T00:16:40+00:00 (expired), aud=["kafka"], iss="https://idp", sub="alice"')


@pytest.mark.parametrize("token", ["opaque", "a.b", "a.b.c", "a.!!!.c", jwt({}).replace(".", ""), "..", "a.W10.c"])
def test_opaque_token_is_called_that(token: str) -> None:
    assert "not a JSON web token" in describe_claims(token, 0.0)


@pytest.mark.parametrize("exp", [True, "soon", -1, 1e300, None, float("nan")])
def test_strange_expiry_is_left_out(exp: object) -> None:
    assert "exp=" not in describe_claims(jwt({"exp": exp, "sub": "alice"}), 0.0)


def test_long_or_unprintable_claim_is_cut_and_escaped() -> None:
    text = describe_claims(jwt({"sub": "\x1b[31m" + "x" * 1000}), 0.0)

    assert "\x1b" not in text
    assert len(text) < 300


@given(st.text())
def test_claims_of_any_text_are_described(token: str) -> None:
    assert describe_claims(token, 0.0)


@pytest.mark.parametrize("token", ["a", "a.b-c_d~e+f/g", "abc=="])
def test_token_characters_of_rfc_6750_are_accepted(token: str) -> None:
    check_token(token)


@pytest.mark.parametrize(
    "token", ["", "a b", "a\n", "a\r\nb", "a\x01b", "\u00e9", "=", "a=b", "x" * (LONGEST_TOKEN + 1), "a\x00"]
)
def test_token_with_other_characters_is_refused(token: str) -> None:
    with pytest.raises(TokenError):
        check_token(token)


@pytest.mark.parametrize(
    "extensions",
    [{"auth": "x"}, {"Auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "x\x01"}, {"a": "\u00e9"}, {"a": "x\n"}],
)
def test_invalid_extension_is_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(TokenError):
        check_extensions(extensions)


def test_token_is_in_no_repr() -> None:
    assert "canary" not in repr(Bearer("canary", {}, 0.0))
    assert "canary" not in repr(Message(b"canary"))


def test_valid_extensions_are_accepted() -> None:
    check_extensions({})
    check_extensions({"logicalCluster": "lkc-1", "identityPoolId": "pool 1"})
