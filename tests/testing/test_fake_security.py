"""The security of the embedded cluster: what tests do to it, the faults of each step, and its side of TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioproducer.testing import ApiKey, CertificateAuthority, ClusterSecurity, FakeCluster, Where, unsecured_token
from aioproducer.testing.tls_server import TlsServerProtocol
from tests.secured.raw_client import Authenticated, Handshaken, RawClient, ScramClient, bearer, plain

SECURITY = ClusterSecurity(session_lifetime_ms=60_000, failed_authentication_delay_ms=1)
ALICE = plain("alice", "alice-secret")
OPENED: list[RawClient] = []
ANYWHERE = Where()


@pytest.fixture
async def secured() -> AsyncIterator[FakeCluster]:
    OPENED.clear()
    async with FakeCluster(1, security=SECURITY) as cluster:
        yield cluster
    for client in OPENED:
        client.abort()
    await asyncio.sleep(0)


async def connect(cluster: FakeCluster, listener: str = "SASL_PLAINTEXT") -> RawClient:
    host, _, port = cluster.secured_servers(listener).rpartition(":")
    context = None
    if listener.endswith(("SSL", "TLS", "SIGNED")):
        context = ssl.create_default_context(cadata=SECURITY.authority.certificate)
    OPENED.append(await RawClient.connect(host, int(port), context))
    return OPENED[-1]


async def login(client: RawClient, token: bytes = ALICE, mechanism: str = "PLAIN") -> Authenticated:
    await client.handshake(mechanism)
    answer = await client.authenticate(token)
    assert answer is not None
    return answer


async def test_changed_password_counts_next_time_and_sessions_go_on(secured: FakeCluster) -> None:
    client = await connect(secured)
    await login(client)
    secured.change_password("alice", "new")

    assert await client.metadata()
    refused, accepted = await login(await connect(secured)), await login(await connect(secured), plain("alice", "new"))
    assert (refused.error, accepted.error) == (58, 0)


async def test_changed_password_is_that_of_scram_too(secured: FakeCluster) -> None:
    for password in ("alice-secret", "new"):
        scram = ScramClient("SCRAM-SHA-512", "alice", password)
        client = await connect(secured)
        first = await login(client, scram.first, "SCRAM-SHA-512")
        last = await client.authenticate(scram.final(first.token))
        assert last is not None
        assert last.error == 0
        secured.change_password("alice", "new")


async def test_deleted_user_is_unknown(secured: FakeCluster) -> None:
    secured.delete_user("alice")
    assert (await login(await connect(secured))).error == 58


async def test_ended_session_lets_only_a_new_authentication_in(secured: FakeCluster) -> None:
    first, second = await connect(secured), await connect(secured)
    await login(first)
    await login(second)
    secured.end_sessions()

    assert not await first.metadata()
    assert (await login(second)).error == 0
    assert await second.metadata()


async def test_authentications_are_noted_with_their_end(secured: FakeCluster) -> None:
    client = await connect(secured)
    await login(client)
    await login(client)
    await login(await connect(secured), plain("alice", "wrong"))
    await (await connect(secured)).handshake("MD5")

    seen = [(each.mechanism, each.user, each.is_again, each.error_code) for each in secured.authentications]
    assert seen == [
        ("PLAIN", "alice", False, 0),
        ("PLAIN", "alice", True, 0),
        ("PLAIN", "", False, 58),
        ("MD5", "", False, 33),
    ]


async def test_changed_certificate_is_presented_to_new_connections(secured: FakeCluster) -> None:
    before = await connect(secured, "SSL")
    renewed = SECURITY.authority.issue()
    secured.change_certificate(renewed)
    after = await connect(secured, "SSL")

    assert after.peer_certificate == ssl.PEM_cert_to_DER_cert(renewed.chain)
    assert before.peer_certificate != after.peer_certificate
    assert await before.metadata()
    assert secured.names_asked == ["localhost", "localhost"]


async def test_metadata_names_the_port_of_the_listener_that_was_asked(secured: FakeCluster) -> None:
    client = await connect(secured, "SSL")
    client.ask_metadata()
    answer = await client.answer()
    assert answer is not None
    port = int(secured.secured_servers("SSL").rpartition(":")[2])
    assert b"localhost" + port.to_bytes(4, "big") in answer


async def test_brokers_with_security_come_back_on_the_same_ports(secured: FakeCluster) -> None:
    servers = secured.secured_servers("SASL_SSL")
    await secured.kill(1)
    with pytest.raises(OSError, match="Connect call failed"):
        await connect(secured, "SASL_SSL")
    await secured.restart(1)

    assert secured.secured_servers("SASL_SSL") == servers
    assert (await login(await connect(secured, "SASL_SSL"))).error == 0


@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
async def test_faults_of_requests_apply_to_those_of_sasl(secured: FakeCluster, api: ApiKey) -> None:
    secured.faults.drop_connection(Where(api=api))
    dropped = await connect(secured)
    await dropped.handshake("PLAIN")
    assert await dropped.authenticate(ALICE) is None
    secured.faults.garbage(b"\x00\x00\x00\x04\xff\xff\xff\xff", Where(api=ApiKey.SASL_HANDSHAKE))
    client = await connect(secured)
    client.ask_handshake("PLAIN")
    assert await client.numbered_answer() == (-1, b"")


async def test_injected_errors_refuse_an_authentication(secured: FakeCluster) -> None:
    secured.faults.error(33, Where(api=ApiKey.SASL_HANDSHAKE))
    secured.faults.error(58, Where(api=ApiKey.SASL_AUTHENTICATE))

    assert await (await connect(secured)).handshake("PLAIN") == Handshaken(33, tuple(sorted(SECURITY.mechanisms)))
    assert await login(await connect(secured)) == Authenticated(58, None, b"", 0)


async def test_closed_or_garbled_tls_handshake_spares_the_next_one(secured: FakeCluster) -> None:
    secured.faults.close_tls(ANYWHERE)
    secured.faults.garbage_tls(b"HTTP/1.1 400 Bad Request\r\n\r\n", ANYWHERE)
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await connect(secured, "SSL")
    with pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
        await connect(secured, "SSL")
    assert await (await connect(secured, "SSL")).metadata()


async def test_stalled_tls_handshake_waits_until_the_cluster_stops(secured: FakeCluster) -> None:
    fault = secured.faults.stall_tls(ANYWHERE)
    secured.faults.delay_tls(0.01, ANYWHERE)
    stalled = asyncio.create_task(connect(secured, "SSL"))
    while not fault.hits:  # noqa: ASYNC110 - the broker counts as it meets the client
        await asyncio.sleep(0)
    assert await (await connect(secured, "SSL")).metadata()
    assert not stalled.done()
    await secured.stop()
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await stalled


async def test_bearer_token_of_each_kind_is_accepted_by_its_listener(secured: FakeCluster) -> None:
    for listener in ("SASL_SSL", "SIGNED"):
        answer = await login(await connect(secured, listener), bearer(SECURITY.token(listener, "zoe")), "OAUTHBEARER")
        assert answer.error == 0
    refused = await login(await connect(secured, "SIGNED"), bearer(unsecured_token("zoe")), "OAUTHBEARER")
    assert refused.token == b'{"status":"invalid_token"}'


def test_cluster_in_a_thread_has_the_same_verbs() -> None:
    with FakeCluster.in_thread(1, security=SECURITY) as cluster:
        cluster.change_password("alice", "new")
        cluster.delete_user("bob")
        cluster.end_sessions()
        cluster.change_certificate(SECURITY.authority.issue())
        assert cluster.authentications == []
        properties = cluster.client_properties("SASL_SSL", "SCRAM-SHA-256")
        folder = cluster.security_folder
        assert properties["ssl.truststore.location"] == str(folder / "ca.pem")
        assert 'username="alice" password="alice-secret"' in properties["sasl.jaas.config"]
    assert not folder.exists()


async def test_cluster_without_security_says_so() -> None:
    async with FakeCluster(1) as cluster:
        with pytest.raises(RuntimeError, match="without `security`"):
            cluster.client_options("SSL")
        with pytest.raises(LookupError, match="no listener 'SSL'"):
            cluster.secured_servers("SSL")


AUTHORITY = CertificateAuthority()


class Wire(asyncio.Transport):
    """Keeps what the server sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def take(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class Inner(asyncio.BufferedProtocol):
    """Counts how often it is asked for room."""

    def __init__(self) -> None:
        self.asked = 0

    def get_buffer(self, _sizehint: int) -> bytearray:
        self.asked += 1
        assert self.asked < 10, "it is asked without end"
        return bytearray(100)


def test_goodbye_of_a_client_ends_its_connection(tmp_path: Path) -> None:
    """OpenSSL raises nothing at close_notify, but says again and again that there are no bytes."""
    path = tmp_path / "server.pem"
    path.write_text(AUTHORITY.issue().pem, encoding="utf-8")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    wire, inner = Wire(), Inner()
    server = TlsServerProtocol(inner, context, fault=None, ended=lambda _: None)
    server.connection_made(wire)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cadata=AUTHORITY.certificate)
    client = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for end in (client.do_handshake, client.do_handshake, client.unwrap):
        with contextlib.suppress(ssl.SSLWantReadError):
            end()
        server.data_received(outgoing.read())
        incoming.write(wire.take())

    assert wire.is_closed
