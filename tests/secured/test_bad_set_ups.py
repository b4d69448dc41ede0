"""Wrong set-ups, bad certificates and broken networks: which error names them, on embedded and real brokers."""

import asyncio
import datetime as dt
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from aioproducer import (
    AuthenticationError,
    CredentialsError,
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    TlsRefusedError,
    TlsVerificationError,
    TokenError,
    UnsupportedMechanismError,
    WrongListenerError,
)
from aioproducer.testing import Certificate, CertificateAuthority, ClusterSecurity, FakeCluster, unsecured_token
from aioproducer.testing.kafka import KafkaCluster
from tests.fakes.proxies import hostile_proxy, working_proxy
from tests.kafka_releases import marks_of
from tests.secured.ways import SECURITY, VERSIONS, Options, Place, deliver, places, producer_of

Wrong: TypeAlias = Callable[[Place, Path], Options]
HOUR = dt.timedelta(hours=1)
OTHER = CertificateAuthority("another authority")


class HangingProvider:
    """Provider that never returns a token."""

    async def token(self) -> str:
        await asyncio.Event().wait()
        return ""


class Provider:
    """Provider of one token."""

    def __init__(self, value: object) -> None:
        self._value = value

    async def token(self) -> object:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class Case(NamedTuple):
    wrong: Wrong
    error: type[KafkaError]
    words: tuple[str, ...]
    right: tuple[str, str] = ("SASL_SSL", "SCRAM-SHA-256")
    may_pass: bool = False
    """What this side could not fetch now is tried until `max_block_ms`; what is refused ends the start at once."""

    @property
    def max_block_ms(self) -> int:
        return 2_000 if self.may_pass else 30_000

    def error_of(self, caught: KafkaError) -> KafkaError | None:
        return caught.last_broker_error if self.may_pass else caught


def login(**changes: object) -> Wrong:
    return lambda place, _: place.client_options("SASL_SSL", "SCRAM-SHA-256") | changes


def at_listener(listener: str, way: tuple[str, str]) -> Wrong:
    """Options of one listener at the address of another."""
    return lambda place, _: place.client_options(*way) | {"bootstrap_servers": place.secured_servers(listener)}


def with_token(value: object, listener: str = "SASL_SSL") -> Wrong:
    return lambda place, _: place.client_options(listener, "OAUTHBEARER") | {"sasl_token_provider": Provider(value)}


def with_file(option: str, text: Callable[[], str], listener: str = "SSL", **others: object) -> Wrong:
    def options(place: Place, folder: Path) -> Options:
        path = folder / "store.pem"
        path.write_text(text(), "ascii")
        return place.client_options(listener) | {option: str(path)} | others

    return options


def at_name(host: str) -> Wrong:
    """Options that lead to the broker under a name, or address, that its certificate does not have."""

    def options(place: Place, _: Path) -> Options:
        right = place.client_options("SSL")
        server = str(right["bootstrap_servers"]).partition(",")[0]
        other = f"{host}:{server.rpartition(':')[2]}"
        return right | {"bootstrap_servers": other, "address_map": {other: server}}

    return options


def without_tokens(place: Place, _: Path) -> Options:
    times = {"sasl_login_connect_timeout_ms": 100, "sasl_login_read_timeout_ms": 100}
    return place.client_options("SASL_SSL", "OAUTHBEARER") | {"sasl_token_provider": HangingProvider()} | times


def client_certificate(authority: CertificateAuthority = SECURITY.authority, *, is_expired: bool = False) -> str:
    ends = -HOUR if is_expired else HOUR
    return authority.issue(usage=("client",), begins=-2 * HOUR, ends=ends).pem


def without_client_certificate(place: Place, _: Path) -> Options:
    options = place.client_options("MTLS")
    del options["ssl_keystore_location"]
    return options


TLS = ("SSL", "")
SCRAM = ("SASL_SSL", "SCRAM-SHA-256")
CASES: Mapping[str, Case] = {
    "34 wrong password": Case(login(sasl_password="canary-wrong"), CredentialsError, ("sasl_password", "'alice'")),
    "35 unknown user": Case(login(sasl_username="zoe"), CredentialsError, ("sasl_username", "'zoe'")),
    "36 mechanism": Case(
        lambda place, _: {**place.client_options("SIGNED", "PLAIN")},
        UnsupportedMechanismError,
        ("PLAIN", "OAUTHBEARER", "sasl_mechanism"),
    ),
    "37 plaintext to TLS": Case(
        at_listener("SSL", ("PLAINTEXT", "")), TlsRefusedError, ("set security_protocol to 'SSL'",), TLS
    ),
    "38 TLS to plaintext": Case(at_listener("PLAINTEXT", TLS), TlsRefusedError, ("without TLS",), TLS),
    "38 TLS to SASL": Case(at_listener("SASL_PLAINTEXT", SCRAM), TlsRefusedError, ("without TLS",)),
    "39 no SASL to SASL": Case(
        at_listener("SASL_PLAINTEXT", ("PLAINTEXT", "")), WrongListenerError, ("security_protocol",)
    ),
    "40 SASL to none": Case(
        at_listener("PLAINTEXT", ("SASL_PLAINTEXT", "SCRAM-SHA-256")), WrongListenerError, ("wants no authentication",)
    ),
    "41 wrong CA": Case(
        with_file("ssl_truststore_location", lambda: OTHER.certificate),
        TlsVerificationError,
        ("ssl_truststore_location",),
        TLS,
    ),
    "42 another name": Case(
        at_name("kafka.example"),
        TlsVerificationError,
        ("is not for 'kafka.example'; it is for localhost, 127.0.0.1", "advertised.listeners"),
        TLS,
    ),
    "43 another address": Case(
        at_name("127.0.0.2"), TlsVerificationError, ("is not for '127.0.0.2'; it is for localhost",), TLS
    ),
    "45 no client certificate": Case(
        without_client_certificate, TlsRefusedError, ("give ssl_keystore_location",), ("MTLS", "")
    ),
    "45 expired": Case(
        with_file("ssl_keystore_location", lambda: client_certificate(is_expired=True), "MTLS"),
        TlsRefusedError,
        ("our certificate", "ssl_keystore_location"),
        ("MTLS", ""),
    ),
    "45 another CA": Case(
        with_file("ssl_keystore_location", lambda: client_certificate(OTHER), "MTLS"),
        TlsRefusedError,
        ("it does not accept our certificate", "ssl_keystore_location"),
        ("MTLS", ""),
    ),
    "47 expired token": Case(
        with_token(unsecured_token("alice", lifetime_s=60, issued_ago_s=7200)), TokenError, ("exp",), may_pass=True
    ),
    "47 another audience": Case(
        with_token(SECURITY.signer.token("alice", audience="other"), "SIGNED"), TokenError, ("aud", "other")
    ),
    "47 line break": Case(with_token(unsecured_token("alice") + "\n"), TokenError, ("character",)),
    "47 not text": Case(with_token(7), TokenError, ("sasl_token_provider", "int")),
    "48 raises": Case(
        with_token(RuntimeError("canary-token")), TokenError, ("sasl_token_provider", "RuntimeError"), may_pass=True
    ),
    "48 says why": Case(
        with_token(TokenError("the vault is sealed")), TokenError, ("the vault is sealed",), may_pass=True
    ),
    "48 hangs": Case(
        without_tokens, TokenError, ("sasl_token_provider has not returned a token within 0.2 s",), may_pass=True
    ),
    "48 nothing": Case(with_token(None), TokenError, ("sasl_token_provider", "None")),
}
"""By the row of the table of bad set-ups; those of certificates of brokers, and of networks, follow below."""


@pytest.mark.slow
@pytest.mark.parametrize("place", places(nightly=["3.9.1"]), indirect=True)
@pytest.mark.parametrize("name", CASES)
async def test_wrong_set_up_is_the_error_of_start(place: Place, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    producer = producer_of(case.wrong(place, tmp_path), max_block_ms=case.max_block_ms)
    with pytest.raises(MetadataTimeoutError if case.may_pass else case.error) as caught:
        await producer.start()
    await producer.close()

    text = str(caught.value)
    assert isinstance(case.error_of(caught.value), case.error)
    assert [word for word in case.words if word not in text] == [], text
    assert "alice-secret" not in text
    await deliver(place.client_options(*case.right))


AUTHORITY = CertificateAuthority("of bad certificates")
BAD: dict[str, tuple[Callable[[], Certificate], str]] = {
    "expired": (lambda: AUTHORITY.issue(begins=-2 * HOUR, ends=-HOUR), "has expired: the cluster needs a new one"),
    "not valid yet": (lambda: AUTHORITY.issue(begins=HOUR, ends=2 * HOUR), "is not valid yet: look at its notBefore"),
    "for clients": (lambda: AUTHORITY.issue(usage=("client",)), "the cluster needs one with serverAuth"),
}
"""What is wrong with a broker's certificate, how it is made, and what the error says."""
KINDS = [
    "fake",
    *(pytest.param(version, marks=[pytest.mark.kafka, *marks_of(version, ["3.9.1"])]) for version in VERSIONS),
]


def cluster_of(kind: str, certificate: Certificate) -> Place:
    """Return a cluster with a certificate of its own, which speaks an old version of TLS alone."""
    asked = ClusterSecurity(
        authority=AUTHORITY, broker_certificate=certificate, tls_versions=("TLSv1.2",), listeners=("SSL",)
    )
    return FakeCluster(1, security=asked) if kind == "fake" else KafkaCluster(kind, security=asked)


async def failure_at_start(options: Options) -> KafkaError:
    producer = producer_of(options, max_block_ms=30_000)
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    await producer.close()
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", KINDS)
async def test_bad_certificate_is_named_and_a_right_one_works(kind: str, name: str) -> None:
    make, words = BAD[name]
    async with cluster_of(kind, make()) as place:
        error = await failure_at_start(place.client_options("SSL"))
        if isinstance(place, FakeCluster):  # running brokers of Kafka refuse a certificate after such a one
            place.change_certificate(AUTHORITY.issue())
            await deliver(place.client_options("SSL"))
        await deliver({"bootstrap_servers": place.bootstrap_servers})

    assert isinstance(error, TlsVerificationError)
    assert words in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_version_that_brokers_do_not_speak_names_the_option(kind: str) -> None:
    """That of TLS 1.1, which Java does not speak any more, has the same alert."""
    async with cluster_of(kind, AUTHORITY.issue()) as place:
        options = place.client_options("SSL")
        error = await failure_at_start(options | {"ssl_enabled_protocols": "TLSv1.3"})
        await deliver(options)

    assert isinstance(error, TlsRefusedError)
    assert "see ssl_enabled_protocols" in str(error)


@pytest.mark.slow
async def test_records_end_with_the_refusal_of_a_revoked_certificate() -> None:
    async with FakeCluster(1, topics={"orders": 1}, security=ClusterSecurity()) as cluster:
        options = cluster.client_options("MTLS")
        times = {"request_timeout_ms": 500, "delivery_timeout_ms": 1_000, "connections_max_idle_ms": 100}
        async with producer_of(options, **times) as producer:
            await producer.send_and_wait("orders", b"first")
            cluster.change_certificate(trusted=AUTHORITY.certificate)
            await asyncio.sleep(0.5)  # until the connection is closed as idle
            with pytest.raises(DeliveryTimeoutError) as late:
                await producer.send_and_wait("orders", b"late")
            cluster.change_certificate(trusted=cluster.security.authority.certificate)
            await asyncio.sleep(3)  # the pause after refusals
            await producer.send_and_wait("orders", b"accepted")

    assert isinstance(late.value.last_broker_error, TlsRefusedError)
    assert "ssl_keystore_location" in str(late.value.last_broker_error)


WAY = ("SASL_SSL", "SCRAM-SHA-256")
PROXIES: dict[str, tuple[Sequence[bytes], str]] = {
    "refuses": ([b"HTTP/1.1 403 Forbidden\r\n\r\n"], "it refuses: 403 Forbidden"),
    "is none": ([b"SSH-2.0-OpenSSH_9.9\r\n"], "it is no HTTP proxy: it answers SSH-2.0"),
    "closes half way": ([b"HTTP/1.1 200 Conn"], "it closed the connection in the middle of its answer"),
}
"""What a proxy answers, and what the error says."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROXIES)
async def test_proxy_that_does_not_work_is_named(place: Place, kind: str) -> None:
    answers, words = PROXIES[kind]
    options = place.client_options(*WAY)
    async with hostile_proxy(answers) as port:
        producer = producer_of(options, proxy_url=f"http://127.0.0.1:{port}", max_block_ms=500)
        with pytest.raises(KafkaError) as caught:
            await producer.start()
        await producer.close()

    assert f"through the proxy http://127.0.0.1:{port}" in str(caught.value)
    assert words in str(caught.value)
    await deliver(options)


@pytest.mark.slow
async def test_proxy_that_wants_a_password_is_named_and_works_with_it(place: Place) -> None:
    options = place.client_options(*WAY)
    async with working_proxy(credentials="u:canary-proxy") as proxy:
        producer = producer_of(options, proxy_url=f"socks5h://127.0.0.1:{proxy.port}", max_block_ms=30_000)
        with pytest.raises(AuthenticationError, match="it wants a user and a password"):
            await producer.start()
        await producer.close()
        await deliver(options | {"proxy_url": f"socks5h://u:canary-proxy@127.0.0.1:{proxy.port}"})


@pytest.mark.slow
async def test_advertised_name_without_an_address_is_named(place: Place) -> None:
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def getaddrinfo(host: str, *rest: Any, **more: Any) -> Any:
        if host == "localhost":  # as the cluster advertises it
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return await resolve(host, *rest, **more)

    options = place.client_options(*WAY)
    servers = str(options["bootstrap_servers"]).replace("localhost", "127.0.0.1")
    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # as an application would
    times = {"request_timeout_ms": 500, "delivery_timeout_ms": 1_000}
    async with producer_of(options | {"bootstrap_servers": servers}, **times) as producer:
        with pytest.raises(DeliveryTimeoutError) as late:
            await producer.send_and_wait("right", b"x")
    loop.getaddrinfo = resolve  # type: ignore[method-assign]
    text = str(late.value)

    assert "as the cluster advertises it, cannot be resolved here: Name or service not known" in text
    assert "advertised.listeners" in text
    await deliver(options)
