"""Every wait of the blocking producer ends, also while a callback blocks its thread forever, or has ended its loop."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa
import pytest

from aioproducer import (
    BlockingProducer,
    BufferTimeoutError,
    ConsumerGroupMetadata,
    DeliveryTimeoutError,
    IllegalStateError,
    KafkaError,
    MetadataTimeoutError,
    Outcome,
    ProducerClosedError,
    TransactionTimeoutError,
    UndeliveredError,
)
from aioproducer._threads.calls import CallTimeout
from aioproducer.blocking._background_threads import BackgroundLoop
from aioproducer.blocking._handoff_queue import QUEUE_RECORDS
from aioproducer.testing import ApiKey, Where
from tests.fakes.producing import ClusterElsewhere

LIMITS: Mapping[str, int] = MappingProxyType(
    {"max_block_ms": 1000, "delivery_timeout_ms": 500, "request_timeout_ms": 400, "linger_ms": 0}
)
GROUP = ConsumerGroupMetadata("group")


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """Set at the end, so that the blocked threads of these tests end."""
    event = threading.Event()
    yield event
    event.set()


def blocked(cluster: ClusterElsewhere, go_on: threading.Event, **options: str) -> BlockingProducer:
    producer = BlockingProducer(cluster.bootstrap_servers, **LIMITS, **options).start()  # type: ignore[arg-type]
    is_inside = threading.Event()

    def block(*_: object) -> None:
        is_inside.set()
        go_on.wait()

    if options:
        producer.begin_transaction()
    producer.send_threadsafe("orders", b"v", on_delivery=block)
    assert is_inside.wait(60)
    return producer


def fill(producer: BlockingProducer) -> None:
    for _ in range(QUEUE_RECORDS + 1):
        producer.enqueue("orders", b"v")


Call = Callable[[BlockingProducer], object]
VERBS: Mapping[str, tuple[Call, type[Exception]]] = MappingProxyType(
    {
        "send": (lambda producer: producer.send("orders", b"v"), DeliveryTimeoutError),
        "send_threadsafe": (lambda producer: producer.send_threadsafe("orders", b"v").result(), DeliveryTimeoutError),
        "send_many": (lambda producer: producer.send_many("orders", [b"v"]), DeliveryTimeoutError),
        "send_arrow": (
            lambda producer: producer.send_arrow("orders", pa.table({"value": [b"v"]})),
            DeliveryTimeoutError,
        ),
        "enqueue": (fill, BufferTimeoutError),
        "topic.send": (lambda producer: producer.topic("orders", value=bytes).send(b"v"), DeliveryTimeoutError),
        "flush": (lambda producer: producer.flush(), TimeoutError),
        "flush with a timeout": (lambda producer: producer.flush(0.1), TimeoutError),
        "partitions_for": (lambda producer: producer.partitions_for("orders"), MetadataTimeoutError),
    }
)
TRANSACTION_VERBS: Mapping[str, Call] = MappingProxyType(
    {
        "init_transactions": lambda producer: producer.init_transactions(),
        "begin_transaction": lambda producer: producer.begin_transaction(),
        "commit_transaction": lambda producer: producer.commit_transaction(),
        "abort_transaction": lambda producer: producer.abort_transaction(),
        "send_offsets": lambda producer: producer.send_offsets({("orders", 0): 1}, GROUP),
    }
)


@pytest.mark.parametrize("verb", list(VERBS))
def test_verb_ends_while_the_thread_is_blocked(cluster: ClusterElsewhere, go_on: threading.Event, verb: str) -> None:
    call, kind = VERBS[verb]
    producer = blocked(cluster, go_on)

    with pytest.raises(kind) as caught:
        call(producer)

    if kind is DeliveryTimeoutError:
        assert isinstance(caught.value, KafkaError)
        assert caught.value.outcome is Outcome.UNKNOWN
    with pytest.raises((UndeliveredError, DeliveryTimeoutError), match=r"close: .* thread does not answer"):
        producer.close(0.1)


@pytest.mark.parametrize("verb", list(TRANSACTION_VERBS))
def test_transaction_verb_ends_while_the_thread_is_blocked(
    cluster: ClusterElsewhere, go_on: threading.Event, verb: str
) -> None:
    producer = blocked(cluster, go_on, transactional_id="worker")

    with pytest.raises(TransactionTimeoutError, match="thread does not answer") as caught:
        TRANSACTION_VERBS[verb](producer)

    assert caught.value.outcome is Outcome.UNKNOWN
    with pytest.raises((UndeliveredError, DeliveryTimeoutError)):
        producer.close(0.1)


def test_close_counts_what_a_blocked_thread_may_lose(cluster: ClusterElsewhere, go_on: threading.Event) -> None:
    producer = blocked(cluster, go_on)
    for _ in range(3):
        producer.enqueue("orders", b"v")

    with pytest.raises(UndeliveredError) as caught:
        producer.close(0.1)

    assert caught.value.count == 3


def test_statistics_are_read_while_the_thread_is_blocked(cluster: ClusterElsewhere, go_on: threading.Event) -> None:
    """A health check must not hang with what it looks at."""
    producer = blocked(cluster, go_on)

    assert producer.statistics().records_acknowledged == 1
    with pytest.raises(DeliveryTimeoutError):
        producer.close(0.1)


def test_start_ends_while_its_thread_is_blocked(cluster: ClusterElsewhere, go_on: threading.Event) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers, **LIMITS)
    producer._background.start(lambda: _block(go_on))  # noqa: SLF001  # nothing of the user's runs before a start

    with pytest.raises(MetadataTimeoutError, match="thread does not answer"):
        producer.start()


async def _block(go_on: threading.Event) -> None:
    go_on.wait()


def test_loop_that_runs_ends_its_calls_itself(cluster: ClusterElsewhere) -> None:
    cluster.do(lambda fake: fake.faults.stall(Where(api=ApiKey.PRODUCE)))
    producer = BlockingProducer(cluster.bootstrap_servers, **LIMITS).start()

    with pytest.raises(DeliveryTimeoutError, match="delivery_timeout_ms"):
        producer.send("orders", b"v")

    producer.close(0)


def test_block_of_a_transaction_ends_while_the_thread_is_blocked(
    cluster: ClusterElsewhere, go_on: threading.Event
) -> None:
    producer = BlockingProducer(cluster.bootstrap_servers, transactional_id="worker", **LIMITS).start()
    producer.init_transactions()

    with pytest.raises(TransactionTimeoutError), producer.transaction():
        producer.send_threadsafe("orders", b"v", on_delivery=lambda *_: go_on.wait())

    with pytest.raises((UndeliveredError, DeliveryTimeoutError)):
        producer.close(0.1)


def test_waiting_in_a_callback_is_refused(cluster: ClusterElsewhere) -> None:
    """The future's result is set on the thread that runs the callback."""
    refusals: list[BaseException] = []
    with BlockingProducer(cluster.bootstrap_servers) as producer:
        waiting = producer.send_threadsafe("orders", b"first")

        def wait(*_: object) -> None:
            try:
                other.result(60)
            except IllegalStateError as error:
                refusals.append(error)

        other = producer.send_threadsafe("orders", b"second", on_delivery=wait)
        waiting.result(60)
        other.result(60)
        producer.flush()

    assert len(refusals) == 1


class Stuck(logging.Handler):
    def __init__(self, go_on: threading.Event) -> None:
        super().__init__()
        self._go_on = go_on

    def emit(self, _record: logging.LogRecord) -> None:
        self._go_on.wait()


def test_handler_that_blocks_holds_nothing_up(cluster: ClusterElsewhere, go_on: threading.Event) -> None:
    handler, log = Stuck(go_on), logging.getLogger("aioproducer")
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        with BlockingProducer(cluster.bootstrap_servers) as producer:
            producer.enqueue("orders", b"a")
            producer.send("orders", b"b")
            producer.flush()
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)

    assert sorted(filter(None, cluster.values())) == [b"a", b"b"]


CALLERS = 8
ROUNDS = 10
PATIENCE_S = 5.0
LIMIT = CallTimeout(PATIENCE_S, TimeoutError)


async def idle() -> None:
    await asyncio.Event().wait()


async def answer() -> int:
    return 1


async def end_the_loop() -> None:
    asyncio.get_running_loop().stop()


def call_until_refused(background: BackgroundLoop, refusals: list[ProducerClosedError]) -> None:
    try:
        while True:
            background.call(answer, LIMIT)
    except ProducerClosedError as refusal:
        refusals.append(refusal)


@pytest.mark.filterwarnings("ignore:coroutine '_awaited' was never awaited")  # the loop was gone before its first step
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # `threading` is silent of it
def test_call_during_the_end_of_the_loop_raises() -> None:
    """A call never waits for a loop that is gone, at any moment."""
    for _ in range(ROUNDS):
        background, refusals = BackgroundLoop(lambda function: function(), last=answer), list[ProducerClosedError]()
        background.start(idle)
        callers = [
            threading.Thread(target=call_until_refused, args=(background, refusals), daemon=True)
            for _ in range(CALLERS)
        ]
        for caller in callers:
            caller.start()

        background.submit(end_the_loop, LIMIT)
        for caller in callers:
            caller.join(PATIENCE_S)

        assert len(refusals) == CALLERS
        background.stop()
