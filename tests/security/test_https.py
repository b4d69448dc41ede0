"""Token endpoints behind proxies: those of the environment, and `proxy_url` of a producer."""

import ssl
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from aioproducer import Producer, TokenError
from aioproducer.security import ClientCredentials, JwtBearer
from aioproducer.testing import CertificateAuthority, ClusterSecurity, FakeCluster, unsecured_token
from tests.fakes.proxies import WorkingProxy, hostile_proxy, working_proxy
from tests.fakes.token_endpoint import Endpoint, granted, token_endpoint
from tests.fakes.wrong_servers import dead_port

AUTHORITY = CertificateAuthority("a public CA")
HOST = "idp.example.com"
URL = f"https://{HOST}/token"
PASSWORD = "canary-pa:ss@word"
QUOTED = "canary-pa%3Ass%40word"
PROXY_CREDENTIALS = f"billing:{PASSWORD}"
SCHEMES = ["http", "socks5h"]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def tls_endpoint(folder: Path, *names: str) -> Iterator[Endpoint]:
    """An endpoint of these names, over TLS."""
    file = folder / "endpoint.pem"
    file.write_text(AUTHORITY.issue(*names).pem, "ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with token_endpoint(context) as endpoint:
        yield endpoint


@asynccontextmanager
async def proxied_endpoint(
    folder: Path, credentials: str | None = None
) -> AsyncIterator[tuple[Endpoint, WorkingProxy]]:
    """An endpoint whose name only the proxy knows."""
    with tls_endpoint(folder, HOST) as endpoint:
        places = {f"{HOST}:443": endpoint.server_address[1]}
        async with working_proxy(credentials=credentials, places=places) as proxy:
            yield endpoint, proxy


def provider(url: str = URL) -> ClientCredentials:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate)
    return ClientCredentials(url, client_id="billing", client_secret="canary-secret", ssl_context=context)


async def refusal(environment_proxy: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HTTPS_PROXY", environment_proxy)
    with pytest.raises(TokenError) as caught:
        await provider().token()
    check_frames(caught.value)
    return str(caught.value)


def check_frames(error: BaseException) -> None:
    """Look for the password in the error, and in the locals of the frames of the package."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [frame.locals for frame in shown.stack if "/aioproducer/" in frame.filename]
    assert ours
    assert not any(secret in f"{error!r} {ours}" for secret in (PASSWORD, QUOTED))


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
async def test_endpoint_is_asked_through_the_proxy_of_the_environment(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied_endpoint(tmp_path, PROXY_CREDENTIALS) as (endpoint, proxy):
        monkeypatch.setenv(variable, f"http://billing:{QUOTED}@127.0.0.1:{proxy.port}")

        token = await provider().token()

    assert token.value == "abc"
    assert proxy.asked == [f"{HOST}:443"]
    assert "Proxy-Authorization" not in endpoint.heard[0][1]


async def test_jwt_bearer_takes_the_proxy_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key.pem"
    key.write_text(AUTHORITY.issue("client").key, "ascii")
    context = ssl.create_default_context(cadata=AUTHORITY.certificate)
    async with proxied_endpoint(tmp_path) as (_, proxy):
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{proxy.port}")
        signing = JwtBearer(URL, private_key_file=key, algorithm="ES256", issuer="i", subject="s", ssl_context=context)

        await signing.token()

    assert proxy.asked == [f"{HOST}:443"]


@pytest.mark.parametrize("exceptions", ["example.com", ".example.com", HOST, f"other,{HOST}:443", "*"])
async def test_exceptions_of_the_environment_are_asked_directly(
    exceptions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied_endpoint(tmp_path) as (_, proxy):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", exceptions)

        with pytest.raises(TokenError, match="cannot be asked"):  # no one but the proxy knows its name
            await provider().token()

    assert proxy.asked == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_this_machine_is_asked_directly(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tls_endpoint(tmp_path) as endpoint:
        async with dead_port() as dead:
            monkeypatch.setenv("HTTPS_PROXY", f"http://{dead}")
            monkeypatch.setenv("HTTP_PROXY", f"http://{dead}")
            await provider(f"https://{host}:{endpoint.server_address[1]}/token").token()

    assert len(endpoint.heard) == 1


async def test_refusing_proxy_of_the_environment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied_endpoint(tmp_path, "other:password") as (_, proxy):
        place = f"127.0.0.1:{proxy.port}"
        refused = await refusal(f"http://billing:{QUOTED}@{place}", monkeypatch)
        anonymous = await refusal(f"http://{place}", monkeypatch)

    where = f"{HOST}:443 cannot be reached through the proxy http://{place} of HTTPS_PROXY"
    schemes = "wants Negotiate, NTLM or Digest, where Basic is spoken"
    assert refused == f"{where}: it refuses the user or the password (407), or {schemes}"
    assert anonymous == f"{where}: it wants a user and a password (407)"


async def test_words_of_a_refusing_proxy_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be the credentials that it was sent."""
    async with hostile_proxy([f"HTTP/1.1 403 you are {PASSWORD}\r\n\r\n".encode()]) as port:
        text = await refusal(f"http://billing:{QUOTED}@127.0.0.1:{port}", monkeypatch)

    assert text.endswith(": it refuses: 403")


async def test_dead_proxy_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with dead_port() as dead:
        text = await refusal(f"http://{dead}", monkeypatch)

    assert text.endswith(f"through the proxy http://{dead} of HTTPS_PROXY: Connection refused")


@pytest.mark.parametrize(
    "url", [f"socks5://billing:{QUOTED}@h:1080", "https://h:3128", f"http://a:{QUOTED}@h:x", "://"]
)
async def test_unusable_proxy_of_the_environment_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "HTTPS_PROXY is not like http://user:password@host:3128" in await refusal(url, monkeypatch)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_endpoint_is_asked_through_the_proxy_of_the_producer(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`proxy_url` leads to the brokers, and to the endpoint; the environment's proxy is not asked."""
    security = ClusterSecurity(authority=AUTHORITY, listeners=("SASL_SSL",))
    (tmp_path / "ca.pem").write_text(AUTHORITY.certificate, "ascii")
    async with (
        proxied_endpoint(tmp_path, PROXY_CREDENTIALS) as (endpoint, proxy),
        FakeCluster(1, topics={"orders": 1}, security=security) as cluster,
        dead_port() as dead,
    ):
        endpoint.answer = granted(access_token=unsecured_token("alice"))
        monkeypatch.setenv("HTTPS_PROXY", f"http://{dead}")
        tokens = provider()
        async with Producer(
            cluster.secured_servers("SASL_SSL"),
            security_protocol="SASL_SSL",
            ssl_truststore_location=tmp_path / "ca.pem",
            sasl_mechanism="OAUTHBEARER",
            sasl_token_provider=tokens,
            proxy_url=f"{scheme}://billing:{QUOTED}@127.0.0.1:{proxy.port}",
        ) as producer:
            await producer.send("orders", b"v")
            assert producer.config.sasl_token_provider is tokens

    assert f"{HOST}:443" in proxy.asked
    assert len(endpoint.heard) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_proxy_of_the_producer_that_refuses_is_named(scheme: str, tmp_path: Path) -> None:
    async with proxied_endpoint(tmp_path, "other:password") as (_, proxy):
        producer = Producer(
            "kafka-1:9093",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_token_provider=provider(),
            proxy_url=f"{scheme}://billing:{QUOTED}@127.0.0.1:{proxy.port}",
            max_block_ms=2_000,
        )
        with pytest.raises(Exception, match="it refuses the user or the password") as caught:
            await producer.start()
        await producer.close()

    check_frames(caught.value)
