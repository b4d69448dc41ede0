"""Peers that stop, drip, close or damage at any byte of the TLS handshake and of the SASL exchange, in virtual time."""

import asyncio
import enum
import ssl
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import KafkaError, Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing import ClusterSecurity, FakeCluster, unsecured_token
from tests.fakes.memory_transport import MemoryTransport
from tests.fakes.virtual_cluster import ClusterLoop

SECURITY = ClusterSecurity()
SETUP_S = 2.0
WAYS = [
    ("SSL", ""),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "OAUTHBEARER"),
]
LAST_BYTE = 3000  # behind the end of each handshake


class Tokens:
    async def token(self) -> str:
        return unsecured_token("alice")


class Kind(enum.Enum):
    STOPS = "stops"
    DRIPS = "drips"
    CLOSES = "closes"
    DAMAGES = "damages"


class Spoiled:
    """What the client hears of one connection: everything up to a byte, then something else."""

    def __init__(self, ours: MemoryTransport, kind: Kind, at: int) -> None:
        self._ours = ours
        self._feed = ours.feed
        self._kind = kind
        self._left = at
        self._late = bytearray()
        self.opened_at = ours.loop.time()
        self.closed_at: float | None = None
        close = ours.close

        def closing() -> None:
            if self.closed_at is None:
                self.closed_at = ours.loop.time()
            close()

        ours.feed = self.feed  # type: ignore[method-assign]
        ours.close = closing  # type: ignore[method-assign]

    def feed(self, data: bytes) -> None:
        before, behind = data[: self._left], data[self._left :]
        self._left -= len(before)
        if before:
            self._feed(before)
        if not behind:
            return
        match self._kind:
            case Kind.CLOSES:
                self._ours.feed_end()
            case Kind.DAMAGES:
                self._feed(bytes((behind[0] ^ 0x55,)) + behind[1:])
                self._left = 1 << 30
            case Kind.DRIPS:
                self._late += behind
                if len(self._late) == len(behind):
                    self._drip()
            case Kind.STOPS:
                pass

    def _drip(self) -> None:
        if self._late and not self._ours.is_closing():
            self._feed(bytes(self._late[:1]))
            del self._late[0]
            self._ours.loop.call_later(0.2, self._drip)


class SpoilingLoop(ClusterLoop):
    """Spoils the first connections."""

    def __init__(self, kind: Kind, at: int, connections: int) -> None:
        super().__init__()
        self.spoiled: list[Spoiled] = []
        self._kind, self._at, self._more = kind, at, connections

    async def create_connection(  # type: ignore[override]  # as in the base class
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[MemoryTransport, asyncio.Protocol]:
        made, protocol = await super().create_connection(factory, host, port)
        if self._more:
            self._more -= 1
            self.spoiled.append(Spoiled(made, self._kind, self._at))
        return made, protocol


def producer_of(cluster: FakeCluster, way: tuple[str, str]) -> Producer:
    options = cluster.client_options(*way)
    if way[1] == "OAUTHBEARER":
        options["sasl_token_provider"] = Tokens()
    if options.pop("ssl_truststore_location", None):  # files are read in threads, which virtual time does not await
        options["ssl_context"] = ssl.create_default_context(cadata=SECURITY.authority.certificate)
    setup_ms = round(SETUP_S * 1000)
    limits = {"socket_connection_setup_timeout_ms": setup_ms, "socket_connection_setup_timeout_max_ms": setup_ms}
    options |= limits | {"request_timeout_ms": setup_ms, "max_block_ms": 60_000}
    return Producer(cast("str", options.pop("bootstrap_servers")), **cast("ProducerOptions", options))


async def spoiled_then_fine(way: tuple[str, str]) -> KafkaError | None:
    """Returns why the first start failed; the second one finds a peer that is fine."""
    failure = None
    async with FakeCluster(1, topics={"orders": 1}, security=SECURITY) as cluster:
        try:
            async with producer_of(cluster, way) as producer:
                await producer.send_and_wait("orders", b"x")
        except KafkaError as error:
            failure = error
            async with producer_of(cluster, way) as producer:
                await producer.send_and_wait("orders", b"x")
        assert [record.value for record in cluster.records("orders", 0)] == [b"x"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return failure


def run(way: tuple[str, str], kind: Kind, at: int, *, connections: int = 2) -> tuple[SpoilingLoop, KafkaError | None]:
    loop = SpoilingLoop(kind, at, connections)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        failure = runner.run(spoiled_then_fine(way))
    return loop, failure


def check_lives(loop: SpoilingLoop) -> None:
    lives = [each.closed_at - each.opened_at for each in loop.spoiled if each.closed_at is not None]
    assert len(lives) == len(loop.spoiled)
    assert max(lives) <= SETUP_S + 0.2


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@settings(max_examples=6, deadline=None)
@given(kind=st.sampled_from([Kind.STOPS, Kind.DRIPS, Kind.CLOSES]), at=st.integers(0, LAST_BYTE))
def test_peer_that_stops_at_any_byte_costs_the_setup_timeout(way: tuple[str, str], kind: Kind, at: int) -> None:
    loop, failure = run(way, kind, at)
    assert failure is None  # the third connection is fine, within max_block_ms
    if kind is Kind.STOPS and at < LAST_BYTE // 6:
        check_lives(loop)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@settings(max_examples=8, deadline=None)
@given(at=st.integers(0, LAST_BYTE))
def test_damaged_handshake_is_an_error_or_another_attempt(way: tuple[str, str], at: int) -> None:
    _, failure = run(way, Kind.DAMAGES, at, connections=1)
    assert failure is None or str(failure)
