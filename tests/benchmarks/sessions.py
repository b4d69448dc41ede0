"""What sessions cost: `python -m tests.benchmarks.sessions`, on real brokers, and on embedded ones for SCRAM's rounds.

    handshakes and authentications of a minute with sessions of ten seconds, three brokers, half of the highest rate
    the longest acknowledgement in the second around an authentication, against all others
    the lag of the loop while 100 connections authenticate with 100,000 iterations

Prints one line of JSON for each; there is nothing to pass or fail.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from functools import partial
from statistics import quantiles
from typing import Final, cast

from aioproducer import Producer, RecordMetadata
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing import FakeCluster
from aioproducer.testing.cluster_security import ClusterSecurity
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.tokens import unsecured_token
from tests.benchmarks.brokers import KAFKA_VERSION

USER: Final = "alice"
SESSION_MS: Final = 10_000
BROKERS: Final = 3
TOPIC: Final = "sessions"
PARTITIONS: Final = 12
SLICE_S: Final = 0.01
AROUND_S: Final = 0.5
CONNECTIONS: Final = 100
ITERATIONS: Final = 100_000
PATIENT: Final = {
    "socket_connection_setup_timeout_ms": 120_000,
    "socket_connection_setup_timeout_max_ms": 120_000,
    "max_block_ms": 300_000,
}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")


class Provider:
    async def token(self) -> str:
        return unsecured_token(USER)


class Measured:
    """Acknowledgements and authentications of one producer, by the time at which they came."""

    def __init__(self, producer: Producer) -> None:
        self.acknowledged: list[tuple[float, float]] = []  # when, and seconds since the call
        self.renewed: list[float] = []
        self._producer = producer

    async def stream(self, rate: float, seconds: float) -> None:
        """Give records at a rate; the first of each slice is watched."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            now = time.monotonic()
            for number in range(int(rate * SLICE_S) + 1):
                delivery = await self._producer.enqueue(TOPIC, b"x" * 100, partition=number % PARTITIONS)
                if number < PARTITIONS:
                    delivery.add_done_callback(partial(self._take, now))
            self._look()
            await asyncio.sleep(SLICE_S)
        await self._producer.flush()

    def _take(self, began: float, delivery: asyncio.Future[RecordMetadata]) -> None:
        delivery.result()
        now = time.monotonic()
        self.acknowledged.append((now, now - began))

    def _look(self) -> None:
        while len(self.renewed) < self._producer.statistics().reauthentications:
            self.renewed.append(time.monotonic())

    def near(self, when: float) -> bool:
        return any(abs(when - renewed) <= AROUND_S for renewed in self.renewed)


async def sessions(version: str, mechanism: str, seconds: float) -> dict[str, object]:
    security = ClusterSecurity(users={USER: f"{USER}-secret"}, session_lifetime_ms=SESSION_MS)
    properties = {"num.partitions": str(PARTITIONS)}
    async with KafkaCluster(version, nodes=BROKERS, security=security, properties=properties) as kafka:
        options = kafka.client_options("SASL_SSL", mechanism)
        if mechanism == "OAUTHBEARER":
            options["sasl_token_provider"] = Provider()
        async with Producer(**cast("ProducerOptions", options)) as producer:  # type: ignore[call-arg]
            await producer.partitions_for(TOPIC)
            rate = await _highest_rate(producer) / 2
            measured = Measured(producer)
            before = producer.statistics()
            measured.renewed = [0.0] * before.reauthentications
            await measured.stream(rate, seconds)
            after = producer.statistics()
    near = [took for when, took in measured.acknowledged if measured.near(when)]
    rest = [took for when, took in measured.acknowledged if not measured.near(when)]
    return {
        "kafka": version,
        "mechanism": mechanism,
        "rate": round(rate),
        "seconds": seconds,
        "connections": after.connections_created,
        "authentications": after.authentications,
        "made while measured": after.connections_created - before.connections_created,
        "renewed while measured": after.reauthentications - before.reauthentications,
        "longest near, ms": _ms(max(near, default=0)),
        "longest of the rest, ms": _ms(max(rest, default=0)),
        "p99 near, ms": _ms(_p99(near)),
        "p99 of the rest, ms": _ms(_p99(rest)),
    }


async def _highest_rate(producer: Producer) -> float:
    began, count = time.monotonic(), 0
    while time.monotonic() - began < 5.0:
        for number in range(1_000):
            await producer.enqueue(TOPIC, b"x" * 100, partition=number % PARTITIONS)
        count += 1_000
    await producer.flush()
    return count / (time.monotonic() - began)


async def lag_of_authentications() -> dict[str, object]:
    """Connect one producer to many brokers of another process at once."""
    command = [sys.executable, "-m", "tests.benchmarks.sessions", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as brokers:  # noqa: ASYNC220  # at the start
        assert brokers.stdout is not None
        assert brokers.stdin is not None
        options = json.loads(brokers.stdout.readline()) | PATIENT
        lags: list[float] = []
        watching = asyncio.create_task(_watch_lag(lags))
        await asyncio.sleep(0.5)
        calm, began = len(lags), time.monotonic()
        async with Producer(**options) as producer:
            sent = [producer.send(TOPIC, b"x", partition=number) for number in range(CONNECTIONS)]
            await asyncio.gather(*sent)
            took = time.monotonic() - began
            busy = lags[calm:]
            watching.cancel()
            authentications = producer.statistics().authentications
        brokers.stdin.close()
    return {
        "authentications": authentications,
        "iterations": ITERATIONS,
        "all authenticated after, s": round(took, 2),
        "lag p99, ms": _ms(_p99(busy)),
        "longest lag, ms": _ms(max(busy)),
        "lag p99 before, ms": _ms(_p99(lags[:calm])),
    }


async def _watch_lag(lags: list[float]) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.001)
        lags.append(time.monotonic() - before - 0.001)


async def serve() -> None:
    """Be the brokers, until standard input ends."""
    listeners = ("SASL_PLAINTEXT",)
    security = ClusterSecurity(users={USER: f"{USER}-secret"}, scram_iterations=ITERATIONS, listeners=listeners)
    async with FakeCluster(CONNECTIONS, topics={TOPIC: CONNECTIONS}, security=security) as cluster:
        options = cluster.client_options("SASL_PLAINTEXT", "SCRAM-SHA-512")
        print(json.dumps(options), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[-1] if len(values) > 1 else 0.0


def _ms(seconds: float) -> float:
    return round(1_000 * seconds, 1)


async def measure(asked: argparse.Namespace) -> None:
    for mechanism in asked.mechanism or MECHANISMS:
        print(json.dumps(await sessions(asked.kafka, mechanism, asked.seconds)), flush=True)
    print(json.dumps(await lag_of_authentications()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sessions", description=__doc__)
    parser.add_argument("--kafka", default=KAFKA_VERSION)
    parser.add_argument("--mechanism", choices=MECHANISMS, action="append")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asyncio.run(serve() if asked.serve else measure(asked))


if __name__ == "__main__":
    main()
