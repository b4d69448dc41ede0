"""A producer over TLS, to real brokers."""

import asyncio

import pytest
import uvloop

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster
from tests.secured.ways import WAYS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def deliver(options: dict[str, object], topic: str) -> list[int]:
    async with Producer(**options) as producer:  # type: ignore[arg-type]
        results = await asyncio.gather(*(producer.send(topic, b"x" * 1000) for _ in range(1000)))
        return [result.offset for result in results]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", [("TLSv1.2",), ("TLSv1.3",)], ids=["1.2", "1.3"])
@pytest.mark.parametrize("way", ["tls", "mtls"])
def test_records_are_delivered_over_tls(
    secured_kafka: KafkaCluster, way: str, version: tuple[str, ...], loop: str
) -> None:
    options = {**secured_kafka.client_options(*WAYS[way]), "ssl_enabled_protocols": version}
    topic = f"tls-{way}-{version[0]}-{loop}"
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert sorted(runner.run(deliver(options, topic))) == list(range(1000))
