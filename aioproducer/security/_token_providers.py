"""Token providers: the endpoint of an identity provider, by OAuth 2.0, and Amazon MSK.

Source: RFC 6749 (client credentials), RFC 7523 (jwt-bearer); KIP-768, KIP-1139.
"""

from __future__ import annotations

import base64
import copy
import http.client
import json
import os
import re
import ssl
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, Self

from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.sent_secrets import SentSecrets
from aioproducer._shown_values import in_any_state
from aioproducer._threads.calls import run_in_thread
from aioproducer.errors import ConfigurationError, TokenError
from aioproducer.security._arguments import (
    extensions_argument,
    path_argument,
    seconds_argument,
    secret_argument,
    text_argument,
    texts_argument,
    tls_argument,
)
from aioproducer.security._cleared_frames import clears_frames
from aioproducer.security._https import LOOPBACK, HttpsConnection, OpenSocket
from aioproducer.security._secret import Secret, revealed_argument
from aioproducer.security._signing_key import signing_key
from aioproducer.security._tokens import Token

if TYPE_CHECKING:
    from types import ModuleType


_LARGEST_ANSWER: Final = 1024 * 1024
_OK: Final = 200
_BUSY: Final = frozenset({408, 425, 429})
_BUSY_WORDS: Final = frozenset({"temporarily_unavailable", "server_error"})  # RFC 6749, 4.1.2.1
_TIMEOUT_S: Final = 10.0
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_MOST_NAMES: Final = 10
_LONGEST_LIFETIME_S: Final = 10 * 365 * 86_400


class ClientCredentials:
    """Tokens for a client id and its secret (the grant `client_credentials`), for `sasl_token_provider`.

    Args:
        url: of the token endpoint; `https`, or `http` to this machine.
        client_id: as registered.
        client_secret: text, or a `Secret`, which is read at each fetch.
        scope: what to ask for; with some identity providers required.
        parameters: further fields of the request, such as `audience` or `resource`.
        extensions: SASL extensions that are sent with each token.
        ssl_context: for an endpoint whose CA the system does not trust.
        timeout_s: of the connection, and of each read.

    Raises:
        ConfigurationError: the URL is not allowed, or a value is empty or invalid.
    """

    @clears_frames
    def __init__(  # noqa: PLR0913  # all by name but the first
        self,
        url: str,
        *,
        client_id: str,
        client_secret: str | Secret,
        scope: str = "",
        parameters: Mapping[str, str] | None = None,
        extensions: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """Check the arguments; nothing is fetched yet."""
        self._client_id = text_argument("client_id", client_id)
        self._secret = secret_argument("client_secret", client_secret)
        self._endpoint = _Endpoint(url, ssl_context, timeout_s)
        further = texts_argument("parameters", parameters)
        self._fields = {"grant_type": "client_credentials", **_scope_field(scope), **further}
        self._extensions = extensions_argument("extensions", extensions)

    @property
    def _text_arguments(self) -> Mapping[str, str]:
        given = {"url": self._endpoint.url, "client_id": self._client_id, "scope": self._fields.get("scope", "")}
        return given | _named_extensions(self._extensions)

    async def token(self) -> Token:
        """Fetch a token, in a thread.

        Raises:
            TokenError: the endpoint gives none.
        """
        return await run_in_thread(self._fetch, "aioproducer-token")

    def _through(self, open_socket: OpenSocket) -> Self:
        routed = copy.copy(self)
        vars(routed).update(_endpoint=self._endpoint.through(open_socket))
        return routed

    def _fetch(self) -> Token:
        secret = revealed_argument("client_secret", self._secret)
        quoted = f"{urllib.parse.quote_plus(self._client_id)}:{urllib.parse.quote_plus(secret)}"  # RFC 6749, 2.3.1
        authorization = f"Basic {base64.b64encode(quoted.encode()).decode()}"
        return self._endpoint.ask(self._fields, self._extensions, {"Authorization": authorization})

    @in_any_state
    def __repr__(self) -> str:
        """Show where tokens come from, and for whom."""
        return f"ClientCredentials({self._endpoint.url!r}, client_id={self._client_id!r})"


class JwtBearer:
    """Tokens for an assertion that is signed with a private key (the grant `jwt-bearer`), for `sasl_token_provider`.

    Args:
        url: of the token endpoint; `https`, or `http` to this machine.
        private_key_file: PEM; read at each fetch.
        private_key_password: if it is encrypted.
        algorithm: `RS256` or `ES256`.
        key_id: the header `kid`, with which the identity provider finds the public key.
        issuer: the claim `iss`.
        subject: the claim `sub`.
        audience: the claim `aud`; without it the URL.
        scope: what to ask for.
        extensions: SASL extensions that are sent with each token.
        ssl_context: for an endpoint whose CA the system does not trust.
        timeout_s: of the connection, and of each read.

    Raises:
        ConfigurationError: the URL is not allowed, a value is invalid, or PyJWT is missing.
    """

    @clears_frames
    def __init__(  # noqa: PLR0913  # all by name but the first
        self,
        url: str,
        *,
        private_key_file: str | os.PathLike[str],
        issuer: str,
        subject: str,
        private_key_password: str | Secret | None = None,
        algorithm: str = "RS256",
        key_id: str = "",
        audience: str = "",
        scope: str = "",
        extensions: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """Check the arguments; nothing is fetched yet."""
        if text_argument("algorithm", algorithm) not in {"RS256", "ES256"}:
            raise ConfigurationError(f"algorithm must be RS256 or ES256, not {algorithm!r}")
        self._jwt = _pyjwt()
        self._endpoint = _Endpoint(url, ssl_context, timeout_s)
        self._key_file = path_argument("private_key_file", private_key_file)
        password = private_key_password
        self._key_password = None if password is None else secret_argument("private_key_password", password)
        self._algorithm = algorithm
        self._headers = {"kid": key_id} if text_argument("key_id", key_id, may_be_empty=True) else {}
        self._claims = {
            "iss": text_argument("issuer", issuer),
            "sub": text_argument("subject", subject),
            "aud": text_argument("audience", audience, may_be_empty=True) or url,
        }
        self._fields = {"grant_type": _JWT_BEARER, **_scope_field(scope)}
        self._extensions = extensions_argument("extensions", extensions)

    @property
    def _text_arguments(self) -> Mapping[str, str]:
        given = {"url": self._endpoint.url, "scope": self._fields.get("scope", "")}
        return given | _named_extensions(self._extensions)

    async def token(self) -> Token:
        """Sign an assertion and fetch a token for it, in a thread.

        Raises:
            TokenError: the key cannot be used, or the endpoint gives no token.
        """
        return await run_in_thread(self._fetch, "aioproducer-token")

    def _through(self, open_socket: OpenSocket) -> Self:
        routed = copy.copy(self)
        vars(routed).update(_endpoint=self._endpoint.through(open_socket))
        return routed

    def _fetch(self) -> Token:
        return self._endpoint.ask({**self._fields, "assertion": self._assertion()}, self._extensions, {})

    def _assertion(self) -> str:
        now = int(_wall_clock())
        claims = {**self._claims, "iat": now, "nbf": now - 60, "exp": now + 300, "jti": str(uuid.uuid4())}
        key = signing_key(self._key_file, self._key_password, self._algorithm)
        try:
            return str(self._jwt.encode(claims, key, algorithm=self._algorithm, headers=self._headers or None))
        except Exception as error:  # noqa: BLE001  # of PyJWT and cryptography
            # Without the cause, whose frames hold the key.
            text = f"the private key {str(self._key_file)!r} cannot sign with {self._algorithm}: {type(error).__name__}"
            raise TokenError(text, retriable=False) from None

    @in_any_state
    def __repr__(self) -> str:
        """Show where tokens come from, and for whom."""
        return f"JwtBearer({self._endpoint.url!r}, subject={self._claims['sub']!r})"


def _scope_field(scope: str) -> dict[str, str]:
    return {"scope": scope} if text_argument("scope", scope, may_be_empty=True) else {}


def _named_extensions(extensions: Mapping[str, str]) -> dict[str, str]:
    return {f"extension_{name}": value for name, value in extensions.items()}


class _Endpoint:
    """A token endpoint."""

    _open_socket: OpenSocket | None = None

    def __init__(self, url: str, ssl_context: ssl.SSLContext | None, timeout_s: float) -> None:
        self._parts = _checked_url(url)
        self.url: str = shown_url(url)
        """The URL as it is shown."""
        self._ssl_context = tls_argument("ssl_context", ssl_context)
        self._timeout_s = seconds_argument("timeout_s", timeout_s)

    def through(self, open_socket: OpenSocket) -> Self:
        """Return the same endpoint, connected to by a function."""
        routed = copy.copy(self)
        vars(routed).update(_open_socket=open_socket)
        return routed

    def ask(self, fields: Mapping[str, str], extensions: Mapping[str, str], headers: Mapping[str, str]) -> Token:
        asked_at = _wall_clock()
        sent = _sent(fields, headers, self._parts.query)
        status, content = self._post(urllib.parse.urlencode(fields).encode(), headers, sent)
        token_response = _json_object(content)
        if status != _OK:
            hint = " (redirects are not followed)" if status // 100 == 3 else ""  # noqa: PLR2004
            is_busy = status in _BUSY or status // 100 == 5 or token_response.get("error") in _BUSY_WORDS  # noqa: PLR2004
            text = f"the token endpoint {self.url} answered {status}{_said(token_response, content, sent)}{hint}"
            raise TokenError(text, retriable=is_busy)
        value = token_response.get("access_token")
        if not isinstance(value, str) or not value:
            why = _without_token(token_response, content, sent)
            text = f"the token endpoint {self.url} answered without an access_token: {why}"
            raise TokenError(text, retriable=False)
        lifetime_s = _lifetime_s(token_response.get("expires_in"))
        return Token(
            value=value, expires_at=None if lifetime_s is None else asked_at + lifetime_s, extensions=extensions
        )

    def _post(self, body: bytes, headers: Mapping[str, str], sent: SentSecrets) -> tuple[int, bytes]:
        connection = self._connection()
        path = urllib.parse.urlunsplit(("", "", self._parts.path or "/", self._parts.query, ""))
        all_headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", **headers}
        deadline = time.monotonic() + 2 * self._timeout_s
        try:
            connection.request("POST", path, body, all_headers)
            with connection.getresponse() as response:
                return response.status, self._read(response, deadline)
        except TimeoutError:
            raise TokenError(f"the token endpoint {self.url} has not answered in time", retriable=True) from None
        except (OSError, http.client.HTTPException) as error:
            text = f"the token endpoint {self.url} cannot be asked: {_reason(error, sent)}"
            raise TokenError(text, retriable=not isinstance(error, ssl.SSLCertVerificationError)) from None
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        content = b""
        while piece := response.read1(_LARGEST_ANSWER):
            content += piece
            if len(content) > _LARGEST_ANSWER:
                text = f"the token endpoint {self.url} answered more than {_LARGEST_ANSWER} bytes"
                raise TokenError(text, retriable=False)
            if time.monotonic() > deadline:
                raise TokenError(f"the token endpoint {self.url} has not ended its answer in time", retriable=True)
        return content

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        context = self._ssl_context or ssl.create_default_context()
        return HttpsConnection(host, port, timeout_s=self._timeout_s, context=context, open_socket=self._open_socket)


def _checked_url(url: str) -> urllib.parse.SplitResult:
    text_argument("url", url, may_be_empty=True)
    parts = _split_url(url)
    if parts is None:
        raise ConfigurationError(f"url: {shown_url(url)!r} is not a URL: its host or port is invalid")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("the URL of a token endpoint must have no user or password")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(f"the URL of a token endpoint must begin with https://, not {shown_url(url)!r}")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        text = (
            f"{shown_url(url)!r} would send the secret in the clear: use https:// (http:// is for this machine alone)"
        )
        raise ConfigurationError(text)
    if not _SENT_AS_IT_IS.fullmatch(parts.path + parts.query) or not _is_host(parts.hostname):
        text = (
            f"url: {shown_url(url)!r} has a host that no system can look up, or characters that no request can have: "
            "in path and query, blanks, control characters and those outside of ASCII are written like %20"
        )
        raise ConfigurationError(text)
    return parts


def _split_url(url: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError:  # its text may have user and password
        return None
    return parts


_SENT_AS_IT_IS: Final = re.compile(r"[\x21-\x7e]*")


def _is_host(host: str) -> bool:
    """Whether the name has a form for the wire: an international one has that of IDNA."""
    try:
        return bool(_SENT_AS_IT_IS.fullmatch(host.encode("idna").decode()))
    except UnicodeError:
        return False


_SECRET_PARAMETER: Final = re.compile(r"(?i)([?&][^=&]*(?:secret|passw|token|key|code|assertion|sig)[^=&]*=)[^&]*")


def shown_url(url: str) -> str:
    """Return a URL without user, password, and what in its query may be a secret."""
    place, mark, query = url.partition("?")
    start, slashes, rest = place.rpartition("//")
    host, slash, path = rest.partition("/")
    shown_query = _SECRET_PARAMETER.sub(r"\1<hidden>", mark + query)
    return f"{start}{slashes}{host.rpartition('@')[2]}{slash}{path}{shown_query}"


def _json_object(content: bytes) -> Mapping[str, object]:
    try:
        token_response: object = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return token_response if isinstance(token_response, dict) else {}


def _reason(error: BaseException, sent: SentSecrets) -> str:
    if isinstance(error, OSError) and error.strerror:
        return printable(error.strerror)
    return f"{type(error).__name__}: {sent.shown(str(error))}".removesuffix(": ")


_SHOWN_FIELDS: Final = frozenset({"audience", "client_id", "grant_type", "resource", "scope"})


def _sent(fields: Mapping[str, str], headers: Mapping[str, str], query: str) -> SentSecrets:
    """Return what is hidden in the words of the endpoint."""
    sent = SentSecrets()
    parameters = [*fields.items(), *urllib.parse.parse_qsl(query)]
    for value in [*headers.values(), *(value for name, value in parameters if name not in _SHOWN_FIELDS)]:
        scheme, _, credentials = value.rpartition(" ")
        sent.add(credentials)
        if scheme == "Basic":
            decoded = base64.b64decode(credentials)
            sent.add_encoded(decoded)
            quoted = decoded.decode().partition(":")[2]
            sent.add(quoted)
            sent.add(urllib.parse.unquote_plus(quoted))
    return sent


def _said(token_response: Mapping[str, object], content: bytes, sent: SentSecrets) -> str:
    """Return what a response that refuses says, behind its status."""
    words = [token_response[key] for key in ("error", "error_description") if key in token_response]
    if not words and _is_html(content):
        return ", with a page of HTML"
    return "".join(f", {sent.shown(str(word))}" for word in words)


def _without_token(token_response: Mapping[str, object], content: bytes, sent: SentSecrets) -> str:
    """Return what a response has instead of a token."""
    if "error" in token_response:
        return _said(token_response, content, sent).removeprefix(", ")
    if "access_token" in token_response:
        return "it is empty, or not text"
    if token_response:
        return f"it has only {', '.join(sent.shown(str(name), 40) for name in list(token_response)[:_MOST_NAMES])}"
    if _is_html(content):
        return "it is a page of HTML, as of a login or a proxy; is the URL that of the token endpoint?"
    return "it is not a JSON object; is the URL that of the token endpoint?" if content.strip() else "it is empty"


def _is_html(content: bytes) -> bool:
    return content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"


def _lifetime_s(expires_in: object) -> float | None:
    """Return `expires_in` in seconds; some identity providers write it as text."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    try:
        lifetime_s = float(expires_in)
    except (ValueError, OverflowError):
        return None
    return lifetime_s if 0 < lifetime_s <= _LONGEST_LIFETIME_S else None


def _wall_clock() -> float:
    return time.time()  # noqa: TID251  # identity providers compare with it


def _pyjwt() -> ModuleType:
    try:
        return import_module("jwt")
    except ImportError:
        text = "JwtBearer needs PyJWT, which is not installed: pip install 'aioproducer[oauth]'"
        raise ConfigurationError(text) from None


class MskIam:
    """Tokens for Amazon MSK, signed with AWS credentials, for `sasl_token_provider`; needs the extra `aws`.

    Credentials come from where AWS's libraries look for them: environment, profile, container or instance role.

    Args:
        region: of the cluster, such as `eu-central-1`.
        profile: of the shared credentials file.
        role_arn: a role to assume.
        role_session_name: name of the role's session. It is part of the principal, and a connection cannot change its
            principal, so it stays the same for all tokens.

    Raises:
        ConfigurationError: the signer is not installed, or a value does not fit.
    """

    @clears_frames
    def __init__(
        self, region: str, *, profile: str = "", role_arn: str = "", role_session_name: str = "aioproducer"
    ) -> None:
        """Check the arguments; nothing is signed yet."""
        text_argument("region", region)
        for name, value in (("profile", profile), ("role_arn", role_arn)):
            text_argument(name, value, may_be_empty=True)
        text_argument("role_session_name", role_session_name)
        if profile and role_arn:
            raise ConfigurationError("profile and role_arn exclude each other: give one of them")
        self._signer = _signer()
        self._region, self._profile = region, profile
        self._role_arn, self._role_session_name = role_arn, role_session_name

    @property
    def _text_arguments(self) -> Mapping[str, str]:
        given = {"profile": self._profile, "role_arn": self._role_arn}
        return given | ({"role_session_name": self._role_session_name} if self._role_arn else {})

    async def token(self) -> Token:
        """Sign a token, in a thread: AWS's library may ask a server for credentials.

        Raises:
            TokenError: there are no credentials.
        """
        return await run_in_thread(self._sign, "aioproducer-token")

    def _sign(self) -> Token:
        make = self._signer
        try:
            if self._role_arn:
                token_response = make.generate_auth_token_from_role_arn(
                    self._region, self._role_arn, sts_session_name=self._role_session_name
                )
            elif self._profile:
                token_response = make.generate_auth_token_from_profile(self._region, self._profile)
            else:
                token_response = make.generate_auth_token(self._region)
        except Exception as error:  # noqa: BLE001  # of AWS's libraries
            # Without the cause, which may quote what was signed.
            is_refused = type(error).__name__ == "ClientError"  # of botocore: AWS has answered, and refuses
            text = f"AWS gives no credentials for MSK: {_of_aws(error)}"
            raise TokenError(text, retriable=not is_refused) from None
        value, expires_at_ms = token_response
        return Token(value=value, expires_at=expires_at_ms / 1000)

    @in_any_state
    def __repr__(self) -> str:
        """Show for which cluster and role tokens are."""
        role = f", role_arn={self._role_arn!r}" if self._role_arn else ""
        return f"MskIam({self._region!r}{role})"


def _of_aws(error: Exception) -> str:
    # The signer does not look whether it has found any.
    if isinstance(error, AttributeError) or type(error).__name__ == "NoCredentialsError":
        return (
            "none are found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give this machine, "
            "container or pod a role"
        )
    sent = SentSecrets()
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        sent.add(os.environ.get(name, ""))
    return f"{type(error).__name__}: {sent.shown(str(error))}"


def _signer() -> ModuleType:
    try:
        return import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    except ImportError:
        text = "MskIam needs aws-msk-iam-sasl-signer-python, which is not installed: pip install 'aioproducer[aws]'"
        raise ConfigurationError(text) from None
