"""Without a broker a write and a read end within 15 s, before any task."""

import importlib.util

import pytest

from aioproducer.errors import KafkaError
from aioproducer.spark._coordinators import prepared
from aioproducer.spark._options import SinkOptions, SourceOptions

pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.timeout(15)]

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def test_write() -> None:
    given = {**SERVERS, "topic": "t", "exactlyOnce": "true", "sinkId": "s"}
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
        prepared(SinkOptions.parse(given))


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed: nox -s spark")
def test_read() -> None:
    from aioproducer.spark._reader import KafkaReader  # noqa: PLC0415  # needs pyspark

    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
        KafkaReader(SourceOptions.parse({**SERVERS, "subscribe": "t"}, is_stream=False)).partitions()
