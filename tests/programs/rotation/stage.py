"""One scenario: producers under load on a secured broker while its security changes, and what came of it.

client ── "localhost" is now 127.0.0.2 ──► Way on 127.0.0.2, the broker's port ──► broker on 127.0.0.1
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, pairwise
from typing import TYPE_CHECKING, Final, Self, cast

import confluent_kafka

from aioproducer import Delivery, Producer, Transaction
from aioproducer.metrics import ProducerStatistics
from aioproducer.testing.tokens import unsecured_token
from tests.programs.chaos.proxy import Link

if TYPE_CHECKING:
    from aioproducer.config.producer_options import ProducerOptions
    from aioproducer.testing.kafka import KafkaCluster

PLAIN_PRODUCERS: Final = 3
MEASURE_S: Final = 2.0
AFTER_S: Final = 2.0  # of load, behind the last change
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    reauthentications: int = 100
    times: int = 3  # that something changes
    gap_s: float = 3.5  # between the steps of a change: a session ends meanwhile


@dataclass(slots=True)
class Found:
    records: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0

    def add(self, other: Found) -> None:
        self.records += other.records
        self.lost += other.lost
        self.doubled += other.doubled
        self.out_of_order += other.out_of_order


@dataclass(slots=True, kw_only=True)
class Result:
    scenario: str
    kafka: str
    rate: float = 0.0
    found: Found = field(default_factory=Found)
    transactions: int = 0
    reauthentications: int = 0
    connections: int = 0  # made while the loads ran
    refused: int = 0
    retried: int = 0
    longest_s: float = 0.0
    seconds: float = 0.0
    error: str = ""

    @property
    def is_good(self) -> bool:
        found = self.found
        return not (self.error or found.lost or found.doubled or found.out_of_order or not found.records)

    def row(self) -> str:
        found = self.found
        parts = (
            f"{self.kafka:6} {self.scenario:23} {found.records:8,} records at {self.rate:6,.0f}/s",
            f"{self.transactions:4} transactions",
            f"lost {found.lost} doubled {found.doubled} out of order {found.out_of_order}",
            f"authenticated again {self.reauthentications:4}",
            f"connections {self.connections:3}",
            f"refused {self.refused:3}",
            f"records retried {self.retried:5}",
            f"longest {self.longest_s:6.3f} s",
            f"{self.seconds:5.1f} s",
            *(() if self.is_good else (f"FAILED {self.error}",)),
        )
        return " | ".join(parts)


class Stage:
    """What a scenario changes: a broker with sessions of three seconds, and options of producers, without servers."""

    def __init__(self, kafka: KafkaCluster, listener: str, options: dict[str, object], *, extent: Extent) -> None:
        self.kafka = kafka
        self.options = options
        port = kafka.node(1).ports.secured[listener]
        self.ways = {address: Way(address, port) for address in (FIRST, SECOND)}
        self.password = str(options.get("sasl_password", ""))
        self.extent = extent
        self.endpoint: TokenEndpoint | None = None
        self._servers = kafka.secured_servers(listener)
        self._loads: list[Load] = []

    @property
    def way(self) -> Way:
        """The one that connections take now."""
        return self.ways[moving_loop().address]

    @property
    def reauthentications(self) -> int:
        return sum(load.producer.statistics().reauthentications for load in self._loads)

    async def run(self, act: Callable[[Stage], Awaitable[None]], result: Result) -> None:
        """Let the loads go on while `act` changes things; fill the result in."""
        moving_loop().address = FIRST
        began = time.monotonic()
        for way in self.ways.values():
            await way.open()
        try:
            async with self._producers(result.scenario):
                await self._under_load(act, result)
            result.found = Found()
            for load in self._loads:
                result.found.add(await asyncio.to_thread(read_back, self.kafka.bootstrap_servers, load))
        except Exception as error:  # noqa: BLE001  # the row says it, and the next scenario runs
            result.error = repr(error.exceptions if isinstance(error, ExceptionGroup) else error)
        finally:
            for way in self.ways.values():
                await way.close()
        result.seconds = time.monotonic() - began

    @contextlib.asynccontextmanager
    async def _producers(self, name: str) -> AsyncIterator[None]:
        """Make producers, each with a topic: the last one is transactional."""
        async with contextlib.AsyncExitStack() as stack:
            for number in range(PLAIN_PRODUCERS + 1):
                topic = f"{name.replace(' ', '-').replace(',', '')}-{next(_numbers)}"
                transactional = {"transactional_id": topic} if number == PLAIN_PRODUCERS else {}
                options = {"bootstrap_servers": self._servers, "linger_ms": 5} | self.options | transactional
                producer = Producer(**cast("ProducerOptions", options))  # type: ignore[call-arg]
                await stack.enter_async_context(producer)
                await producer.partitions_for(topic)  # makes it
                self._loads.append(Load(producer, topic))
            yield

    async def _under_load(self, act: Callable[[Stage], Awaitable[None]], result: Result) -> None:
        *plain, transactional = self._loads
        result.rate = min(await plain[0].highest_rate(MEASURE_S) / 2, MOST_A_SECOND)
        before = self._statistics()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for load in plain:
                group.create_task(load.stream(result.rate / len(plain), stop))
            group.create_task(transactional.transact(stop))
            await act(self)
            await asyncio.sleep(AFTER_S)
            stop.set()
        after = self._statistics()
        result.transactions = transactional.transactions
        result.longest_s = max(load.longest_s for load in self._loads)
        result.reauthentications = _sum(after, "reauthentications") - _sum(before, "reauthentications")
        result.connections = _sum(after, "connections_created") - _sum(before, "connections_created")
        result.refused = _sum(after, "authentication_failures") + _sum(after, "reauthentication_failures")
        result.retried = _sum(after, "records_retried")
        failed = _sum(after, "records_failed") + _sum(after, "transactions_aborted")
        if failed:
            result.error = f"{failed} records or transactions have failed"

    def _statistics(self) -> list[ProducerStatistics]:
        return [load.producer.statistics() for load in self._loads]


def _sum(statistics: list[ProducerStatistics], name: str) -> int:
    return sum(getattr(each, name) for each in statistics)


# Producers under load, plain and transactional, and what another client finds in their topics

PARTITIONS: Final = 3
VALUE_BYTES: Final = 100
MOST_A_SECOND: Final = 20_000
"""Records of one plain load: all of them are read back."""

SLICE_S: Final = 0.01
IN_TRANSACTION: Final = 30
SILENCE_S: Final = 30.0


@dataclass(slots=True)
class Load:
    """Numbered records for each partition of a topic; the next number of each is in `given`."""

    producer: Producer
    topic: str
    given: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    longest_s: float = 0.0  # from the call to the acknowledgement, or of one transaction
    transactions: int = 0

    async def highest_rate(self, seconds: float) -> float:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            await self._give(500)
        await self.producer.flush()
        return sum(self.given) / (time.monotonic() - began)

    async def stream(self, rate: float, stop: asyncio.Event) -> None:
        """Give records at a rate; raises what a record ended with."""
        open_: deque[tuple[float, Delivery]] = deque()
        while not stop.is_set():
            now = time.monotonic()
            open_ += [(now, delivery) for delivery in await self._give(int(rate * SLICE_S) + 1)]
            while open_ and open_[0][1].done():
                self._take(*open_.popleft())
            await asyncio.sleep(SLICE_S)
        while open_:
            began, delivery = open_.popleft()
            await delivery
            self._take(began, delivery)

    async def transact(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            began = time.monotonic()
            async with self.producer.transaction() as transaction:
                await self._give(IN_TRANSACTION, transaction)
            self.transactions += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            await asyncio.sleep(SLICE_S)

    def _take(self, began: float, delivery: Delivery) -> None:
        delivery.result()
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    async def _give(self, count: int, transaction: Transaction | None = None) -> list[Delivery]:
        enqueue = self.producer.enqueue if transaction is None else transaction.enqueue
        deliveries = []
        for index in range(count):
            partition = index % PARTITIONS
            value = b"%d." % self.given[partition]
            deliveries.append(await enqueue(self.topic, value.ljust(VALUE_BYTES, b"."), partition=partition))
            self.given[partition] += 1
        return deliveries


def read_back(bootstrap: str, load: Load) -> Found:
    """Read the whole topic with another client, and compare it with what was given."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "rotation", "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed", "enable.partition.eof": True})
    found = Found()
    try:
        for partition, given in enumerate(load.given):
            found.add(compared(_numbers_of(consumer, load.topic, partition), given))
    finally:
        consumer.close()
    return found


def _numbers_of(consumer: confluent_kafka.Consumer, topic: str, partition: int) -> list[int]:
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    numbers: list[int] = []
    heard = time.monotonic()
    while time.monotonic() < heard + SILENCE_S:
        for message in consumer.consume(5_000, timeout=0.5):
            heard = time.monotonic()
            error = message.error()
            if error is None:
                numbers.append(int((message.value() or b"").partition(b".")[0]))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001  # so it is called
                return numbers
            else:
                raise RuntimeError(str(error))
    raise RuntimeError(f"nothing more of {topic}-{partition} in {SILENCE_S} s, and it has no end")


def compared(numbers: list[int], given: int) -> Found:
    seen = set(numbers)
    first = list(dict.fromkeys(numbers))
    disorder = sum(after < before for before, after in pairwise(first))
    return Found(len(numbers), len(set(range(given)) - seen), len(numbers) - len(seen), disorder)


# Ways to the broker that can be cut and moved: the name stays, the addresses behind it change

FIRST, SECOND = "127.0.0.2", "127.0.0.3"
NAME = "localhost"  # as the brokers' listeners advertise it


class Way(Link):
    """A proxy on another address of this machine, with the port of the listener behind it."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(port, port, f"{address}:{port}")
        self.address = address

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, self.address, self.port)

    async def cut(self) -> None:
        """Refuse new connections, and reset those that are open."""
        await self.refuse()
        self.reset_all()


class MovingLoop(asyncio.SelectorEventLoop):
    """An event loop with a resolver of its own, for the one name that moves."""

    address = FIRST

    async def getaddrinfo(  # type: ignore[override]  # as much of it as is used
        self, host: str, port: int, **options: int
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        address = self.address if host == NAME else host
        found = await super().getaddrinfo(address, port, **options)
        return [(*entry[:4], (str(entry[4][0]), port)) for entry in found if entry[0] == socket.AF_INET]


def moving_loop() -> MovingLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MovingLoop)
    return loop


# A token endpoint on this machine that is down for half of each token's life

LIFETIME_S: Final = 6.0
DOWN: Final = 503


class TokenEndpoint:
    """Serves the grant `client_credentials`; `with` starts and stops it."""

    def __init__(self, subject: str) -> None:
        self.tokens = self.failures = 0
        self._began: float | None = None
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if endpoint.is_down:
                    endpoint.failures += 1
                    self.send_error(DOWN)
                    return
                endpoint.tokens += 1
                token = unsecured_token(subject, lifetime_s=LIFETIME_S)
                body = json.dumps({"access_token": token, "expires_in": LIFETIME_S, "token_type": "Bearer"}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # of the base class
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def begin(self) -> None:
        """Be down for half of the time from now on."""
        self._began = time.monotonic()

    @property
    def is_down(self) -> bool:
        return self._began is not None and (time.monotonic() - self._began) % LIFETIME_S > LIFETIME_S / 2

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
