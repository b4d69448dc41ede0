"""Start and close of the producer for threads: bounded, once for all callers, and no caller is forgotten."""

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import (
    BlockingProducer,
    IllegalStateError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    UndeliveredError,
)
from aioproducer.blocking._handoff_queue import Barrier, HandoffQueue
from aioproducer.testing import ApiKey, Where
from tests.fakes.logs import EventList
from tests.fakes.producing import ClusterElsewhere

PRODUCE = Where(api=ApiKey.PRODUCE)
FORBIDDEN = 29


def test_close_in_a_callback_is_refused_and_closes_nothing(cluster: ClusterElsewhere) -> None:
    told: list[str] = []
    with BlockingProducer(cluster.bootstrap_servers) as producer:

        def close(*_: object) -> None:
            try:
                producer.close()
            except IllegalStateError as error:
                told.append(str(error))

        producer.send("orders", b"v", on_delivery=close)
        producer.flush()

        assert (len(told), producer.send("orders", b"v", partition=0).topic) == (1, "orders")


def test_close_is_bounded(cluster: ClusterElsewhere) -> None:
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    producer = BlockingProducer(cluster.bootstrap_servers, buffer_memory=200_000).start()
    stopped: list[type[Exception]] = []

    def work() -> None:
        try:
            while True:
                producer.enqueue("orders", bytes(10_000))
        except KafkaError as error:
            stopped.append(type(error))

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(0.05)

    with pytest.raises(UndeliveredError, match="not delivered"):
        producer.close(0.1)

    worker.join(30)  # a record has 120 s
    assert stopped == [ProducerClosedError]
    producer.close()


@pytest.mark.parametrize("is_stuck", [False, True], ids=["delivering", "behind a full buffer"])
def test_later_close_shortens_the_time_of_the_first(cluster: ClusterElsewhere, *, is_stuck: bool) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers, buffer_memory=100_000, linger_ms=0).start()
    producer.send("orders", b"v")
    cluster.do(lambda fake: fake.faults.stall(PRODUCE))
    for _ in range(20 if is_stuck else 1):
        producer.enqueue("orders", bytes(10_000))

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(producer.close, 600)
        while "closing" not in repr(producer) and not (is_stuck or first.done()):
            time.sleep(0.001)
        with pytest.raises(UndeliveredError) as caught:
            producer.close(0)
        raised = first.exception(60)

    assert isinstance(raised, UndeliveredError)
    assert raised.count == caught.value.count > 0
    assert "closed" in repr(producer)


@pytest.mark.parametrize("timeout", [0, 0.5, 5])
def test_records_accepted_during_close_are_reported(cluster: ClusterElsewhere, timeout: float) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers).start()
    taken: list[int] = []
    told: list[object] = []
    are_sending = threading.Event()

    def work() -> None:
        with contextlib.suppress(ProducerClosedError):
            while True:
                producer.enqueue("orders", b"v", on_delivery=lambda _metadata, error: told.append(error))
                taken.append(1)
                if len(taken) >= 10:
                    are_sending.set()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    has_begun = are_sending.wait(60)
    producer.close(timeout)
    for worker in workers:
        worker.join(60)

    assert has_begun
    assert len(taken) == len(told) > 0


def test_record_that_was_taken_as_the_loop_ended_is_no_error() -> None:
    """The loop slept, and closed before it could be woken: `close` had seen the record."""
    handover = HandoffQueue(1.0, abort_transaction=lambda _error: False, log=EventList())

    async def sleep_once() -> None:
        running = asyncio.create_task(handover.run())
        await asyncio.sleep(0)
        running.cancel()

    asyncio.run(sleep_once())

    handover.put_last(Barrier(), ProducerClosedError("closed"))


def test_closed_is_closed(cluster: ClusterElsewhere) -> None:
    """Every call says so at once, but for one more close."""
    producer = BlockingProducer(cluster.bootstrap_servers).start()
    producer.close()
    producer.close(0)
    for verb in (producer.send, producer.enqueue, producer.send_threadsafe):
        with pytest.raises(ProducerClosedError):
            verb("orders", b"v")
    for other in (producer.start, producer.flush):
        with pytest.raises(ProducerClosedError):
            other()


def test_start_that_fails_leaves_no_thread() -> None:
    with pytest.raises(MetadataTimeoutError, match="refused"):
        BlockingProducer("127.0.0.1:9", max_block_ms=100).start()

    assert not [thread for thread in threading.enumerate() if thread.name == "aioproducer"]


def test_body_that_raises_wins(cluster: ClusterElsewhere) -> None:
    cluster.do(lambda fake: fake.faults.error(FORBIDDEN, PRODUCE, times=None))

    def body() -> None:
        with BlockingProducer(cluster.bootstrap_servers) as producer:
            producer.enqueue("orders", b"v")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        body()

    assert "1 record was not delivered" in caught.value.__notes__[0]


def test_dropped_unclosed_warns(shared: ClusterElsewhere) -> None:
    producer = BlockingProducer(shared.bootstrap_servers).start()

    with pytest.warns(ResourceWarning, match=r"test_blocking_close\.py:\d+ was dropped without close"):
        del producer

    # It is closed on a thread of its own: a collection must not wait.
    while [thread for thread in threading.enumerate() if thread.name.startswith("aioproducer")]:
        time.sleep(0.01)
