"""Every producer of "Connect to a secured cluster" connects as it stands there, and sends a record.

Names of the page lead to an embedded cluster, whose certificate is for them, and whose CA is the system's. A block that
needs a service of its own (an identity provider, a proxy) gets one; what a vault or a library returns is replaced. The
clusters that stand in for clouds enforce what the services do.
"""

import ast
import contextlib
import hashlib
import importlib
import inspect
import struct
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, load_pem_private_key, pkcs12

import aioproducer
from aioproducer import DeliveryTimeoutError, Producer, TokenError
from aioproducer.security import ClientCredentials, MskIam, Token
from aioproducer.testing import CertificateAuthority, FakeCluster
from aioproducer.testing.certificates import Certificate
from tests.docs.code_blocks import CLOUDS, ROOT, code_blocks
from tests.docs.stand_ins import (
    CONFLUENT,
    EVENT_HUBS,
    EVENT_HUBS_BYTES,
    GOOGLE,
    GOOGLE_KEY,
    HEROKU,
    MSK,
    PAGE_TOKEN,
    PASSWORD,
    stand_in,
)
from tests.fakes.proxies import WorkingProxy, working_proxy
from tests.fakes.token_endpoint import Endpoint, granted, token_endpoint

PAGE = ROOT / "docs" / "how-to" / "connect_to_a_secured_cluster.md"
SERVICES = ("", CONFLUENT, EVENT_HUBS, GOOGLE, MSK, HEROKU)
PLACES = {
    "kafka-1:9093": ("", "SASL_SSL"),
    "kafka-1:9094": ("", "MTLS"),
    f"{CONFLUENT}:9092": (CONFLUENT, "SASL_SSL"),
    f"{EVENT_HUBS}:9093": (EVENT_HUBS, "SASL_SSL"),
    f"{GOOGLE}:9092": (GOOGLE, "SASL_SSL"),
    f"{MSK}:9098": (MSK, "SASL_SSL"),
    f"{MSK}:9096": (MSK, "SASL_SSL"),
    f"{MSK}:9094": (MSK, "MTLS"),
    "mykafka-myproject.aivencloud.com:12691": ("", "MTLS"),
    "mycluster-kafka-bootstrap:9093": ("", "MTLS"),
    f"{HEROKU}:9096": (HEROKU, "MTLS"),
    "seed-12345.mycluster.fmc.prd.cloud.redpanda.com:9092": ("", "SASL_SSL"),
    "db-kafka-fra1-12345-do-user-1-0.db.ondigitalocean.com:25073": ("", "SASL_SSL"),
}
"""Place of the page -> the service whose stand-in it leads to, and the listener."""
WAYS = {
    "kafka-1:9093 SCRAM-SHA-512 from a file",
    "kafka-1:9093 SCRAM-SHA-512",
    "kafka-1:9093 SCRAM-SHA-512 by a function",
    "kafka-1:9093 ClientCredentials",
    "kafka-1:9093 OurTokens",
    "kafka-1:9093 SCRAM-SHA-512 through a proxy",
    "kafka-1:9093 SCRAM-SHA-512 through a port forward",
    "kafka-1:9094 client.pem",
    "kafka-1:9094 client.p12",
    f"{CONFLUENT}:9092 PLAIN",
    f"{CONFLUENT}:9092 ClientCredentials",
    f"{EVENT_HUBS}:9093 PLAIN",
    f"{EVENT_HUBS}:9093 AzureTokens",
    f"{GOOGLE}:9092 PLAIN",
    f"{GOOGLE}:9092 GoogleTokens",
    f"{MSK}:9098 MskIam",
    f"{MSK}:9096 SCRAM-SHA-512",
    f"{MSK}:9094 client.pem",
    "mykafka-myproject.aivencloud.com:12691 service.cert",
    "mycluster-kafka-bootstrap:9093 tls.crt",
    f"{HEROKU}:9096 PEM",
    "seed-12345.mycluster.fmc.prd.cloud.redpanda.com:9092 SCRAM-SHA-256",
    "db-kafka-fra1-12345-do-user-1-0.db.ondigitalocean.com:25073 SCRAM-SHA-256",
}
"""What `way_of` says of the producers of the page; those of Kerberos have tests of their own."""
MANY = 4_000  # records of 1 KB: more than one request of Event Hubs takes


def way_of(producer: Producer, made: str) -> str:
    config = producer.config
    how = config.sasl_mechanism
    if config.sasl_token_provider is not None:
        how = type(config.sasl_token_provider).__name__
    elif how is None:
        how = "PEM" if config.ssl_keystore_location is None else Path(config.ssl_keystore_location).name
    hints = {
        "from_properties_file": " from a file",
        "proxy_url=": " through a proxy",
        "address_map": " through a port forward",
        "=password,": " by a function",
    }
    return f"{config.bootstrap_servers[0]} {how}{next((hint for part, hint in hints.items() if part in made), '')}"


def write_stores(authority: CertificateAuthority, client: Certificate, folder: Path) -> None:
    for name in ("ca.pem", "ca.crt", "ca-certificate.crt"):
        (folder / name).write_text(authority.certificate, "ascii")
    for name in ("tls", "service"):
        (folder / f"{name}.key").write_text(client.key, "ascii")
    (folder / "tls.crt").write_text(client.chain, "ascii")
    (folder / "service.cert").write_text(client.chain, "ascii")
    (folder / "client.pem").write_text(client.pem, "ascii")
    (folder / "client.p12").write_bytes(pkcs12_of(client))
    (folder / "trust.jks").write_bytes(jks_of(authority.certificate))
    (folder / "key.json").write_bytes(GOOGLE_KEY)


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
        for each in code_blocks(PAGE):
            self._code = each.code
            for text, other in self._replaced.items():
                self._code = self._code.replace(text, other)
            lines = "\n" * each.above + self._code
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
def system_with_our_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CertificateAuthority:
    authority = CertificateAuthority("a public CA")
    client = authority.issue(common_name="client", usage=("client",))
    write_stores(authority, client, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    for name in ("KAFKA_PASSWORD", "STORE_PASSWORD", "KAFKA_PROXY", "AWS_SECRET_ACCESS_KEY", "CLIENT_SECRET"):
        monkeypatch.setenv(name, PASSWORD)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", "billing@example.com")
    monkeypatch.setenv("KAFKA_URL", f"kafka+ssl://{HEROKU}:9096")
    monkeypatch.setenv("KAFKA_TRUSTED_CERT", authority.certificate)
    monkeypatch.setenv("KAFKA_CLIENT_CERT", client.chain)
    monkeypatch.setenv("KAFKA_CLIENT_CERT_KEY", client.key)
    monkeypatch.syspath_prepend(CLOUDS)
    return authority


class Scene:
    """The stand-ins, and what else the page names."""

    def __init__(self) -> None:
        self.clusters: dict[str, FakeCluster] = {}
        self.places: dict[str, str] = {}
        self.proxy: WorkingProxy
        self.endpoint: Endpoint
        self.producers: dict[str, Producer] = {}

    async def start(self, running: contextlib.AsyncExitStack, authority: CertificateAuthority) -> None:
        for service in SERVICES:
            self.clusters[service] = await running.enter_async_context(stand_in(service, authority))
        for place, (service, listener) in PLACES.items():
            self.places[place] = self.clusters[service].secured_servers(listener)
        self.endpoint = running.enter_context(token_endpoint())
        self.endpoint.answer = granted(access_token=PAGE_TOKEN)
        ports = {place: int(server.rpartition(":")[2]) for place, server in self.places.items()}
        self.proxy = await running.enter_async_context(working_proxy(credentials="u:canary-p", places=ports))

    async def run_page(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KAFKA_PROXY", f"socks5h://u:canary-p@127.0.0.1:{self.proxy.port}")
        replaced = {
            "https://idp.example.com/oauth2/token": self.endpoint.url,
            "localhost:19093": self.places["kafka-1:9093"],
            "header.payload.signature": PAGE_TOKEN,
            'return "..."': f'return "{PASSWORD}"',
            "/etc/kafka/certs": str(folder),
        }
        aio = importlib.import_module("azure.identity.aio")
        monkeypatch.setattr(aio.DefaultAzureCredential, "given", PAGE_TOKEN)
        page = Page(self.places, replaced)
        monkeypatch.setattr(aioproducer, "Producer", page.make)
        await page.run()
        made = {way_of(producer, code): producer for producer, code in page.made}
        assert len(made) == len(page.made)
        self.producers = {way: producer for way, producer in made.items() if " GSSAPI" not in way}

    def values(self) -> list[bytes | None]:
        return [record.value for cluster in self.clusters.values() for record in cluster.consumed("orders")]


@pytest.fixture
async def scene(
    system_with_our_ca: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as running:
        found = Scene()
        await found.start(running, system_with_our_ca)
        await found.run_page(tmp_path, monkeypatch)
        yield found


@pytest.mark.slow
async def test_every_block_connects_and_sends(scene: Scene) -> None:
    for way, producer in scene.producers.items():
        async with producer:
            await producer.send_and_wait("orders", way.encode())

    assert set(scene.producers) == WAYS
    assert sorted(map(str, scene.values())) == sorted(str(way.encode()) for way in WAYS)
    assert scene.proxy.asked[0] == "kafka-1:9093"
    assert len(scene.endpoint.heard) == 2


@pytest.mark.slow
@pytest.mark.parametrize("way", ["PLAIN", "AzureTokens"])
async def test_blocks_of_event_hubs_keep_to_its_limits(scene: Scene, way: str) -> None:
    """Each connection on which a larger request came would have been closed."""
    async with scene.producers[f"{EVENT_HUBS}:9093 {way}"] as producer:
        for number in range(MANY):
            await producer.enqueue("orders", bytes(1_000), partition=number % 12)
        await producer.flush()
        counted = producer.statistics()

    config = producer.config
    assert (counted.records_acknowledged, counted.records_retried) == (MANY, 0)
    assert config.max_request_size < EVENT_HUBS_BYTES
    assert max(config.connections_max_idle_ms, config.metadata_max_age_ms) < 240_000
    assert config.request_timeout_ms > 20_000


@pytest.mark.slow
async def test_stand_in_of_event_hubs_refuses_larger_requests(scene: Scene) -> None:
    config = scene.producers[f"{EVENT_HUBS}:9093 PLAIN"].config.replace(
        max_request_size=2_000_000, linger_ms=0, delivery_timeout_ms=8_000, request_timeout_ms=1_000
    )
    async with Producer(config) as producer:
        await producer.send("orders", bytes(EVENT_HUBS_BYTES - 1_000))
        with pytest.raises(DeliveryTimeoutError) as caught:
            await producer.send("orders", bytes(EVENT_HUBS_BYTES + 1))

    assert "times in a row" in str(caught.value)
    assert "set max_request_size below" in str(caught.value)
    assert "SASL" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "way, provider",
    [
        (f"{CONFLUENT}:9092 ClientCredentials", "without extensions"),
        (f"{GOOGLE}:9092 GoogleTokens", "bare access token"),
        (f"{MSK}:9098 MskIam", "of another region"),
    ],
)
async def test_stand_in_refuses_other_tokens(scene: Scene, way: str, provider: str) -> None:
    other = {
        "without extensions": ClientCredentials(scene.endpoint.url, client_id="billing", client_secret=PASSWORD),
        "bare access token": Bare("ya29.canary-token"),
        "of another region": MskIam("us-east-1"),
    }[provider]
    producer = Producer(scene.producers[way].config.replace(sasl_token_provider=other))
    with pytest.raises(TokenError, match="the broker refused the token"):
        await producer.start()
    await producer.close()


class Bare:
    def __init__(self, value: str) -> None:
        self._value = value

    async def token(self) -> Token:
        return Token(value=self._value, expires_at=4_000_000_000)


@pytest.mark.slow
async def test_google_takes_the_credentials_of_a_user(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `gcloud auth application-default login` have no `service_account_email`."""
    auth = importlib.import_module("google.auth")
    provider = scene.producers[f"{GOOGLE}:9092 GoogleTokens"].config.sasl_token_provider
    monkeypatch.setattr(auth, "found", auth.Credentials())
    users = type(provider)()  # type: ignore[misc]  # of the page
    producer = scene.producers[f"{GOOGLE}:9092 GoogleTokens"]
    async with Producer(producer.config.replace(sasl_token_provider=users)) as of_user:
        await of_user.send_and_wait("orders", b"of a user")

    seen = scene.clusters[GOOGLE].authentications
    assert {each.user for each in seen} == {"billing@example.com"}
