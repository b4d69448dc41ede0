"""`aioproducer demo`: several hundred thousand real records, a broker that dies, and every record read back."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, Protocol

import anyio
import typer
from aiokafka.errors import KafkaError as ReaderError
from rich.console import Console
from rich.text import Text

from aioproducer import KafkaError
from aioproducer.cli.demonstration.clusters import EmbeddedClusterError, EmbeddedClusterProcess, ShowCluster
from aioproducer.cli.demonstration.flights import FLIGHTS
from aioproducer.cli.demonstration.leader_watch import TopicNotMadeError
from aioproducer.cli.demonstration.live_screen import LiveScreen
from aioproducer.cli.demonstration.log_tail import LogTail
from aioproducer.cli.demonstration.plain_lines import PlainLines
from aioproducer.cli.demonstration.progress import Progress
from aioproducer.cli.demonstration.show import Plan, Show
from aioproducer.cli.demonstration.tampering import Harm
from aioproducer.cli.demonstration.transfers.show import TransferPlan, TransferShow
from aioproducer.cli.demonstration.transfers.verdict_text import transfer_lines
from aioproducer.cli.demonstration.transfers.worker_process import WorkerEndedError
from aioproducer.cli.demonstration.verdict import verdict_lines
from aioproducer.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED
from aioproducer.cli.kafka_version import require_kafka
from aioproducer.cli.running import run_until_signal, usage_error
from aioproducer.cli.standard_streams import discard
from aioproducer.testing.kafka import BrokerStartError, KafkaCluster, MissingToolError

PACED_S = 24.0
"""How long the sending takes unless told otherwise; with the rest about half a minute."""

LEAST_RECORDS = 1_000

ORDERS_DEFAULT, LEAST_ORDERS, MOST_ORDERS = 3_000, 300, 100_000
"""Of the demo of transactions."""

STOPPERS = (
    KafkaError,
    ReaderError,
    BrokerStartError,
    EmbeddedClusterError,
    TopicNotMadeError,
    WorkerEndedError,
    OSError,
)
"""What may stop a demo without being a bug."""


class Screen(Protocol):
    """Where a demo is seen."""

    async def follow(self, progress: Progress) -> None:
        """Show it until cancelled."""

    def finish(self, progress: Progress) -> None:
        """Show the last of it."""


class Pronounced(NamedTuple):
    """What came of a demo."""

    holds: bool
    lines: tuple[str, ...]
    """The first one is the sentence that counts."""


class Performance(NamedTuple):
    """One demo, ready to be played."""

    total: int
    """What it counts to."""
    play: Callable[[ShowCluster, Progress], Awaitable[Pronounced]]


def demo(
    speed: Annotated[
        str, typer.Option(metavar="paced|max|N", help="About 30 s in all, as fast as it goes, or N records/s.")
    ] = "paced",
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="On three nodes of real Apache Kafka, such as 4.3.1; the first time it is fetched."
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(help="Send only so many.  [default: 336776, with --transactions 3000]", show_default=False),
    ] = None,
    transactions: Annotated[
        bool,
        typer.Option(
            "--transactions",
            help="Transfer money between accounts instead, while a worker and a broker are killed, and add it up.",
        ),
    ] = False,
    tamper: Annotated[Harm | None, typer.Option(help="Harm what was read back, to see the check fail.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines, also on a terminal.")] = False,
) -> None:
    """Stream 336,776 real flights while a broker dies, and read every one back. Exit code 0 only if all came."""
    performance = _transfers(speed, records, tamper) if transactions else _flights(speed, records, tamper)
    if kafka is not None:
        require_kafka(kafka)
    cluster: ShowCluster = EmbeddedClusterProcess() if kafka is None else KafkaCluster(kafka, nodes=3)
    where = "3 embedded brokers" if kafka is None else f"Apache Kafka {kafka}, 3 nodes"
    console = Console()
    is_live = console.is_terminal and not console.is_dumb_terminal and not plain
    try:
        verdict = _play(performance, cluster, where, LiveScreen(console) if is_live else PlainLines(sys.stdout))
    except KeyboardInterrupt:  # before the event loop took over the signal
        verdict = None
    except BrokenPipeError:  # as in `aioproducer demo | head`: nobody reads on, and Python must not say so at exit
        discard(sys.stdout)
        sys.exit(EXIT_FAILED)
    if verdict is None:
        print("\ninterrupted; nothing is left running", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    _pronounce(verdict, console)
    sys.exit(0 if verdict.holds else EXIT_FAILED)


def _flights(speed: str, records: int | None, tamper: Harm | None) -> Performance:
    """The demo of flights; ends with a usage error for what cannot be."""
    total = FLIGHTS if records is None else records
    if not LEAST_RECORDS <= total <= FLIGHTS:
        usage_error(f"--records {total}: must be {LEAST_RECORDS} to {FLIGHTS}")
    plan = Plan(records=total, records_per_s=_records_per_s(speed, total), tamper=tamper)

    async def play(cluster: ShowCluster, progress: Progress) -> Pronounced:
        verdict = await Show(plan, cluster, progress).run()
        return Pronounced(verdict.holds, tuple(verdict_lines(verdict)))

    return Performance(total, play)


def _transfers(speed: str, records: int | None, tamper: Harm | None) -> Performance:
    """The demo of transactions; ends with a usage error for what cannot be."""
    total = ORDERS_DEFAULT if records is None else records
    if not LEAST_ORDERS <= total <= MOST_ORDERS:
        usage_error(f"--records {total}: must be {LEAST_ORDERS} to {MOST_ORDERS} with --transactions")
    if tamper not in {None, Harm.MISSING}:
        usage_error(f"--tamper {tamper}: must be missing with --transactions")
    plan = TransferPlan(orders=total, orders_per_s=_records_per_s(speed, total), loses_one=tamper is Harm.MISSING)

    async def play(cluster: ShowCluster, progress: Progress) -> Pronounced:
        verdict = await TransferShow(plan, cluster, progress).run()
        return Pronounced(verdict.holds, tuple(transfer_lines(verdict)))

    return Performance(total, play)


def _records_per_s(speed: str, records: int) -> float | None:
    """The pace that `--speed` asks for; ends with a usage error for one that is none."""
    if speed == "max":
        return None
    if speed == "paced":
        return records / PACED_S
    if not speed.isdecimal() or int(speed) == 0:
        usage_error(f"--speed {speed!r}: must be paced, max, or a number of records a second")
    return float(speed)


def _play(performance: Performance, cluster: ShowCluster, where: str, screen: Screen) -> Pronounced | None:
    """Play the demo; None if a signal ended it. Ends with a line and a code where it cannot go on."""
    verdict: Pronounced | None = None
    tail = LogTail()
    tail.install()

    async def play() -> None:
        nonlocal verdict
        progress = Progress(cluster=where, total=performance.total)
        async with anyio.create_task_group() as group:
            group.start_soon(screen.follow, progress)
            verdict = await performance.play(cluster, progress)
            group.cancel_scope.cancel()
        screen.finish(progress)

    try:
        run_until_signal(play)
    except Exception as raised:
        _explain(_cause(raised), tail)
        raise
    if verdict is not None and not verdict.holds:
        _say_last_events(tail)
    return verdict


def _cause(raised: Exception) -> BaseException:
    """The exception that task groups have wrapped, the first where there are several."""
    cause: BaseException = raised
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause


def _explain(cause: BaseException, tail: LogTail) -> None:
    """End with a line on what stopped the demo, if that is something a user can understand; return if it is a bug.

    Raises:
        BrokenPipeError: nobody reads what the demo says.
    """
    if isinstance(cause, BrokenPipeError):
        raise cause
    if isinstance(cause, MissingToolError):
        usage_error(cause.missing)
    if isinstance(cause, STOPPERS):
        _say_last_events(tail)
        print(f"aioproducer demo: {cause}", file=sys.stderr)
        sys.exit(EXIT_FAILED)


def _say_last_events(tail: LogTail) -> None:
    """Show the end of the producer's log."""
    for line in tail.lines:
        print(f"  log: {line}", file=sys.stderr)


def _pronounce(verdict: Pronounced, console: Console) -> None:
    """Print the verdict, its first line in green or red where there are colours."""
    sentence, *figures = verdict.lines
    console.print()
    console.print(Text(sentence, "bold green" if verdict.holds else "bold red"), soft_wrap=True)
    for line in figures:
        console.print(Text(line), soft_wrap=True)
