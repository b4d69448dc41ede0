"""What waits, and why: each reason, on a cluster in virtual time or with the parts alone."""

import asyncio
from collections.abc import Awaitable

import pytest

from aioproducer import (
    BlockingProducer,
    Explanation,
    Producer,
    PurgedError,
    UndeliveredError,
    Waiting,
    WaitReason,
)
from aioproducer._accumulator.partition import BatchState
from aioproducer._sender.why_waiting import WaitReasons
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.logs import LogCapture
from tests.fakes.producing import cluster_elsewhere, producing
from tests.fakes.scripted_sender import ScriptedSender
from tests.fakes.virtual_loop import in_virtual_time

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
async def test_batch_on_the_wire_waits_for_its_node_others_for_order() -> None:
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
async def test_unreachable_node_shows_its_error_and_the_next_attempt() -> None:
    async with producing(one_topic(), linger_ms=0, reconnect_backoff_ms=5_000) as (cluster, producer):
        await producer.send("orders", b"x", partition=0)
        await cluster.kill(1)
        await producer.enqueue("orders", b"y", partition=0)
        await asyncio.sleep(1)
        waiting, text = only(producer.explain()), str(producer.explain())
        await cluster.restart(1)

    assert waiting.reason is WaitReason.CONNECTING
    assert waiting.detail.endswith(": the broker closed the connection")
    assert waiting.words == f"node 1 could not be sent to ({waiting.detail})"
    assert waiting.until_s == pytest.approx(4, abs=1.01)  # a fifth of the pause is random
    assert text.startswith(f"producer {producer.statistics().client_id!r} is running: 1 record: {waiting.words}")


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
async def test_record_outside_of_batches_fails_at_its_own_deadline() -> None:
    async with producing(one_topic()) as (_, producer):
        delivery = producer.send("unknown", b"x", deadline=30.0)
        await asyncio.sleep(1)
        waiting = only(producer.explain())
        producer.purge()
        assert isinstance(delivery.exception(), PurgedError)  # seen, so that the close does not raise it

    assert waiting.deadline_s == pytest.approx(29, abs=0.01)


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


@in_virtual_time
async def test_partition_behind_a_busy_node_waits_for_the_node() -> None:
    """A partition may have several batches on the wire, so its next one waits only for the node."""
    cluster = FakeCluster(1, topics={"orders": 6})
    async with producing(cluster, linger_ms=0) as (_, producer):
        for partition in range(6):  # until the first is acknowledged, a partition sends one at a time
            await producer.send("orders", b"x", partition=partition)
        stall = cluster.faults.stall(PRODUCE)
        for partition in (0, 1, 2, 3, 4, 5, 0):
            await producer.enqueue("orders", b"x", partition=partition)
            await asyncio.sleep(0.01)
        waiting = [each for each in producer.explain().waiting if each.reason is not WaitReason.RESPONSE]
        cluster.faults.remove(stall)

    assert [(each.partition, each.reason) for each in waiting] == [
        (0, WaitReason.IN_FLIGHT_FULL),
        (5, WaitReason.IN_FLIGHT_FULL),
    ]
    assert waiting[0].words == "node 1 could not be sent to (it was busy with earlier requests)"


@in_virtual_time
async def test_silent_node_is_not_called_busy() -> None:
    cluster = FakeCluster(1, topics={"orders": 2})
    async with producing(cluster, linger_ms=0, max_in_flight_requests_per_connection=1) as (_, producer):
        for partition in range(2):
            await producer.send("orders", b"x", partition=partition)
        stall = cluster.faults.stall(PRODUCE)
        for partition in range(2):
            await producer.enqueue("orders", b"x", partition=partition)
            await asyncio.sleep(5)
        silent = next(each for each in producer.explain().waiting if each.reason is WaitReason.IN_FLIGHT_FULL)
        cluster.faults.remove(stall)

    assert silent.words == "node 1 could not be sent to (it has not answered Produce for 10.0 s)"
    assert silent.since_s == pytest.approx(10, abs=0.1)


@in_virtual_time
async def test_record_waits_for_its_serializer() -> None:
    may_end = asyncio.Event()

    async def hanging(value: bytes) -> bytes:
        await may_end.wait()
        return value

    def code(value: bytes) -> bytes | Awaitable[bytes]:
        return value if value == b"known" else hanging(value)

    async with producing(one_topic(), linger_ms=0, value_serializer=code) as (_, producer):
        calls = [
            asyncio.ensure_future(producer.enqueue("orders", b"x", partition=2)),
            asyncio.ensure_future(producer.enqueue("orders", b"known")),
            asyncio.ensure_future(producer.enqueue("returns", b"y", deadline=30.0)),
        ]
        await asyncio.sleep(2)
        first, second = producer.explain("orders").waiting
        third = only(producer.explain("returns"))
        count = producer.statistics().records_waiting
        may_end.set()
        await asyncio.gather(*await asyncio.gather(*calls))
        after = producer.explain(), producer.statistics().records_waiting

    assert first.text == (
        "orders-2: 1 record given 2.0 s ago: the record is not serialized yet "
        "(value_serializer test_record_waits_for_its_serializer.<locals>.code has not finished), "
        "since 2.0 s; fails in 58.0 s"
    )
    assert (second.partition, second.detail) == (None, "an earlier record of the topic comes first")
    assert {first.reason, second.reason, third.reason} == {WaitReason.SERIALIZER}
    assert third.deadline_s == pytest.approx(28, abs=0.01)
    assert count == 3
    assert (after[0].waiting, after[1]) == ((), 0)


def reasons_of(script: ScriptedSender) -> list[WaitReason]:
    """Return the reason of each batch, before the sender's next turn."""
    reasons = WaitReasons(
        script.core.accumulator,
        script.core.identity,
        script.metadata,  # type: ignore[arg-type]  # the part that is asked
        script.core.now,
    )
    return [each.reason for each in reasons.batches(None)]


def test_other_reasons_of_the_parts_alone() -> None:
    script = ScriptedSender(leaders=[-1, 1])
    script.core.send(partition=0)
    script.core.send(partition=1)
    identity = script.core.identity
    assert identity.producer_id is not None
    identity.discard(identity.producer_id)

    assert reasons_of(script) == [WaitReason.NO_LEADER, WaitReason.PRODUCER_ID]


def test_batch_that_may_go_is_ready_also_beside_one_on_the_wire() -> None:
    script = ScriptedSender()
    script.confirm()
    script.core.send()
    alone = reasons_of(script)
    script.turn()
    script.core.send()
    beside = reasons_of(script)

    assert alone == [WaitReason.READY]
    assert beside == [WaitReason.RESPONSE, WaitReason.READY]


def test_batch_waits_for_order_behind_one_that_may_go() -> None:
    script = ScriptedSender()
    for _ in range(2):
        script.core.send()
        script.core.accumulator.open_batches.close_all()

    assert reasons_of(script) == [WaitReason.READY, WaitReason.HELD_FOR_ORDER]


def test_batch_waits_for_order_before_the_first_acknowledgement() -> None:
    script = ScriptedSender()
    script.core.send()
    script.turn()
    script.core.send()

    assert reasons_of(script) == [WaitReason.RESPONSE, WaitReason.HELD_FOR_ORDER]


def test_batch_waits_for_order_behind_one_on_an_old_leader() -> None:
    script = ScriptedSender(leaders=[1])
    script.confirm()
    script.core.send()
    script.turn()
    script.core.lead([2], epoch=1)
    script.core.send()

    assert reasons_of(script) == [WaitReason.RESPONSE, WaitReason.HELD_FOR_ORDER]


def test_partition_with_five_batches_in_flight_waits_for_node() -> None:
    script = ScriptedSender()
    script.confirm()
    for _ in range(6):
        script.core.send()
        script.turn()

    assert reasons_of(script) == [WaitReason.RESPONSE] * 5 + [WaitReason.IN_FLIGHT_FULL]


def test_batch_waits_for_its_compression() -> None:
    script = ScriptedSender()
    script.core.send()
    script.core.accumulator.open_batches.close_all()
    (batch,) = script.core.partition().queued
    batch.move_to(BatchState.SEALING)

    assert reasons_of(script) == [WaitReason.COMPRESSION]


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
async def test_close_that_runs_out_of_time_logs_why() -> None:
    with LogCapture() as log:
        async with producing(one_topic(), linger_ms=0) as (cluster, producer):
            cluster.faults.stall(PRODUCE)
            await producer.enqueue("orders", b"x", partition=0)
            with pytest.raises(UndeliveredError):
                await producer.close(3)
            cluster.faults.clear()

    (line,) = log.naming("close_timed_out")
    assert "1 record: node 1 has not answered, the oldest since 3.0 s" in line


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
