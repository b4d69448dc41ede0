"""How long after the broker's answer a wrong set-up is the error of `start`: `python -m tests.programs.start_errors`.

For each wrong set-up, a raw client does by itself what leads to the broker's answer, and is timed; then a producer
starts. Printed are the medians and their difference, which is what the producer adds; brokers wait before they refuse.
"""

import argparse
import asyncio
import ssl
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, cast

from aioproducer import Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.errors import KafkaError
from aioproducer.testing import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster
from tests.secured.raw_client import RawClient, plain
from tests.secured.ways import SECURITY

Options = dict[str, object]


class Wrong(NamedTuple):
    name: str
    options: Options
    answer: Callable[[], Awaitable[object]]


def place_of(options: Options) -> tuple[str, int]:
    host, _, port = str(options["bootstrap_servers"]).rpartition(":")
    return host, int(port)


async def refused_by_tls(options: Options, context: ssl.SSLContext) -> None:
    try:
        (await RawClient.connect(*place_of(options), context)).abort()
    except (ssl.SSLError, OSError):
        return
    raise AssertionError("it was accepted")


async def answered_login(options: Options, context: ssl.SSLContext, mechanism: str, *, token: bytes = b"") -> None:
    client = await RawClient.connect(*place_of(options), context)
    await client.versions()
    await client.handshake(mechanism)
    if token:
        await client.authenticate(token)
    client.abort()


def set_ups(kafka: KafkaCluster, folder: Path) -> list[Wrong]:
    login, tls = kafka.client_options("SASL_SSL", "PLAIN"), kafka.client_options("SSL", "")
    signed = kafka.client_options("SIGNED", "PLAIN")
    trusting = ssl.create_default_context(cadata=SECURITY.authority.certificate)
    other_ca = CertificateAuthority("other").certificate
    (folder / "other.pem").write_text(other_ca, "ascii")
    other = ssl.create_default_context(cadata=other_ca)
    named = tls | {"bootstrap_servers": "kafka-1:9093", "address_map": {"kafka-1:9093": tls["bootstrap_servers"]}}
    wrong_password = plain("alice", "canary-wrong")
    plain_port = login | {"bootstrap_servers": kafka.bootstrap_servers}
    return [
        Wrong(
            "password",
            login | {"sasl_password": "canary-wrong"},
            lambda: answered_login(login, trusting, "PLAIN", token=wrong_password),
        ),
        Wrong("mechanism", signed, lambda: answered_login(signed, trusting, "PLAIN")),
        Wrong("CA", tls | {"ssl_truststore_location": str(folder / "other.pem")}, lambda: refused_by_tls(tls, other)),
        Wrong("name", named, lambda: refused_by_tls(tls, other)),
        Wrong("port without TLS", plain_port, lambda: refused_by_tls(plain_port, trusting)),
    ]


async def seconds_of(work: Callable[[], Awaitable[object]]) -> float:
    began = perf_counter()
    await work()
    return perf_counter() - began


async def failing_start(options: Options) -> None:
    rest = dict(options)
    producer = Producer(cast("str", rest.pop("bootstrap_servers")), **cast("ProducerOptions", rest))
    try:
        await producer.start()
    except KafkaError:
        return
    raise AssertionError("it started")


async def measure(wrong: Wrong, rounds: int) -> str:
    answers, starts = [], []
    for _ in range(rounds):
        answers.append(await seconds_of(wrong.answer))
        starts.append(await seconds_of(lambda: failing_start(wrong.options)))
    answer, start = statistics.median(answers) * 1000, statistics.median(starts) * 1000
    return f"{wrong.name:18} answer {answer:7.1f} ms   start {start:7.1f} ms   added {start - answer:7.1f} ms"


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.start_errors", description=__doc__)
    parser.add_argument("--version", default="4.4.0")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    kafka = KafkaCluster(arguments.version, security=SECURITY)
    await kafka.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for wrong in set_ups(kafka, Path(folder)):
                await seconds_of(lambda: failing_start(wrong.options))  # noqa: B023  # imports
                print(await measure(wrong, arguments.rounds), flush=True)
    finally:
        await kafka.stop()


asyncio.run(main())
