"""`aioproducer tail`: shows the records of a topic, with aiokafka's consumer."""

import asyncio
import base64
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

import anyio
import typer
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaConnectionError, KafkaError

from aioproducer._protocol.cluster_text import printable
from aioproducer.cli.arguments import BootstrapServer, ConfigFile, connection_config, required_text
from aioproducer.cli.connecting import CONNECT_TIMEOUT_S, connected
from aioproducer.cli.process import EXIT_FAILED
from aioproducer.cli.running import run_until_signal, usage_error
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigurationError
from aioproducer.errors import KafkaError as OwnError
from aioproducer.integrations._aiokafka_security import aiokafka_security, check_readable
from aioproducer.records import check_topic_name

CLIENT_ID = "aioproducer-tail"
STOP_TIMEOUT_S = 3.0
BATCH_WAIT_MS = 500
MAX_BATCH_RECORDS = 1_000
COMMIT_INTERVAL_S = 1.0
PASSING_S = 1.0  # shorter errors are not shown: a coordinator is being elected, a leader moves
REPEAT_AFTER_S = 60.0
APPEND_TIME: Final = 1
NULL: Final = "null"
STANDARD_OUTPUT = 1
EVERYTHING = 2**63 - 1
TOPIC_POLL_S = 0.5


class TailFormat(StrEnum):
    """Format of the output."""

    TEXT = "text"
    JSON = "json"
    VALUE = "value"


def tail(
    topic: Annotated[str, typer.Argument(help="What to read.", show_default=False)],
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Begin with the oldest records; a group with committed offsets continues there."
        ),
    ] = False,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Read as a member of this group, and commit what was shown.")
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out records of transactions that are open or aborted.")
    ] = False,
    output_format: Annotated[
        TailFormat,
        typer.Option(
            "--format",
            "-f",
            help="text: PARTITION:OFFSET, key and value with tabs between; non-text bytes as 0x... "
            'json: an object with every field; non-text bytes as {"base64": "..."}. '
            "value: the bytes of the value.",
        ),
    ] = TailFormat.TEXT,
    max_records: Annotated[
        int | None, typer.Option("--max", "-n", min=1, metavar="N", help="End after N records.")
    ] = None,
) -> None:
    """Show new records of a topic, until Ctrl-C; waits for a topic that does not exist yet.

    Exit code 0: ended by a signal, or after --max records.
    1: no broker answers, or one refuses.
    2: invalid usage.
    """
    _check(topic)
    group = None if group is None else required_text("--group", group)
    cluster = connection_config(bootstrap_server, config, client_id=CLIENT_ID)
    try:
        check_readable(cluster)
    except ConfigurationError as error:
        usage_error(str(error))
    settings = TailSettings(topic, cluster, from_beginning=from_beginning, group=group, read_committed=read_committed)
    log = ConsumerLog()
    try:
        run_until_signal(lambda: _follow(settings, log, line_writer(output_format), max_records or EVERYTHING))
    except ReaderGoneError:
        return
    except UnreachableError as unreachable:
        _fail(f"{unreachable}: {log.last}" if log.last else str(unreachable))
    except (KafkaError, OwnError, OSError) as error:
        _fail(str(error) or type(error).__name__)


async def _follow(
    settings: "TailSettings", log: "ConsumerLog", line: Callable[[ConsumerRecord], bytes], max_records: int
) -> None:
    """Show the records; a topic that is created later is shown from its first record."""
    async with connected(settings.cluster, CONNECT_TIMEOUT_S, client_id=CLIENT_ID):
        """A broker answers: aiokafka's consumer gives up at the first refused connection, without the reason."""
    async with started_tail(settings) as tailed:
        log.is_shown = True
        if await tailed.has_topic():
            await _show(tailed, line, max_records)
            return
        print(f"aioproducer: there is no topic {settings.topic} yet: waiting for it; Ctrl-C ends", file=sys.stderr)
        while not await _has_appeared(tailed):  # noqa: ASYNC110 - brokers send no events
            await anyio.sleep(TOPIC_POLL_S)
    # Another consumer: the first would begin at the end, and ignore a seek while it looks that up.
    async with started_tail(replace(settings, from_beginning=True)) as tailed:
        await _show(tailed, line, max_records)


async def _has_appeared(tailed: "Tail") -> bool:
    try:
        return await tailed.has_topic()
    except KafkaError:  # no broker answers now: `ConsumerLog` says why
        return False


async def _show(tailed: "Tail", line: Callable[[ConsumerRecord], bytes], max_records: int) -> None:
    await tailed.subscribe()
    print(f"aioproducer: reading {tailed.topic}; Ctrl-C ends", file=sys.stderr)
    left = max_records
    while left:
        records = await tailed.next_batch(left)
        if records:
            await write(b"".join(map(line, records)))
            tailed.done(records)
            left -= len(records)
        elif is_reader_gone():
            return


def _check(topic: str) -> None:
    try:
        check_topic_name(topic)
    except ValueError as error:
        usage_error(str(error))


def _fail(line: str) -> None:
    print(f"aioproducer: {printable(line, None)}", file=sys.stderr)
    sys.exit(EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class TailSettings:
    """The topic, and how it is read."""

    topic: str
    cluster: ProducerConfig
    from_beginning: bool = False
    group: str | None = None
    read_committed: bool = False


class UnreachableError(Exception):
    """No broker answered."""


class Tail:
    """A started consumer of one topic.

    Offsets of a group are committed only for records that the caller has finished.
    """

    def __init__(self, consumer: AIOKafkaConsumer, settings: TailSettings) -> None:
        self._consumer = consumer
        self._settings = settings
        self._next_offsets: dict[TopicPartition, int] = {}
        self._commit_at = time.monotonic() + COMMIT_INTERVAL_S

    async def has_topic(self) -> bool:
        return self._settings.topic in await self._consumer.topics()

    @property
    def topic(self) -> str:
        return self._settings.topic

    async def subscribe(self) -> None:
        """Read the topic; without a group, every record after this call is read."""
        self._consumer.subscribe([self._settings.topic])
        if self._settings.group is not None:
            return
        while not self._consumer.assignment():  # noqa: ASYNC110 - no event
            await anyio.sleep(0.01)
        for partition in self._consumer.assignment():
            await self._consumer.position(partition)

    async def next_batch(self, at_most: int) -> Sequence[ConsumerRecord]:
        """Return up to `at_most` records, or none after half a second."""
        await self._commit_now_and_then()
        batches: Mapping[TopicPartition, Sequence[ConsumerRecord]] = await self._consumer.getmany(
            timeout_ms=BATCH_WAIT_MS, max_records=min(at_most, MAX_BATCH_RECORDS)
        )
        return [record for batch in batches.values() for record in batch]

    def done(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            self._next_offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1

    async def commit(self) -> None:
        """Commit finished records of a group; after a rebalance, the new owner reads them again."""
        offsets, self._next_offsets = self._next_offsets, {}
        if self._settings.group is None or not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except CommitFailedError:
            return

    async def _commit_now_and_then(self) -> None:
        if time.monotonic() >= self._commit_at:
            await self.commit()
            self._commit_at = time.monotonic() + COMMIT_INTERVAL_S


@asynccontextmanager
async def started_tail(settings: TailSettings) -> AsyncIterator[Tail]:
    """Start a consumer for the block, and commit finished records after it, also if it is cancelled."""
    security = await aiokafka_security(settings.cluster)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=list(settings.cluster.bootstrap_servers),
        client_id=CLIENT_ID,
        group_id=settings.group,
        auto_offset_reset="earliest" if settings.from_beginning else "latest",
        isolation_level="read_committed" if settings.read_committed else "read_uncommitted",
        enable_auto_commit=False,
        metadata_max_age_ms=30_000,
        **security,
    )
    tail = Tail(consumer, settings)
    try:
        await _start(consumer, settings)
        yield tail
    finally:
        with anyio.move_on_after(STOP_TIMEOUT_S, shield=True):
            try:
                await tail.commit()
            except KafkaError:
                pass  # these records will be shown again
            finally:
                await consumer.stop()


async def _start(consumer: AIOKafkaConsumer, settings: TailSettings) -> None:
    try:
        with anyio.fail_after(CONNECT_TIMEOUT_S):
            await consumer.start()
    except (KafkaConnectionError, TimeoutError) as error:
        raise UnreachableError(f"no broker answers at {','.join(settings.cluster.bootstrap_servers)}") from error


class ConsumerLog(logging.Handler):
    """Handles aiokafka's errors: keeps the last one while the consumer starts, later shows lasting ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Replace the handler that would print all errors."""
        super().__init__(logging.ERROR)
        self.is_shown = False
        self.last: str = ""
        self._clock = clock
        self._show_at: dict[str, float] = {}
        library = logging.getLogger("aiokafka")
        library.addHandler(self)
        library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.last = message = record.getMessage()
        now = self._clock()
        if not self.is_shown or now < self._show_at.setdefault(message, now + PASSING_S):
            return
        self._show_at[message] = now + REPEAT_AFTER_S
        print(f"aioproducer: {printable(message, None)}", file=sys.stderr)


def line_writer(kind: TailFormat) -> Callable[[ConsumerRecord], bytes]:
    return {TailFormat.TEXT: text_line, TailFormat.JSON: json_line, TailFormat.VALUE: value_line}[kind]


def text_line(record: ConsumerRecord) -> bytes:
    r"""Return `PARTITION:OFFSET KEY VALUE` with tabs between.

    Control characters are escaped as in Python (`\n`, `\x1b`), so that a record is one line and cannot control the
    terminal; bytes that are not UTF-8 are `0x` and hex digits; null is `null`.
    """
    return f"{record.partition}:{record.offset}\t{_shown(record.key)}\t{_shown(record.value)}\n".encode()


def json_line(record: ConsumerRecord) -> bytes:
    """Return a JSON object; a key, value or header that is not UTF-8 becomes `{"base64": "..."}`."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "append" if record.timestamp_type == APPEND_TIME else "create",
        "key": _json(record.key),
        "value": _json(record.value),
        "headers": [[name, _json(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def value_line(record: ConsumerRecord) -> bytes:
    return (record.value or b"") + b"\n"


def _shown(content: bytes | None) -> str:
    if content is None:
        return NULL
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
    return printable(text, None)


def _json(content: bytes | None) -> str | Mapping[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


class ReaderGoneError(Exception):
    """The reader of standard output has closed the pipe, as after `| head`."""


async def write(content: bytes) -> None:
    """Write everything.

    A slow reader such as a pager blocks a thread and not the loop, which sends the consumer's heartbeats. The thread
    is a daemon and writes to the descriptor, so that the process can end in the middle.

    Raises:
        ReaderGoneError: the reader closed the pipe.
        OSError: the disk is full, or similar.
    """
    loop = asyncio.get_running_loop()
    written: asyncio.Future[None] = loop.create_future()

    def end(error: OSError | None) -> None:
        if written.done():
            return
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(_told(error))

    def run() -> None:
        error = _write_all(content)
        if not loop.is_closed():
            loop.call_soon_threadsafe(end, error)

    threading.Thread(target=run, name="aioproducer-output", daemon=True).start()
    await written


def is_reader_gone() -> bool:
    poll = select.poll()
    poll.register(STANDARD_OUTPUT, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _told(error: OSError) -> Exception:
    if isinstance(error, BrokenPipeError):
        return ReaderGoneError()
    return OSError(f"standard output: {error.strerror or error}")


def _write_all(content: bytes) -> OSError | None:
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[os.write(STANDARD_OUTPUT, rest) :]
    except OSError as error:
        return error
    return None
