"""One scenario: producers under load on a secured broker while its security changes, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from aioproducer import Producer
from aioproducer.metrics import ProducerStatistics
from tests.programs.rotation.loads import MOST_A_SECOND, Found, Load, read_back
from tests.programs.rotation.ways import FIRST, SECOND, Way, moving_loop

if TYPE_CHECKING:
    from aioproducer.config.producer_options import ProducerOptions
    from aioproducer.testing.kafka import KafkaCluster
    from tests.programs.rotation.endpoint import TokenEndpoint

PLAIN_PRODUCERS: Final = 3
MEASURE_S: Final = 2.0
AFTER_S: Final = 2.0  # of load, behind the last change
_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much of a scenario is played."""

    reauthentications: int = 100
    times: int = 3  # that something changes
    gap_s: float = 3.5  # between the steps of a change: a session ends meanwhile


@dataclass(slots=True, kw_only=True)
class Result:
    """One row of the table."""

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
    """What a scenario changes.

    Args:
        kafka: with sessions of three seconds.
        listener: of the producers.
        options: of the producers, without the servers.
        extent: of the scenario.
    """

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
