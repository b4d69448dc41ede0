"""`aioproducer tail`: shows the records of a topic, with aiokafka's consumer."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import anyio
import typer
from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from aioproducer._shown_values import how_to_create
from aioproducer.cli._tail_consumer import (
    CLIENT_ID,
    ConsumerLog,
    Tail,
    TailSettings,
    UnreachableError,
    UnreadableRecordError,
    started_tail,
)
from aioproducer.cli._tail_output import ReaderGoneError, TailFormat, is_reader_gone, line_writer, write
from aioproducer.cli.arguments import BootstrapServer, ConfigFile, TokenProviderName, connection_config, required_text
from aioproducer.cli.connecting import CONNECT_TIMEOUT_S, connected
from aioproducer.cli.process import EXIT_FAILED, tell
from aioproducer.cli.running import run_until_signal, usage_error
from aioproducer.errors import ConfigurationError
from aioproducer.errors import KafkaError as OwnError
from aioproducer.integrations._aiokafka_security import check_readable
from aioproducer.records import check_topic_name

EVERYTHING = 2**63 - 1
TOPIC_POLL_S = 0.5


def tail(
    topic: Annotated[str, typer.Argument(help="What to read.", show_default=False)],
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    token_provider: TokenProviderName = None,
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
    1: no broker answers, or one refuses; a record cannot be read.
    2: invalid usage.
    """
    _check(topic)
    group = None if group is None else required_text("--group", group)
    cluster = connection_config(bootstrap_server, config, client_id=CLIENT_ID, token_provider=token_provider)
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
    except (KafkaError, OwnError, OSError, UnreadableRecordError) as error:
        _fail(str(error) or type(error).__name__)


async def _follow(
    settings: TailSettings, log: ConsumerLog, line: Callable[[ConsumerRecord], bytes], max_records: int
) -> None:
    """Show the records; a topic that is created later is shown from its first record."""
    async with connected(settings.cluster, CONNECT_TIMEOUT_S, client_id=CLIENT_ID):
        """A broker answers: aiokafka's consumer gives up at the first refused connection, without the reason."""
    async with started_tail(settings) as tailed:
        log.is_shown = True
        if await tailed.has_topic():
            await _show(tailed, line, max_records)
            return
        waiting = f"there is no topic {settings.topic} yet: waiting for it; {how_to_create(settings.topic)}"
        tell(f"aioproducer: {waiting}; Ctrl-C ends")
        while not await _has_appeared(tailed):  # noqa: ASYNC110 - brokers send no events
            await anyio.sleep(TOPIC_POLL_S)
    # Another consumer: the first would begin at the end, and ignore a seek while it looks that up.
    async with started_tail(replace(settings, from_beginning=True)) as tailed:
        await _show(tailed, line, max_records)


async def _has_appeared(tailed: Tail) -> bool:
    try:
        return await tailed.has_topic()
    except KafkaError:  # no broker answers now: `ConsumerLog` says why
        return False


async def _show(tailed: Tail, line: Callable[[ConsumerRecord], bytes], max_records: int) -> None:
    await tailed.subscribe()
    tell(f"aioproducer: reading {tailed.topic}; Ctrl-C ends")
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
    tell(f"aioproducer: {line}")
    sys.exit(EXIT_FAILED)
