"""The application's filters, handlers and processors may fail or block: records, starts and closes go on."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
import structlog

from aioproducer import IllegalStateError, Producer, TopicAuthorizationError
from aioproducer.testing import ApiKey, ErrorCode, FakeCluster, Where

PRODUCE = Where(api=ApiKey.PRODUCE)
LOG = logging.getLogger("aioproducer")


class Defect(BaseException):
    """As `gevent.Timeout` and `pytest.fail`: not an Exception."""


class FailingFilter(logging.Filter):
    """Raises for every record."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002  # the signature of its base
        """Fail."""
        raise self._error


class EmittingHandler(logging.Handler):
    def __init__(self, emit: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        self._emit(record)


def failing_filter(error: BaseException) -> None:
    LOG.addFilter(FailingFilter(error))


def failing_handler(error: BaseException) -> None:
    logging.getLogger().addHandler(EmittingHandler(FailingFilter(error).filter))


def failing_processor(error: BaseException) -> None:
    def processor(*_: object) -> str:
        raise error

    structlog.configure(processors=[processor])


def failing_logger_factory(error: BaseException) -> None:
    """Configure structlog so that no logger can be made."""

    def wrapper_class(*_: object, **__: object) -> structlog.BoundLogger:
        raise error

    structlog.configure(wrapper_class=wrapper_class)  # type: ignore[arg-type]  # not a class, on purpose


@pytest.fixture(autouse=True)
def at_debug() -> Iterator[None]:
    """Let every event through; forget what a test configures."""
    root = logging.getLogger()
    level, filters, handlers = LOG.level, list(LOG.filters), list(root.handlers)
    LOG.setLevel(logging.DEBUG)
    yield
    LOG.setLevel(level)
    LOG.filters[:], root.handlers[:] = filters, handlers
    structlog.reset_defaults()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """Exceptions that `sys.unraisablehook` was given."""
    exceptions: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: exceptions.append(report.exc_value))
    return exceptions


@pytest.mark.parametrize("error", [AttributeError("request_id"), Defect(), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("fail", [failing_filter, failing_handler, failing_processor, failing_logger_factory])
async def test_logging_that_raises_changes_nothing(
    reported: list[BaseException | None], fail: Callable[[BaseException], None], error: BaseException
) -> None:
    """A start, a refused batch, a lost broker and a close log events; the first exception is reported."""
    fail(error)
    async with FakeCluster(2, topics={"orders": 2}) as cluster:
        producer = await Producer(cluster.bootstrap_servers, linger_ms=0).start()
        cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, PRODUCE)
        with pytest.raises(TopicAuthorizationError):
            await producer.send("orders", b"refused", partition=0)
        await producer.send("orders", b"a", partition=0)
        await cluster.kill(1)
        for partition in range(2):
            await producer.send("orders", b"b", partition=partition)
        await producer.close()

    assert reported == [error]


def test_exit_asked_by_a_handler_comes_after_the_work() -> None:
    """`sys.exit` in a handler ends the program, as in any callback, but completes the current work first."""
    told: list[str] = []

    def exit_once(record: logging.LogRecord) -> bool:
        LOG.removeFilter(exit_once)
        raise SystemExit(record.levelno)

    async def main() -> None:
        async with FakeCluster(1, topics={"orders": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
            await producer.send("orders", b"v")
            LOG.addFilter(exit_once)
            cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, PRODUCE)
            await producer.send("orders", b"v", on_delivery=lambda _, error: told.append(type(error).__name__))

    with pytest.raises(SystemExit):
        asyncio.run(main())

    assert told == ["TopicAuthorizationError"]


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
async def test_handler_may_send_while_an_event_is_logged(level: int) -> None:
    """Events are logged in the middle of a start, an append or a settlement."""
    LOG.setLevel(level)
    lines: list[str] = []
    async with FakeCluster(2, topics={"orders": 2, "logs": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, linger_ms=0)

        def emit(record: logging.LogRecord) -> None:
            try:
                producer.send("logs", record.getMessage().encode(), on_delivery=lambda *_: None)
            except IllegalStateError:
                return  # not started, or closed
            lines.append(record.getMessage())

        logging.getLogger().addHandler(EmittingHandler(emit))
        await producer.start()
        cluster.faults.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, Where(api=ApiKey.PRODUCE, topic="orders"))
        with pytest.raises(TopicAuthorizationError):
            await producer.send("orders", b"refused", partition=0)
        await cluster.kill(1)
        for partition in range(2):
            await producer.send("orders", b"v", partition=partition)
        await producer.flush()
        written = {record.value for record in cluster.records("logs", 0)}
        LOG.setLevel(logging.CRITICAL)
        await producer.close()

    assert any("batch_failed" in line for line in lines)
    assert written >= {line.encode() for line in lines if "batch_failed" in line}


async def test_waiting_in_a_handler_on_the_loops_own_thread_is_refused() -> None:
    refusals: list[str] = []
    async with FakeCluster(1, topics={"logs": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:

        def emit(record: logging.LogRecord) -> None:
            with pytest.raises(IllegalStateError, match="event loop's own thread") as caught:
                producer.send_threadsafe("logs", record.getMessage().encode()).result()
            refusals.append(str(caught.value))

        application = logging.getLogger("application")
        handler = EmittingHandler(emit)
        application.addHandler(handler)
        try:
            application.warning("line")
        finally:
            application.removeHandler(handler)
        await producer.flush()
        assert len(refusals) == 1
