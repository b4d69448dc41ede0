"""Errors name the reason when brokers answer, but accept nothing."""

import asyncio
import re

import pytest

from aioproducer import BrokerError, DeliveryTimeoutError, MetadataTimeoutError, Producer
from aioproducer.testing import ApiKey, FakeCluster, Where
from tests.fakes.producing import producing
from tests.fakes.virtual_cluster import in_virtual_time


def codes_warned_of(caplog: pytest.LogCaptureFixture) -> list[int]:
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    found = [re.search(r"event='producer_id_refused'.* code=(\d+)", line) for line in lines]
    return [int(match[1]) for match in found if match is not None]


@pytest.mark.parametrize("deadline", [None, 4])
@pytest.mark.parametrize("code", [14, 15, 41, 51, 999])
@in_virtual_time
async def test_error_names_the_code_that_withholds_a_producer_id(
    code: int, deadline: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        cluster.faults.error(code, Where(api=ApiKey.INIT_PRODUCER_ID), times=None)
        async with Producer(cluster.bootstrap_servers, delivery_timeout_ms=5000, request_timeout_ms=2000) as producer:
            with pytest.raises(DeliveryTimeoutError, match=r"producer an id yet .*InitProducerId") as raised:
                await producer.send("orders", b"1", deadline=deadline)

    error = raised.value.last_broker_error
    assert isinstance(error, BrokerError)
    assert error.code == code
    assert codes_warned_of(caplog) == [code]


@in_virtual_time
async def test_warning_of_a_refused_id_repeats_when_the_code_changes(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal that passes with the second attempt causes no warning."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster:
        init = Where(api=ApiKey.INIT_PRODUCER_ID)
        for code, times in ((15, 1), (41, 3), (51, 3), (14, 1)):
            cluster.faults.error(code, init, times=times)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("orders", b"1")

    assert codes_warned_of(caplog) == [41, 51]


@in_virtual_time
async def test_error_says_that_brokers_throttle_and_for_how_long() -> None:
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        cluster.faults.throttle(2**31 - 1, Where(api=ApiKey.METADATA), times=None)
        async with Producer(cluster.bootstrap_servers, max_block_ms=5000) as producer:
            with pytest.raises(MetadataTimeoutError, match=r"throttle this client, .* for another 5\d\.\d s"):
                await producer.send("orders", b"1")
            with pytest.raises(MetadataTimeoutError, match=r"throttle this client"):
                await producer.partitions_for("orders")


@in_virtual_time
async def test_error_says_that_the_leader_throttles() -> None:
    times = {"delivery_timeout_ms": 5000, "request_timeout_ms": 2000}
    async with producing(FakeCluster(1, topics={"orders": 1}), **times) as (cluster, producer):
        cluster.faults.throttle(2**31 - 1, Where(api=ApiKey.PRODUCE))
        await producer.send("orders", b"1")

        with pytest.raises(DeliveryTimeoutError, match=r"node 1 could not be sent to .* another 5\d\.\d s"):
            await producer.send("orders", b"2")
        await asyncio.sleep(60)
        await producer.send("orders", b"3")


@in_virtual_time
async def test_reason_of_a_broker_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    """In the error and in the log the text cannot control a terminal, or forge a line."""
    async with FakeCluster(1, topics={"orders": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        reasons = {0: "\x1b]0;owned\x07\nevent='forged'" + "x" * 30_000}
        cluster.faults.record_errors(reasons, Where(api=ApiKey.PRODUCE))

        with pytest.raises(BrokerError) as raised:
            await producer.send("orders", b"1")

    said = [str(raised.value), *(record.getMessage() for record in caplog.records)]
    assert all(line.isprintable() and len(line) < 2_000 for line in said)
    assert r"\x1b]0;owned\x07\nevent" in said[0]
