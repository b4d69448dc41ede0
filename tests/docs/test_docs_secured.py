"""Every producer of "Connect to a secured cluster" connects as it stands there, and sends a record.

Names of the page lead to an embedded cluster, whose certificate is for them, and whose CA is the system's. A block that
needs a service of its own (an identity provider, a proxy) gets one; what a vault or a library returns is replaced.
"""

import ast
import base64
import contextlib
import datetime as dt
import hashlib
import importlib
import inspect
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, load_pem_private_key, pkcs12

import aioproducer
from aioproducer import Producer, TokenError
from aioproducer.security import Token
from aioproducer.testing import CertificateAuthority, ClusterSecurity, FakeCluster, unsecured_token
from aioproducer.testing.certificates import Certificate
from tests.docs.code_blocks import CLOUDS, ROOT, code_blocks
from tests.fakes.proxies import working_proxy
from tests.fakes.token_endpoint import granted, token_endpoint

PAGE = ROOT / "docs" / "how-to" / "connect_to_a_secured_cluster.md"
PASSWORD = "canary-of-the-page"
PLACES = {
    "kafka-1:9093": "SASL_SSL",
    "kafka-1:9094": "MTLS",
    "pkc-12345.eu-central-1.aws.confluent.cloud:9092": "SASL_SSL",
    "mynamespace.servicebus.windows.net:9093": "SASL_SSL",
    "b-1.mycluster.abc123.kafka.eu-central-1.amazonaws.com:9098": "SASL_SSL",
    "bootstrap.mycluster.europe-west1.managedkafka.myproject.cloud.goog:9092": "SASL_SSL",
}
WAYS = {
    "SCRAM-SHA-512 from a file",
    "SCRAM-SHA-512",
    "SCRAM-SHA-512 by a function",
    "PLAIN as API key",
    "PLAIN as $ConnectionString",
    "ClientCredentials",
    "OurTokens",
    "AzureTokens",
    "GoogleTokens",
    "MskIam",
    "client.pem",
    "client.p12",
    "SCRAM-SHA-512 through a proxy",
    "SCRAM-SHA-512 through a port forward",
}
"""What `way_of` says of the producers of the page; those of Kerberos have tests of their own."""
REFUSED = {"MskIam", "GoogleTokens"}  # only the service can check their tokens


def way_of(producer: Producer, made: str) -> str:
    config = producer._config  # noqa: SLF001  # what the block has set
    if config.sasl_token_provider is not None:
        return type(config.sasl_token_provider).__name__
    if config.sasl_mechanism is None:
        return Path(str(config.ssl_keystore_location)).name
    if config.sasl_mechanism == "PLAIN":
        return f"PLAIN as {config.sasl_username}"
    hints = {
        "from_properties_file": " from a file",
        "proxy_url": " through a proxy",
        "address_map": " through a port forward",
        "=password,": " by a function",
    }
    return config.sasl_mechanism + next((hint for part, hint in hints.items() if part in made), "")


def security() -> ClusterSecurity:
    authority = CertificateAuthority("a public CA")
    names = {place.rpartition(":")[0] for place in PLACES} | {"localhost"}
    users = dict.fromkeys(("billing", "API key", "$ConnectionString"), PASSWORD)
    return ClusterSecurity(users=users, authority=authority, broker_certificate=authority.issue(*sorted(names)))


def write_stores(asked: ClusterSecurity, folder: Path) -> None:
    client = asked.authority.issue(common_name="client", usage=("client",))
    (folder / "ca.pem").write_text(asked.authority.certificate, "ascii")
    (folder / "client.pem").write_text(client.pem, "ascii")
    (folder / "client.p12").write_bytes(pkcs12_of(client))
    (folder / "trust.jks").write_bytes(jks_of(asked.authority.certificate))


def pkcs12_of(client: Certificate) -> bytes:
    key = load_pem_private_key(client.key.encode(), None)
    own = x509.load_pem_x509_certificate(client.chain.encode())
    hidden = BestAvailableEncryption(PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"client", key, own, None, hidden)  # type: ignore[arg-type]


def jks_of(certificate: str) -> bytes:
    """A trust store as `keytool -importcert -storetype JKS` writes it."""
    der = x509.load_pem_x509_certificate(certificate.encode()).public_bytes(Encoding.DER)
    entry = struct.pack(">iH2sqH5si", 2, 2, b"ca", 1_700_000_000_000, 5, b"X.509", len(der)) + der
    content = struct.pack(">Iii", 0xFEEDFEED, 2, 1) + entry
    return content + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


class Page:
    """Runs the blocks of the page, and keeps the producers that they make.

    Args:
        places: host and port of the page -> where they lead.
        replaced: text of the page -> what stands in its place.
    """

    def __init__(self, places: Mapping[str, str], replaced: Mapping[str, str]) -> None:
        self.made: list[tuple[Producer, str]] = []
        self._places = places
        self._replaced = replaced
        self._code = ""

    async def run(self) -> None:
        names: dict[str, object] = {"__name__": PAGE.stem}
        for above, code in code_blocks(PAGE):
            self._code = code
            for text, other in self._replaced.items():
                self._code = self._code.replace(text, other)
            lines = "\n" * above + self._code
            block = compile(lines, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            running = eval(block, names)
            if inspect.isawaitable(running):
                await running

    def make(self, *arguments: object, **options: object) -> Producer:
        """Take the place of `Producer`."""
        if "proxy_url" not in options and "address_map" not in options:
            options["address_map"] = dict(self._places)
        producer = Producer(*arguments, max_block_ms=20_000, **options)  # type: ignore[arg-type, misc]
        self.made.append((producer, self._code))
        return producer


@pytest.fixture
def system_with_our_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterSecurity:
    asked = security()
    write_stores(asked, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    for name in ("KAFKA_PASSWORD", "STORE_PASSWORD", "KAFKA_PROXY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, PASSWORD)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.syspath_prepend(CLOUDS)
    return asked


@pytest.mark.slow
async def test_every_block_connects_and_sends(
    system_with_our_ca: ClusterSecurity, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = unsecured_token("billing")
    async with contextlib.AsyncExitStack() as running:
        cluster = await running.enter_async_context(FakeCluster(1, topics={"orders": 1}, security=system_with_our_ca))
        places = {place: cluster.secured_servers(listener) for place, listener in PLACES.items()}
        ports = {place: int(server.rpartition(":")[2]) for place, server in places.items()}
        endpoint = running.enter_context(token_endpoint())
        endpoint.answer = granted(access_token=token)
        proxy = await running.enter_async_context(working_proxy(credentials="u:canary-p", places=ports))
        monkeypatch.setenv("KAFKA_PROXY", f"socks5h://u:canary-p@127.0.0.1:{proxy.port}")
        replaced = {
            "https://idp.example.com/oauth2/token": endpoint.url,
            "localhost:19093": places["kafka-1:9093"],
            "header.payload.signature": token,
            'return "..."': f'return "{PASSWORD}"',
        }
        aio = importlib.import_module("azure.identity.aio")
        monkeypatch.setattr(aio.DefaultAzureCredential, "given", token)
        page = Page(places, replaced)
        monkeypatch.setattr(aioproducer, "Producer", page.make)
        await page.run()
        ways = {way_of(producer, code): producer for producer, code in page.made}
        ours = {way: producer for way, producer in ways.items() if not way.startswith("GSSAPI")}
        for way, producer in ours.items():
            await send(producer, way)
        values = [record.value for record in cluster.records("orders", 0)]

    assert len(ways) == len(page.made)
    assert set(ours) == WAYS
    assert sorted(values) == sorted(way.encode() for way in WAYS - REFUSED)
    assert proxy.asked[0] == "kafka-1:9093"
    assert len(endpoint.heard) == 1
    await check_google(ours["GoogleTokens"])


async def check_google(producer: Producer) -> None:
    """Google's brokers want a header, claims, and then the access token."""
    provider = producer._config.sasl_token_provider  # noqa: SLF001  # of the page
    assert provider is not None
    found = await provider.token()
    assert isinstance(found, Token)
    header, claims, token = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode() for part in found.value.split(".")
    )

    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert json.loads(claims)["sub"] == "billing@project.iam.gserviceaccount.com"
    assert json.loads(claims)["exp"] == found.expires_at == dt.datetime(2096, 10, 2, tzinfo=dt.UTC).timestamp()
    assert token == "ya29.canary-token"


async def send(producer: Producer, way: str) -> None:
    if way in REFUSED:
        with pytest.raises(TokenError, match="the broker refused the token"):
            await producer.start()
        await producer.close()
        return
    async with producer:
        await producer.send_and_wait("orders", way.encode())
