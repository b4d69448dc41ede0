"""Token providers: against an HTTP server on this machine that does not always behave, and AWS's own signer."""

import base64
import json
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from aioproducer import ConfigurationError, TokenError
from aioproducer._protocol.sasl_mechanisms import check_token
from aioproducer.security import ClientCredentials, JwtBearer, MskIam, Secret
from tests.fakes.token_endpoint import Answer, Endpoint, granted, token_endpoint

CANARY = "canary/secret&"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with token_endpoint() as server:
        yield server


def credentials(url: str, **options: object) -> ClientCredentials:
    return ClientCredentials(url, client_id="billing id", client_secret=CANARY, **options)  # type: ignore[arg-type]


async def test_client_credentials_are_exchanged_for_a_token(endpoint: Endpoint) -> None:
    provider = credentials(
        endpoint.url, scope="kafka", parameters={"audience": "a"}, extensions={"logicalCluster": "lkc-1"}
    )
    token = await provider.token()
    path, headers, fields = endpoint.heard[0]

    assert (token.value, token.extensions) == ("abc", {"logicalCluster": "lkc-1"})
    assert token.expires_at is not None
    assert path == "/token"
    assert fields == {"grant_type": ["client_credentials"], "scope": ["kafka"], "audience": ["a"]}
    pair = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert [urllib.parse.unquote_plus(part) for part in pair.split(":")] == ["billing id", CANARY]
    assert CANARY not in repr(provider)


async def test_secret_is_read_at_each_fetch(endpoint: Endpoint, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("first")
    provider = ClientCredentials(endpoint.url, client_id="id", client_secret=Secret.from_file(file))
    await provider.token()
    file.write_text("second")
    await provider.token()
    sent = [base64.b64decode(headers["Authorization"].split()[1]) for _, headers, _ in endpoint.heard]

    assert sent == [b"id:first", b"id:second"]


@pytest.mark.parametrize(
    "answer, words",
    [
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "302 (redirects are not followed)"),
        ((401, {}, b'{"error": "invalid_client", "error_description": "\x1b[31mno"}'), "401"),
        (
            (401, {}, json.dumps({"error": "invalid_client", "error_description": "\x1b[31mno"}).encode()),
            "invalid_client",
        ),
        ((500, {}, b"<html>"), "answered 500"),
        ((200, {}, b"not JSON"), "without an access_token"),
        ((200, {}, b"[1]"), "without an access_token"),
        ((200, {}, b'{"access_token": 1}'), "without an access_token"),
        ((200, {}, b"\n<!doctype html><title>Sign in</title>"), "an access_token: it is a page of HTML"),
        ((503, {}, b"<html>"), "answered 503, with a page of HTML"),
        ((200, {}, b""), "an access_token: it is empty"),
        ((200, {}, b'{"access_token": ""}'), "an access_token: it is empty, or not text"),
        ((200, {}, b'{"id_token": "x", "scope": ""}'), "an access_token: it has only id_token, scope"),
        ((200, {}, b'{"error": "invalid_scope"}'), "an access_token: invalid_scope"),
        ((200, {}, b"[" * 100_000), "without an access_token"),
        ((200, {}, b" " * 10_000_000), "more than 1048576 bytes"),
        ((200, {"Content-Length": "100"}, b"short"), "without an access_token"),
    ],
)
async def test_endpoint_that_gives_no_token_is_quoted(endpoint: Endpoint, answer: Answer, words: str) -> None:
    endpoint.answer = answer
    with pytest.raises(TokenError) as caught:
        await credentials(endpoint.url).token()

    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert CANARY not in str(caught.value)
    assert len(endpoint.heard) == 1


def said_back(secret: str) -> dict[str, str]:
    """Return the forms in which an endpoint may say the secret."""
    pair = base64.b64encode(f"billing+id:{urllib.parse.quote_plus(secret)}".encode()).decode()
    return {
        "as it is": secret,
        "quoted": urllib.parse.quote_plus(secret),
        "header": f"Basic {pair}",
        "part of the header": pair[:-9],
        "base64": base64.b64encode(secret.encode()).decode(),
        "part": secret[:-2],
        "JSON": json.dumps(secret),
    }


@pytest.mark.parametrize("form", said_back(""))
async def test_secret_that_an_endpoint_says_back_is_hidden(endpoint: Endpoint, form: str) -> None:
    said = said_back(CANARY)[form]
    endpoint.answer = (401, {}, json.dumps({"error": "invalid_client", "error_description": f"no {said}."}).encode())
    with pytest.raises(TokenError) as caught:
        await credentials(endpoint.url).token()

    assert "401, invalid_client, no " in str(caught.value)
    assert "<hidden>" in str(caught.value)
    assert said.strip('"') not in str(caught.value)


@pytest.mark.parametrize("url", ["https://idp/t?client_secret=canary-a", "https://idp/t?x=1&code=canary-a"])
def test_secret_in_the_query_of_an_endpoint_is_not_shown(url: str) -> None:
    assert "<hidden>" in repr(credentials(url))
    assert "canary" not in repr(credentials(url))


async def test_frames_of_an_error_hold_no_secret(endpoint: Endpoint) -> None:
    endpoint.answer = (401, {}, b"")
    with pytest.raises(TokenError) as caught:
        await credentials(endpoint.url).token()
    found = [value for entry in caught.traceback for value in entry.frame.f_locals.values()]

    assert CANARY not in repr([value for value in found if isinstance(value, str | bytes)])


async def test_endpoint_that_drips_is_given_up(endpoint: Endpoint) -> None:
    endpoint.answer, endpoint.drips_s = (200, {}, b" " * 100), 0.02
    with pytest.raises(TokenError, match="in time"):
        await credentials(endpoint.url, timeout_s=0.1).token()


async def test_endpoint_that_is_down_is_named() -> None:
    with pytest.raises(TokenError, match=r"127\.0\.0\.1:1/token cannot be asked: Connection refused"):
        await credentials("http://127.0.0.1:1/token").token()


@pytest.mark.parametrize("lifetime", [0, -1, True, "soon", "nan", "inf", [60], 1e300, None])
async def test_strange_lifetime_is_ignored(endpoint: Endpoint, lifetime: object) -> None:
    endpoint.answer = granted(expires_in=lifetime)

    assert (await credentials(endpoint.url).token()).expires_at is None


@pytest.mark.parametrize("lifetime", [60, 60.0, "60", " 60.0 "], ids=repr)
async def test_lifetime_may_be_a_number_or_text(endpoint: Endpoint, lifetime: object) -> None:
    endpoint.answer = granted(expires_in=lifetime)
    token = await credentials(endpoint.url).token()

    assert token.expires_at is not None
    assert 50 < token.expires_at - time.time() <= 60  # noqa: TID251  # as the provider counts


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "http://idp.example.com/token",
        "http://localhost.example.com/token",
        "ftp://localhost/token",
        "idp/token",
        "",
        "https://",
        "https://user:canary@idp/token",
        "https://idp:port/token",
        "https://[::1/token",
    ],
)
def test_url_that_is_not_safe_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        credentials(url)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://idp.example.com/token", "http://localhost:8080/", "http://[::1]:8080/t?x=1"])
def test_safe_url_is_accepted(url: str) -> None:
    assert url in repr(credentials(url))


PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def make_rsa() -> PrivateKey:
    return rsa.generate_private_key(65537, 2048)


def make_ec() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem(key: PrivateKey, password: bytes | None = None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize("password", [None, b"key-password"])
@pytest.mark.parametrize("make", [make_rsa, make_ec], ids=["RS256", "ES256"])
async def test_assertion_is_signed_and_exchanged(
    endpoint: Endpoint, tmp_path: Path, make: Callable[[], PrivateKey], *, password: bytes | None
) -> None:
    key, file = make(), tmp_path / "key.pem"
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    file.write_bytes(pem(key, password))
    provider = JwtBearer(
        endpoint.url,
        private_key_file=file,
        private_key_password=None if password is None else password.decode(),
        algorithm=algorithm,
        key_id="key-1",
        issuer="billing",
        subject="alice",
        audience="idp",
    )
    token = await provider.token()
    fields = endpoint.heard[0][2]
    assertion = fields["assertion"][0]

    assert token.value == "abc"
    assert fields["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert jwt.get_unverified_header(assertion)["kid"] == "key-1"
    claims = jwt.decode(assertion, key.public_key(), algorithms=[algorithm], audience="idp")
    assert (claims["iss"], claims["sub"]) == ("billing", "alice")


def der(key: PrivateKey) -> bytes:
    encoding, form = serialization.Encoding.DER, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def openssh(key: PrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def public(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def p_384() -> bytes:
    return pem(ec.generate_private_key(ec.SECP384R1()))


UNUSABLE_KEYS: dict[str, tuple[Callable[[], bytes | None], dict[str, str], str]] = {
    "no file": (lambda: None, {}, "cannot be read: No such file"),
    "no PEM": (lambda: b"-----BEGIN canary", {}, "cannot sign with RS256: the file holds no private key in PEM"),
    "empty": (lambda: b"\n", {}, "the file is empty"),
    "DER": (lambda: der(make_rsa()), {}, "the file is DER, and must be PEM: convert it"),
    "public": (lambda: public(make_rsa()), {}, "the file holds no private key, only public key"),
    "OpenSSH": (lambda: openssh(make_rsa()), {}, "it has the format of OpenSSH: convert it"),
    "EC": (lambda: pem(make_ec()), {}, "it is an EC key: set algorithm='ES256', or give an RSA key"),
    "RSA": (lambda: pem(make_rsa()), {"algorithm": "ES256"}, "it is an RSA key: set algorithm='RS256'"),
    "P-384": (p_384, {"algorithm": "ES256"}, "its curve is secp384r1, and must be P-256"),
    "damaged": (lambda: pem(make_rsa())[:400] + b"\n-----END PRIVATE KEY-----\n", {}, "RS256: it is damaged"),
    "locked": (lambda: pem(make_rsa(), b"canary-right"), {}, "it is encrypted: give private_key_password"),
    "wrong password": (
        lambda: pem(make_rsa(), b"canary-right"),
        {"private_key_password": "canary-wrong"},
        "private_key_password is wrong, or the key is damaged",
    ),
    "not locked": (
        lambda: pem(make_rsa()),
        {"private_key_password": "canary-wrong"},
        "it is not encrypted: leave out private_key_password",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE_KEYS)
async def test_key_that_cannot_sign_is_named(endpoint: Endpoint, tmp_path: Path, case: str) -> None:
    make, options, words = UNUSABLE_KEYS[case]
    file, content = tmp_path / "key.pem", make()
    if content is not None:
        file.write_bytes(content)
    provider = JwtBearer(endpoint.url, private_key_file=file, issuer="i", subject="s", **options)  # type: ignore[arg-type]
    with pytest.raises(TokenError) as caught:
        await provider.token()

    assert words in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_other_algorithm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="RS256 or ES256"):
        JwtBearer("https://idp/", private_key_file=tmp_path, issuer="i", subject="s", algorithm="none")


# Amazon MSK

needs_signer = pytest.mark.skipif(find_spec("aws_msk_iam_sasl_signer") is None, reason="needs aioproducer[aws]")


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/not/there")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/not/there")


@needs_signer
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


@needs_signer
async def test_missing_credentials_are_named() -> None:
    with pytest.raises(TokenError, match="AWS gives no credentials for MSK: none are found: set AWS_ACCESS_KEY_ID"):
        await MskIam("eu-central-1").token()
    with pytest.raises(TokenError, match="AWS gives no credentials for MSK: none are found: set AWS_ACCESS_KEY_ID"):
        await MskIam("eu-central-1", role_arn="arn:aws:iam::123456789012:role/x").token()


@needs_signer
async def test_missing_profile_is_named() -> None:
    with pytest.raises(TokenError, match="nobody"):
        await MskIam("eu-central-1", profile="nobody").token()


@needs_signer
def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="region"):
        MskIam("")
    with pytest.raises(ConfigurationError, match="exclude each other"):
        MskIam("eu-central-1", profile="a", role_arn="b")


@needs_signer
def test_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", None)
    with pytest.raises(ConfigurationError, match=r"aioproducer\[aws\]"):
        MskIam("eu-central-1")


@needs_signer
def test_repr_shows_region_and_role() -> None:
    assert repr(MskIam("eu-central-1", role_arn="arn:aws:iam::1:role/r")) == (
        "MskIam('eu-central-1', role_arn='arn:aws:iam::1:role/r')"
    )


CLIENT_ARGUMENTS: dict[str, object] = {"url": "https://idp/token", "client_id": "id", "client_secret": CANARY}
KEY_ARGUMENTS: dict[str, object] = {
    "url": "https://idp/token",
    "private_key_file": "key.pem",
    "issuer": "i",
    "subject": "s",
}


@pytest.mark.parametrize("make, given", [(ClientCredentials, CLIENT_ARGUMENTS), (JwtBearer, KEY_ARGUMENTS)])
@pytest.mark.parametrize(
    "argument, value, words",
    [
        ("url", None, "must be a str, not NoneType"),
        ("url", b"https://idp/", "must be a str, not bytes"),
        ("url", "https://idp/t\xf8ken", "characters that no request can have"),
        ("url", "https://idp/a b", "characters that no request can have"),
        ("url", "https://idp/?a=\xf8", "characters that no request can have"),
        ("url", "https://idp/\ud83d", "is not valid Unicode"),
        ("url", "https://i dp/token", "characters that no request can have"),
        ("url", f"https://{'x' * 64}/token", "characters that no request can have"),
        ("timeout_s", 0, "a number of seconds above 0, at most 86400, not 0"),
        ("timeout_s", -1, "a number of seconds above 0"),
        ("timeout_s", float("nan"), "a number of seconds above 0"),
        ("timeout_s", float("inf"), "a number of seconds above 0"),
        ("timeout_s", "5", "a number of seconds above 0, at most 86400, not str"),
        ("timeout_s", True, "a number of seconds above 0, at most 86400, not bool"),
        ("scope", ["a"], "must be a str, not list"),
        ("extensions", "a=b", "must be a mapping of str to str, or None, not str"),
        ("extensions", {"a": 5}, r"extensions\['a'\] must be a str, not int"),
        ("extensions", {5: "a"}, "a name is of int"),
        ("extensions", {"logical_cluster": "x"}, "a name has letters only"),
        ("ssl_context", "ca.pem", "must be an ssl.SSLContext or None, not str"),
    ],
)
def test_invalid_argument_of_an_endpoint_is_named(  # noqa: PLR0917  # a row of the table
    make: Callable[..., object], given: dict[str, object], argument: str, value: object, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        make(**{**given, argument: value})

    assert str(caught.value).startswith(argument)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "argument, value, words",
    [
        ("client_id", 5, "must be a str, not int"),
        ("client_id", "\ud83d", "is not valid Unicode"),
        ("client_secret", "", "must not be empty"),
        ("client_secret", Secret(""), "must not be empty"),
        ("client_secret", None, "must be text or a Secret, not NoneType"),
        ("client_secret", f"{CANARY}\udce9", "is not valid Unicode"),
        ("parameters", {"x": 3600}, r"parameters\['x'\] must be a str, not int"),
        ("parameters", {"audience": None}, r"parameters\['audience'\] must be a str, not NoneType"),
        ("parameters", [("a", "b")], "must be a mapping of str to str, or None, not list"),
    ],
)
def test_invalid_argument_of_client_credentials_is_named(argument: str, value: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        ClientCredentials(**{**CLIENT_ARGUMENTS, argument: value})  # type: ignore[arg-type]

    assert str(caught.value).startswith(argument)
    assert CANARY not in f"{caught.value} {caught.value.__context__!r}"


@pytest.mark.parametrize(
    "argument, value, words",
    [
        ("private_key_file", None, "must be a path, not NoneType"),
        ("private_key_file", "", "must be a path in text, not empty"),
        ("private_key_file", "a\0b", "without a NUL character"),
        ("private_key_password", 5, "must be text or a Secret, not int"),
        ("private_key_password", "", "must not be empty"),
        ("algorithm", ["RS256"], "must be a str, not list"),
        ("issuer", None, "must be a str, not NoneType"),
        ("subject", "", "must not be empty"),
        ("audience", 5, "must be a str, not int"),
        ("key_id", 5, "must be a str, not int"),
    ],
)
def test_invalid_argument_of_a_signed_assertion_is_named(argument: str, value: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        JwtBearer(**{**KEY_ARGUMENTS, argument: value})  # type: ignore[arg-type]

    assert str(caught.value).startswith(argument)


async def test_secret_that_cannot_be_read_is_named(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ClientCredentials(endpoint.url, client_id="a", client_secret=Secret.from_env("IDP_SECRET"))
    monkeypatch.delenv("IDP_SECRET", raising=False)
    with pytest.raises(TokenError, match="client_secret cannot be read: the environment variable 'IDP_SECRET'"):
        await provider.token()
    monkeypatch.setenv("IDP_SECRET", "")
    with pytest.raises(TokenError, match="client_secret is empty"):
        await provider.token()
    monkeypatch.setenv("IDP_SECRET", f"{CANARY}\udce9")
    with pytest.raises(TokenError, match="is not valid Unicode") as caught:
        await provider.token()

    assert CANARY not in f"{caught.value} {caught.value.__context__!r}"


def test_user_in_a_url_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="is not a URL") as caught:
        credentials("https://user:pass-canary@idp\u2100/token")

    assert "pass-canary" not in f"{caught.value} {caught.value.__context__!r}"
