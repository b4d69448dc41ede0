"""Calls that wait: `explain()` names each with its request, its node, since when and until when."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from aioproducer import BlockingProducer, KafkaError, Producer, WaitingCall, WaitReason
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where
from tests.fakes.producing import cluster_elsewhere
from tests.fakes.virtual_loop import in_virtual_time

Step = Callable[[Producer], Awaitable[object]]


@asynccontextmanager
async def transactional(cluster: FakeCluster) -> AsyncIterator[Producer]:
    async with cluster, Producer(cluster.bootstrap_servers, transactional_id="t") as producer:
        yield producer
        cluster.faults.clear()


def one_broker() -> FakeCluster:
    return FakeCluster(1, topics={"orders": 1}, auto_create_topics=False)


async def nothing(_: Producer) -> None:
    """Do nothing before the call."""


async def open_one(producer: Producer) -> None:
    await producer.begin_transaction()
    await producer.send("orders", b"v")


def offsets_sent(producer: Producer) -> Awaitable[object]:
    return producer.send_offsets({("orders", 0): 1}, "billing")


CALLS: dict[str, tuple[ApiKey, str, Step, Step]] = {
    "commit_transaction": (ApiKey.END_TXN, "EndTxn", open_one, Producer.commit_transaction),
    "abort_transaction": (ApiKey.END_TXN, "EndTxn", open_one, Producer.abort_transaction),
    "send_offsets": (ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", open_one, offsets_sent),
    "committed_offsets": (
        ApiKey.OFFSET_FETCH,
        "OffsetFetch",
        nothing,
        lambda producer: producer.committed_offsets("billing", [("orders", 0)]),  # type: ignore[list-item]
    ),
    "partitions_for": (ApiKey.METADATA, "Metadata", nothing, lambda producer: producer.partitions_for("orders")),
}


def only(producer: Producer) -> WaitingCall:
    (call,) = producer.explain().calls
    return call


async def given_up(calling: asyncio.Future[object]) -> None:
    calling.cancel()
    await asyncio.wait([calling])


@pytest.mark.parametrize("name", CALLS)
@in_virtual_time
async def test_call_names_its_unanswered_request_and_node(name: str) -> None:
    cluster = one_broker()
    api, request, before, call = CALLS[name]
    async with transactional(cluster) as producer:
        await before(producer)
        cluster.faults.stall(Where(api=api))
        calling = asyncio.ensure_future(call(producer))
        await asyncio.sleep(10)
        waiting, text = only(producer), str(producer.explain())
        cluster.faults.clear()
        await given_up(calling)

    assert (waiting.call, waiting.request, waiting.reason) == (name, request, WaitReason.RESPONSE)
    assert waiting.node_ids == (1,)
    assert waiting.age_s == pytest.approx(10, abs=0.1)
    assert waiting.since_s == pytest.approx(10, abs=0.1)
    assert waiting.deadline_s == pytest.approx(50, abs=0.1)
    assert f"{waiting.subject}: node 1 has not answered {request}, since " in text.splitlines()[0]
    assert waiting.text in text


@in_virtual_time
async def test_call_of_a_dead_coordinator_names_the_error() -> None:
    cluster = one_broker()
    async with transactional(cluster) as producer:
        await open_one(producer)
        await cluster.kill(1)
        calling = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(20)
        waiting = only(producer)
        await cluster.restart(1)
        await calling

    assert waiting.call == "commit_transaction"
    assert waiting.reason in {WaitReason.CONNECTING, WaitReason.BACK_OFF}
    assert "127.0.0.1" in waiting.words


@in_virtual_time
async def test_commit_says_that_it_waits_for_records() -> None:
    cluster = one_broker()
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        await producer.enqueue("orders", b"v")
        calling = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(5)
        waiting, explanation = only(producer), producer.explain()
        cluster.faults.clear()
        await calling

    assert (waiting.call, waiting.reason, waiting.request) == ("commit_transaction", WaitReason.RECORDS, "")
    assert explanation.summary.startswith("1 record: node 1 has not answered")
    assert "commit_transaction" not in explanation.summary
    assert "records that were accepted before it have not ended (1 batch or waiting record)" in str(explanation)


@in_virtual_time
async def test_begin_waits_for_the_transaction_of_another_task() -> None:
    cluster = one_broker()
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        calling = asyncio.ensure_future(producer.begin_transaction(wait=True))
        await asyncio.sleep(5)
        waiting = only(producer)
        await producer.commit_transaction()
        await calling
        await producer.abort_transaction()

    assert (waiting.call, waiting.reason) == ("begin_transaction", WaitReason.OTHER_TRANSACTION)
    assert waiting.words == "another task has a transaction open"
    assert waiting.deadline_s == pytest.approx(55, abs=0.1)


@pytest.mark.parametrize(
    "options,api,request_name",
    [
        ({}, ApiKey.METADATA, "Metadata"),
        ({"transactional_id": "t"}, ApiKey.FIND_COORDINATOR, "FindCoordinator"),
        ({"transactional_id": "t"}, ApiKey.INIT_PRODUCER_ID, "InitProducerId"),
    ],
)
@in_virtual_time
async def test_start_names_what_it_waits_for(options: dict[str, str], api: ApiKey, request_name: str) -> None:
    async with one_broker() as cluster:
        cluster.faults.stall(Where(api=api))
        producer = Producer(cluster.bootstrap_servers, **options)  # type: ignore[arg-type]
        starting = asyncio.ensure_future(producer.start())
        await asyncio.sleep(5)
        waiting = only(producer)
        cluster.faults.clear()
        await given_up(starting)

    assert (waiting.call, waiting.request, waiting.reason) == ("start", request_name, WaitReason.RESPONSE)
    assert waiting.deadline_s == pytest.approx(55, abs=0.1)
    assert waiting.words.startswith("a bootstrap broker" if api is ApiKey.METADATA else "node 1")


@in_virtual_time
async def test_flush_and_close_say_when_they_fail() -> None:
    async with one_broker() as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        await producer.enqueue("orders", b"v")
        flushing = asyncio.ensure_future(producer.flush(20))
        closing = asyncio.ensure_future(producer.close(30))
        await asyncio.sleep(5)
        flush, close = producer.explain().calls
        cluster.faults.clear()
        await asyncio.wait([flushing, closing])

    assert (flush.call, flush.reason, close.call, close.reason) == (
        "flush",
        WaitReason.RECORDS,
        "close",
        WaitReason.RECORDS,
    )
    assert flush.deadline_s == pytest.approx(15, abs=0.1)
    assert close.deadline_s == pytest.approx(25, abs=0.1)
    assert close.text.endswith("; fails in 25.0 s")


@in_virtual_time
async def test_close_says_when_it_fails_once_another_call_hurries() -> None:
    async with one_broker() as cluster:
        producer = await Producer(cluster.bootstrap_servers).start()
        cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        await producer.enqueue("orders", b"v")
        closing = [asyncio.ensure_future(producer.close(30))]
        await asyncio.sleep(5)
        closing.append(asyncio.ensure_future(producer.close(10)))
        await asyncio.sleep(1)
        close = only(producer)
        cluster.faults.clear()
        await asyncio.wait(closing)

    assert close.deadline_s == pytest.approx(9, abs=0.1)


@in_virtual_time
async def test_close_says_that_it_waits_for_the_abort() -> None:
    async with one_broker() as cluster:
        producer = await Producer(cluster.bootstrap_servers, transactional_id="t").start()
        await open_one(producer)
        cluster.faults.stall(Where(api=ApiKey.END_TXN))
        closing = asyncio.ensure_future(producer.close(30))
        await asyncio.sleep(5)
        close = only(producer)
        cluster.faults.clear()
        await closing

    assert (close.call, close.request, close.node_ids) == ("close", "EndTxn", (1,))
    assert close.deadline_s == pytest.approx(25, abs=0.1)


@in_virtual_time
async def test_refused_sends_have_a_note() -> None:
    cluster = one_broker()
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        before = producer.explain().note
        cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE))
        with pytest.raises(KafkaError):
            await producer.send("orders", b"v")
        await asyncio.sleep(1)
        note, summary = producer.explain().note, producer.explain().summary
        await producer.abort_transaction()
        after = producer.explain().note

    assert (before, after) == ("", "")
    assert note.startswith("the transaction has failed and takes nothing more: abort it (")
    assert "TOPIC_AUTHORIZATION_FAILED" in note
    assert summary == note


@in_virtual_time
async def test_records_of_an_aborted_transaction_are_left_out() -> None:
    """They are still on the wire, but their callers have been given their error."""
    cluster = one_broker()
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        delivery = await producer.enqueue("orders", b"v")
        await asyncio.sleep(1)
        before = producer.explain().waiting
        aborting = asyncio.ensure_future(producer.abort_transaction())
        with pytest.raises(KafkaError):
            await delivery
        after, in_flight = producer.explain().waiting, producer.statistics().requests_in_flight
        cluster.faults.clear()
        await aborting

    assert (len(before), after) == (1, ())
    assert in_flight >= 1


@in_virtual_time
async def test_fenced_producer_says_so() -> None:
    cluster = one_broker()
    async with transactional(cluster) as producer:
        async with Producer(cluster.bootstrap_servers, transactional_id="t"):
            pass
        with pytest.raises(KafkaError):
            async with producer.transaction() as txn:
                await txn.send("orders", b"v")
        note = producer.explain().note

    assert "newer producer" in note


@in_virtual_time
async def test_calls_about_another_topic_are_left_out() -> None:
    cluster = one_broker()
    async with transactional(cluster) as producer:
        cluster.faults.stall(Where(api=ApiKey.METADATA))
        calling = asyncio.ensure_future(producer.partitions_for("orders"))
        await asyncio.sleep(1)
        of_topic, of_other = producer.explain("orders").calls, producer.explain("returns").calls
        cluster.faults.clear()
        await given_up(calling)

    assert [call.subject for call in of_topic] == ["partitions_for('orders')"]
    assert of_other == ()


async def test_calls_of_a_blocking_producer_are_named() -> None:
    with cluster_elsewhere() as cluster, BlockingProducer(cluster.bootstrap_servers, transactional_id="t") as producer:
        producer.begin_transaction()
        producer.send("orders", b"v")
        cluster.do(lambda each: each.faults.stall(Where(api=ApiKey.END_TXN)))
        committing = asyncio.create_task(asyncio.to_thread(producer.commit_transaction))
        async with asyncio.timeout(30):
            while not producer.explain().calls:  # noqa: ASYNC110  # as a page asks
                await asyncio.sleep(0.01)
        summary = producer.explain().summary
        cluster.do(lambda each: each.faults.clear())
        await committing

    assert summary.startswith("commit_transaction: ")
