"""What waits, and why: each reason, on a cluster in virtual time or with the parts alone."""

import asyncio

import pytest

from aioproducer import (
    BlockingProducer,
    Explanation,
    Producer,
    UndeliveredError,
    Waiting,
    WaitReason,
)
from aioproducer._sender.why_waiting import WaitReasons
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.cluster_elsewhere import cluster_elsewhere
from tests.fakes.producing import producing
from tests.fakes.scripted_sender import ScriptedSender
from tests.fakes.virtual_cluster import in_virtual_time

PRODUCE = Where(api=ApiKey.PRODUCE)


def one_topic() -> FakeCluster:
    return FakeCluster(1, topics={"orders": 3, "returns": 1}, auto_create_topics=False)


def only(explanation: Explanation) -> Waiting:
    (waiting,) = explanation.waiting
    return waiting


@in_virtual_time
async def test_lingering_batch_names_its_end() -> None:
    async with producing(one_topic(), linger_ms=4_000) as (_, producer):
        await producer.partitions_for("orders")
        producer.send("orders", b"x", partition=2)
        producer.send("orders", b"y", partition=2)
        await asyncio.sleep(1)
        waiting = only(producer.explain())

    assert (waiting.topic, waiting.partition, waiting.records, waiting.reason) == ("orders", 2, 2, WaitReason.LINGER)
    assert waiting.age_s == waiting.since_s == pytest.approx(1, abs=0.01)
    assert waiting.until_s == pytest.approx(3, abs=0.01)
    assert waiting.deadline_s == pytest.approx(119, abs=0.01)
    assert "orders-2: 2 records (" in waiting.text
    assert ": more records may join the batch, since 1.0 s, for another 3.0 s; fails in 119.0 s" in waiting.text


@in_virtual_time
async def test_only_what_is_for_a_topic_is_explained() -> None:
    async with producing(one_topic(), linger_ms=4_000) as (_, producer):
        await producer.partitions_for("orders")
        await producer.partitions_for("returns")
        producer.send("orders", b"x")
        producer.send("returns", b"x")

        assert only(producer.explain("returns")).topic == "returns"
        assert len(producer.explain().waiting) == 2
        assert producer.explain("other").waiting == ()
        with pytest.raises(TypeError, match="topic"):
            producer.explain(7)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="topic"):
            producer.explain("a topic")


@in_virtual_time
async def test_batch_on_the_wire_waits_for_its_node_and_the_next_for_order() -> None:
    async with producing(one_topic(), linger_ms=0) as (cluster, producer):
        stall = cluster.faults.stall(PRODUCE)
        await producer.enqueue("orders", b"x", partition=0)
        await asyncio.sleep(2)
        await producer.enqueue("orders", b"y", partition=0)
        await asyncio.sleep(1)
        first, second = producer.explain().waiting
        cluster.faults.remove(stall)

    assert (first.reason, first.node_id, first.attempts) == (WaitReason.RESPONSE, 1, 1)
    assert first.since_s == pytest.approx(3, abs=0.1)
    assert first.words == "node 1 has not answered"
    assert second.reason is WaitReason.HELD_FOR_ORDER
    assert second.age_s == pytest.approx(1, abs=0.1)


@in_virtual_time
async def test_node_without_a_connection_shows_its_error_and_the_next_attempt() -> None:
    async with producing(one_topic(), linger_ms=0, reconnect_backoff_ms=5_000) as (cluster, producer):
        await producer.send("orders", b"x", partition=0)
        await cluster.kill(1)
        await producer.enqueue("orders", b"y", partition=0)
        await asyncio.sleep(1)
        waiting, text = only(producer.explain()), str(producer.explain())
        await cluster.restart(1)

    assert waiting.reason in {WaitReason.CONNECTING, WaitReason.NO_LEADER}
    assert waiting.detail
    assert text.startswith(f"producer {producer.statistics().client_id!r} is running: 1 record: ")


@in_virtual_time
async def test_throttled_node_and_back_off_name_their_ends() -> None:
    async with producing(one_topic(), linger_ms=0, retry_backoff_ms=9_000, retry_backoff_max_ms=9_000) as (
        cluster,
        producer,
    ):
        cluster.faults.error(ErrorCode.NOT_ENOUGH_REPLICAS, PRODUCE)
        retried = await producer.enqueue("orders", b"x", partition=0)
        await asyncio.sleep(1)
        back_off = only(producer.explain())
        await retried
        cluster.faults.throttle(30_000, PRODUCE)
        await producer.send("orders", b"x", partition=0)
        await producer.enqueue("orders", b"y", partition=1)
        await asyncio.sleep(1)
        throttled = only(producer.explain())

    assert (back_off.reason, back_off.attempts) == (WaitReason.BACK_OFF, 1)
    assert "NOT_ENOUGH_REPLICAS" in back_off.detail
    assert back_off.until_s is not None
    assert 0 < back_off.until_s < 12
    assert throttled.reason is WaitReason.THROTTLED
    assert throttled.until_s == pytest.approx(29, abs=0.1)
    assert throttled.since_s == pytest.approx(1, abs=0.1)


@in_virtual_time
async def test_records_outside_of_batches_wait_for_metadata_or_memory() -> None:
    async with producing(one_topic(), buffer_memory=40_000, batch_size=16_384, linger_ms=0) as (cluster, producer):
        producer.send("unknown", b"x")
        await asyncio.sleep(1)
        metadata = only(producer.explain())
        stall = cluster.faults.stall(PRODUCE)
        calls = [asyncio.ensure_future(producer.enqueue("orders", b"x" * 10_000, partition=0)) for _ in range(5)]
        await asyncio.sleep(1)
        memory = [each for each in producer.explain("orders").waiting if each.reason is WaitReason.MEMORY]
        cluster.faults.remove(stall)
        await asyncio.gather(*await asyncio.gather(*calls))
        with pytest.raises(UndeliveredError):  # of the unknown topic
            await producer.close(0)

    assert (metadata.topic, metadata.reason) == ("unknown", WaitReason.METADATA)
    assert metadata.deadline_s == pytest.approx(59, abs=0.1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in metadata.words
    assert memory
    assert {each.partition for each in memory} == {0}
    assert "of buffer_memory=40,000 bytes are free" in memory[0].text


@in_virtual_time
async def test_partition_waits_to_join_the_transaction() -> None:
    cluster = FakeCluster(1, topics={"orders": 1}, transaction_version=1)
    async with producing(cluster, transactional_id="t", linger_ms=0) as (_, producer):
        stall = cluster.faults.stall(Where(api=ApiKey.ADD_PARTITIONS_TO_TXN))
        await producer.begin_transaction()
        await producer.enqueue("orders", b"x")
        await asyncio.sleep(1)
        waiting = only(producer.explain())
        cluster.faults.remove(stall)
        await producer.abort_transaction()

    assert waiting.reason is WaitReason.TRANSACTION
    assert "the partition is not part of the transaction yet" in waiting.words


def test_other_reasons_of_the_parts_alone() -> None:
    script = ScriptedSender(leaders=[-1, 1])
    script.core.send(partition=0)
    script.core.send(partition=1)
    script.core.identity.producer_id = None
    reasons = WaitReasons(
        script.core.accumulator,
        script.core.identity,
        script.client,  # type: ignore[arg-type]  # the part that is asked
        script.metadata,  # type: ignore[arg-type]
        script.core.now,
    )

    assert [each.reason for each in reasons.batches(None)] == [WaitReason.NO_LEADER, WaitReason.PRODUCER_ID]


@in_virtual_time
async def test_time_outs_of_flush_and_close_say_why() -> None:
    async with producing(one_topic(), linger_ms=0) as (cluster, producer):
        cluster.faults.stall(PRODUCE)
        await producer.enqueue("orders", b"x", partition=0)
        with pytest.raises(
            TimeoutError, match=r"after 2 s: 1 record: node 1 has not answered, the oldest since 2\.0 s"
        ):
            await producer.flush(2)
        with pytest.raises(UndeliveredError, match="node 1 has not answered") as raised:
            await producer.close(3)
        cluster.faults.clear()

    assert isinstance(raised.value, UndeliveredError)


@in_virtual_time
async def test_every_state_has_a_clear_answer() -> None:
    async with one_topic() as cluster:
        producer = Producer(cluster.bootstrap_servers, client_id="p")
        new = producer.explain()
        async with producer:
            running = producer.explain()
        closed = producer.explain()
        failed = await Producer(cluster.bootstrap_servers).start()
        failed._running.fail(RuntimeError("a defect"))  # type: ignore[union-attr]  # noqa: SLF001  # no call leads there
        defect = failed.explain()
        await failed.close()

    assert str(new) == "producer 'p' is new: it is not started"
    assert str(running) == "producer 'p' is running: nothing waits"
    assert str(closed) == "producer 'p' is closed: the producer is closed: nothing waits"
    assert defect.state == "failed"
    assert "a defect" in defect.summary


@pytest.mark.slow
async def test_child_of_a_fork_is_told_so(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        producer._mark_forked()
        try:
            explanation = producer.explain()
        finally:
            producer._lifecycle.is_forked = False  # noqa: SLF001  # as above

    assert explanation.state == "forked"
    assert "create a new one in this process" in explanation.summary


def test_blocking_producer_explains() -> None:
    with cluster_elsewhere() as cluster, BlockingProducer(cluster.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send("orders", b"x")
        explanation = producer.explain("orders")
    closed = producer.explain()

    assert explanation.state == "running"
    assert closed.state == "closed"


def test_text_shows_the_oldest_and_counts_the_rest() -> None:
    waiting = tuple(
        Waiting("t", number, 1, 2, 100, 0, WaitReason.LINGER, "", number, number, 1.0, 60.0) for number in range(30)
    )
    lines = str(Explanation("p", "running", "", waiting)).splitlines()

    assert lines[0] == "producer 'p' is running: 60 records: more records may join the batch, the oldest since 29.0 s"
    assert lines[1].startswith("  t-29: 2 records (100 bytes) given 29.0 s ago")
    assert (len(lines), lines[-1]) == (22, "  and 10 more")


def test_summary_counts_rare_reasons_together() -> None:
    reasons = [WaitReason.LINGER, WaitReason.READY, WaitReason.COMPRESSION, WaitReason.RESPONSE, WaitReason.MEMORY]
    waiting = tuple(Waiting("t", 0, 1, 1, 1, 0, reason, "", 1.0, 1.0, None, 9.0) for reason in reasons)

    assert Explanation("p", "closing", "it closes", waiting).summary.startswith("it closes; 1 record: ")
    assert Explanation("p", "closing", "", waiting).summary.endswith("; 2 records for other reasons")
