"""Tokens for Amazon MSK, signed by AWS's own library without a network."""

import base64
import sys
import urllib.parse

import pytest

from aioproducer import ConfigurationError, TokenError
from aioproducer._protocol.sasl.oauthbearer import check_token
from aioproducer.security import MskIam

pytest.importorskip("aws_msk_iam_sasl_signer")


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/not/there")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/not/there")


async def test_token_is_signed_for_the_cluster_of_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
    token = await MskIam("eu-central-1").token()
    check_token(token.value)
    url = base64.urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode()
    fields = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)

    assert urllib.parse.urlsplit(url).hostname == "kafka.eu-central-1.amazonaws.com"
    assert fields["Action"] == ["kafka-cluster:Connect"]
    assert token.expires_at is not None
    assert "canary-secret" not in f"{url} {token!r}"


async def test_missing_credentials_are_named() -> None:
    with pytest.raises(TokenError, match="AWS gives no credentials for MSK"):
        await MskIam("eu-central-1").token()


async def test_missing_profile_is_named() -> None:
    with pytest.raises(TokenError, match="nobody"):
        await MskIam("eu-central-1", profile="nobody").token()


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="region"):
        MskIam("")
    with pytest.raises(ConfigurationError, match="exclude each other"):
        MskIam("eu-central-1", profile="a", role_arn="b")


def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", None)
    with pytest.raises(ConfigurationError, match=r"aioproducer\[aws\]"):
        MskIam("eu-central-1")


def test_repr_shows_region_and_role() -> None:
    assert repr(MskIam("eu-central-1", role_arn="arn:aws:iam::1:role/r")) == (
        "MskIam('eu-central-1', role_arn='arn:aws:iam::1:role/r')"
    )
