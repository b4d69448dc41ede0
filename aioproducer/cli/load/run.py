"""One run of `aioproducer load`, here or on Spark: progress, last line, report; and whether a failed one is decided."""

from __future__ import annotations

import enum
import json
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from aioproducer._admin.cluster_requests import NoResponseError
from aioproducer.cli.inspecting import inspected
from aioproducer.cli.load.settings import LoadSettings
from aioproducer.cli.process import (
    EXIT_FAILED,
    EXIT_LOST,
    EXIT_SIGNAL,
    EXIT_UNFINISHED,
    EXIT_USAGE,
    NARROW_COLUMNS,
    tell,
)
from aioproducer.cli.running import ending_signals, usage_error
from aioproducer.errors import BrokerError, ConfigurationError, KafkaError
from aioproducer.spark._commit import (
    ForgottenTransactionsError,
    LostTransactionsError,
    SinkCommit,
    UndecidedBatchError,
    UnfinishedCommitError,
)
from aioproducer.spark._coordinators import with_sink
from aioproducer.spark._decision_record import Decision
from aioproducer.spark._load_local import LocalLoad
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._row_groups import Split, find_splits
from aioproducer.spark._task import TaskError
from aioproducer.spark._write_choice import SinkConflictError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aioproducer import Producer
    from aioproducer.metrics import MetricValue


class RunState(enum.Enum):
    """Knowledge about a run."""

    DECIDED = enum.auto()
    """All of it is visible, or will be once its commit is finished."""
    UNDECIDED = enum.auto()
    """Nothing of it is or will be visible."""
    UNKNOWN = enum.auto()
    """The cluster does not answer, or the run's commit may still be running."""
    OVERTAKEN = enum.auto()
    """Another run under the sink was decided since, and the last decision no longer says whether this one was."""


_OF_TASKS: Final = frozenset(each.__name__ for each in (TaskError, UndecidedBatchError, SinkConflictError))
"""Errors of tasks, and of a commit before its decision; an abort raises none of them."""
_OF_REQUESTS: Final = frozenset(each.__name__ for each in (ConfigurationError, NoResponseError, BrokerError))
"""Errors that `SinkCommit.commit` raises only as long as no decision was sent. Spark may tell those of the abort."""
DRIVER_IS_GONE: Final = frozenset(
    {"Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "EOFError"}
)
"""Errors of a call to Spark's JVM that has died: its commit may still be running, in a process of its own."""
_OF_COMMIT: Final = {
    UnfinishedCommitError.__name__: EXIT_UNFINISHED,
    LostTransactionsError.__name__: EXIT_LOST,
    ForgottenTransactionsError.__name__: EXIT_LOST,
}
"""Exit codes of errors about a decided run."""
_OUTCOMES: Final = {
    RunState.DECIDED: "decided, unfinished",
    RunState.UNDECIDED: "failed",
    RunState.UNKNOWN: "not known",
    RunState.OVERTAKEN: "not known",
}


_SENT: Final = ("producer-metrics", "record-send-total")
"""The metric that counts records when their request leaves."""


class Interrupted(KeyboardInterrupt):
    """A signal has come."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def run_load(settings: LoadSettings, *, is_verbose: bool, listener: socket.socket | None = None) -> int:
    """Load, tell how it went, and return the exit code."""
    report = _opened_report(settings.report)
    run = LoadRun(settings, is_verbose=is_verbose, listener=listener)
    code = EXIT_FAILED
    with _raising_signals():
        try:
            code = _ended(run, is_on_spark=settings.master is not None)
        finally:
            if report is not None:
                run.write_report(report, code)
    return code


def _opened_report(path: str | None) -> TextIO | None:
    """Open the file of --report before anything is sent; a file that cannot be written is a usage error."""
    if path is None:
        return None
    try:
        return Path(path).open("w", encoding="utf-8")  # `write_report` closes it
    except OSError as error:
        usage_error(f"--report {path}: {error.strerror or error}")


def _ended(run: LoadRun, *, is_on_spark: bool) -> int:
    """Run, tell of a failure, and return the exit code."""
    try:
        run.to_end()
    except KeyboardInterrupt as interrupted:
        run.tell_interrupted()
        return EXIT_SIGNAL + getattr(interrupted, "number", signal.SIGINT)
    except KafkaError as error:
        return run.tell_failed(type(error).__name__, str(error))
    except Exception as error:  # of Spark: py4j's and its own classes
        if not is_on_spark:
            raise
        from aioproducer.spark._load_spark import in_one_line  # noqa: PLC0415  # needs pyspark

        return run.tell_failed(*in_one_line(error))
    return 0


class LoadRun:
    """One run of checked settings; `is_verbose` shows the log of Spark, a `listener` serves the inspector's page."""

    def __init__(self, settings: LoadSettings, *, is_verbose: bool, listener: socket.socket | None = None) -> None:
        self._settings = settings
        self._is_verbose = is_verbose
        self._listener = listener
        self._begun = time.monotonic()
        self._cold_s = 0.0
        self._splits: list[Split] = []
        self._read_rows = 0
        self._read_bytes = 0
        self._result: Mapping[str, object] = {}
        self._outcome = "failed"
        self._connects = False
        self._decision: RunDecision | None = None
        self._producer: Producer | None = None  # of a load without Spark, once there are rows

    def to_end(self) -> None:
        """Run; a `ConfigurationError` says that an input is wrong, any other as `LocalLoad.run`."""
        settings = self._settings
        if settings.reads_row_groups:
            self._splits = find_splits(settings.paths, settings.shape)
        if settings.master is None:
            self._here()
        else:
            self._on_spark(settings.master)

    def _here(self) -> None:
        with self._progress() as told:
            load = LocalLoad(self._settings.parsed_options(), self._splits, told, watch=self._watched)
            self._cold_s = time.monotonic() - self._begun
            if self._settings.dry_run:
                self._finish({**load.dry_run()._asdict()}, "dry run")
                return
            self._connect()
            self._finish(load.run())

    def _watched(self, producer: Producer) -> AbstractAsyncContextManager[None]:
        self._producer = producer
        return inspected(producer, self._listener)

    def _connect(self) -> None:
        """Note that the run is about to send, and the last decision of its sink; errors as `RunDecision.look`."""
        self._connects = True
        if self._settings.exactly_once:
            self._decision = self._new_decision()
            self._decision.look()

    def _new_decision(self) -> RunDecision:
        settings = self._settings
        return RunDecision(settings.parsed_options(), settings.query, is_on_spark=settings.master is not None)

    def _on_spark(self, master: str) -> None:
        from aioproducer.spark import _load_spark as load_spark  # noqa: PLC0415  # pyspark may not be installed

        settings = self._settings
        conf = settings.pairs_of_conf()
        started = load_spark.session(
            master, conf, is_verbose=self._is_verbose, reads_row_groups=settings.reads_row_groups
        )
        with started as spark, _task_bar(spark):
            tasks = load_spark.task_count(spark, settings.tasks, self._splits if settings.reads_row_groups else None)
            self._cold_s = time.monotonic() - self._begun
            if settings.reads_row_groups:
                self._row_groups_on_spark(spark, tasks)
            else:
                self._frame_on_spark(spark, tasks)

    def _row_groups_on_spark(self, spark: SparkSession, tasks: int) -> None:
        from aioproducer.spark import _load_spark as load_spark  # noqa: PLC0415  # as above

        if self._settings.dry_run:
            found = load_spark.dry_run(spark, self._splits, tasks=tasks, shape=self._settings.shape)
            self._finish(found, "dry run")
            return
        with self._report_of_spark(tasks) as options:
            load_spark.load_row_groups(spark, self._splits, tasks=tasks, options=options)

    def _frame_on_spark(self, spark: SparkSession, tasks: int) -> None:
        from aioproducer.spark import _load_spark as load_spark  # noqa: PLC0415  # as above

        settings = self._settings
        frame = load_spark.read_frame(spark, settings.paths, file_format=settings.format, sql=settings.sql)
        records = load_spark.as_records(frame, settings.shape)
        if settings.dry_run:
            self._finish({"rows": load_spark.counted(records)}, "dry run")
            return
        with self._report_of_spark(tasks) as options:
            # Each task has its share of the rate, so no more tasks may run than there are shares.
            load_spark.load_frame(records, settings.tasks if settings.rate is None else tasks, options)

    @contextmanager
    def _report_of_spark(self, tasks: int) -> Iterator[dict[str, str]]:
        """Give a write its options; afterwards, finish with what the data source has reported."""
        with tempfile.TemporaryDirectory(prefix="aioproducer-load-") as folder:
            report = Path(folder) / "report.jsonl"
            self._connect()
            yield {**self._settings.sink_options(tasks), "report": str(report)}
            self._finish(self._reported(report))

    def _reported(self, report: Path) -> Mapping[str, object] | None:
        """Return the data source's report of the batch; None if the run was finished before."""
        if self._decision is not None and self._decision.was_decided_before:
            return None
        lines = report.read_text("utf-8").splitlines() if report.exists() else []
        found: dict[str, object] = json.loads(lines[-1]) if lines else {"rows": 0}
        return found

    def _finish(self, result: Mapping[str, object] | None, outcome: str = "done") -> None:
        settings = self._settings
        if result is None:
            self._outcome = "finished before"
            tell(f"aioproducer: run {settings.run_id} of sink {settings.sink} was finished before: nothing was sent")
            return
        self._outcome, self._result = outcome, result
        seconds = time.monotonic() - self._begun - self._cold_s
        rows, skipped, retries = (self._count(name) for name in ("rows", "skipped", "retries"))
        verb = "would go to" if outcome == "dry run" else "committed to" if settings.exactly_once else "delivered to"
        line = f"{rows:,} record{'s' * (rows != 1)} {verb} {settings.topic} in {seconds:.1f} s"
        if seconds > 0:
            line += f" ({rows / seconds:,.0f} records/s{self._megabytes(seconds)})"
        line += f", {skipped:,} too large were skipped" if skipped else ""
        line += f", {retries:,} retried" if retries else ""
        line += f"; {self._cold_s:.1f} s to start Spark" if settings.master is not None else ""
        tell(f"aioproducer: {line}")

    def _count(self, name: str) -> int:
        found = self._result.get(name, 0)
        return found if isinstance(found, int) else 0

    def _megabytes(self, seconds: float) -> str:
        return f", {self._read_bytes / seconds / 1e6:,.1f} MB/s" if self._read_bytes else ""

    def tell_failed(self, name: str, text: str) -> int:
        """Print why the run failed, and return the exit code."""
        is_input_wrong = name == ConfigurationError.__name__ and not self._connects
        code = EXIT_USAGE if is_input_wrong else _OF_COMMIT.get(name, EXIT_FAILED)
        is_driver_gone = name in DRIVER_IS_GONE and self._settings.master is not None
        prefix = "Spark's JVM has ended: " if is_driver_gone else ""
        tell(f"aioproducer: {prefix}{text}")
        if self._decision is None or not self._decision.is_begun:
            return code
        names_this_run = name in _OF_COMMIT and f"[{self._settings.query}] is decided" in text
        if names_this_run and code == EXIT_LOST:
            self._outcome = "decided, rows lost"
            return code
        try:
            state = self._decision.after_error(name)
        except KeyboardInterrupt:
            state = RunState.UNKNOWN
        if names_this_run and state is RunState.UNKNOWN:
            state = RunState.DECIDED
        self._outcome = _OUTCOMES[state]
        tell(f"aioproducer: {self._advice(state, is_decided=names_this_run)}")
        # Of another run under this sink, whose commit is still to be finished, the code is its error's.
        return code if state is RunState.UNDECIDED or code == EXIT_LOST else EXIT_UNFINISHED

    def _advice(self, state: RunState, *, is_decided: bool = False) -> str:
        """Return what is visible of a run that did not end well, and how to go on.

        Args:
            is_decided: an error has said that the run was decided.
        """
        if state is RunState.UNDECIDED:
            return "Nothing of this run is visible"
        run, sink = self._settings.query, self._settings.sink
        if state is RunState.OVERTAKEN:
            unknown = f"all of [{run}] is visible" if is_decided else f"[{run}] is visible"
            return (
                f"It is not known whether {unknown}, because another run of sink {sink} was decided since: "
                f"look into {self._settings.topic} before you load again"
            )
        resolve = f"`aioproducer txn resolve --sink {sink}`"
        again = "a second load would send all of it again, because this one has no --run-id"
        if self._settings.run_id is not None:
            again = f"a second load with --run-id {self._settings.run_id} does the same, and sends nothing twice"
            again += " unless another run of the sink came between"
        in_time = "if done before the transactionTimeout of its tasks"
        if state is RunState.DECIDED:
            return f"[{run}] is decided: {resolve} makes all of it visible, {in_time}; {again}"
        return (
            f"It is not known whether [{run}] is visible: {resolve} says which run is committed, and makes all of it "
            f"visible, {in_time}; {again}"
        )

    def tell_interrupted(self) -> None:
        """Print what a signal has left."""
        self._outcome = "interrupted"
        topic = self._settings.topic
        if not self._connects:
            tell("aioproducer: interrupted: nothing was sent")
            return
        if not self._settings.exactly_once:
            read = f" after {self._read_rows:,} of {sum(each.rows for each in self._splits):,} rows were read"
            tell(f"aioproducer: interrupted{read if self._read_rows else ''}: {self._part_sent()}")
            return
        decision = self._decision or self._new_decision()
        try:
            state = decision.after_interrupt()
        except KeyboardInterrupt:
            tell(f"aioproducer: interrupted twice. {self._advice(RunState.UNKNOWN)}")
            return
        except KafkaError as error:
            sink = self._settings.sink
            tell(f"aioproducer: interrupted, and what is open is not known: {error}; later: txn resolve --sink {sink}")
            return
        match state:
            case RunState.DECIDED:
                tell(f"aioproducer: interrupted after the commit: all of the input is in {topic}")
            case RunState.UNDECIDED:
                tell(
                    f"aioproducer: interrupted: the transaction is aborted, nothing of the input is visible in {topic}"
                )
            case _:
                tell(f"aioproducer: interrupted. {self._advice(state)}")

    def _part_sent(self) -> str:
        """Return what an interrupted load without a transaction has left in the topic; its report counts that."""
        topic = self._settings.topic
        if self._settings.master is not None:
            return f"a part of the input may be in {topic}"  # Spark's tasks tell nothing before their end
        acknowledged, sent = self._acknowledged_and_sent()
        self._result = {"rows": acknowledged}
        if not sent:
            return "nothing was sent"
        if not acknowledged:
            return f"a part of the input may be in {topic}"
        more = ", and perhaps more" if sent != acknowledged else ""  # requests that nothing has answered
        return f"{topic} has {acknowledged:,} record{'s' * (acknowledged != 1)} of the input{more}"

    def _acknowledged_and_sent(self) -> tuple[int, MetricValue]:
        """Return the records that brokers have acknowledged, and those whose requests have left."""
        if self._producer is None:
            return 0, 0
        metrics = {(each.group, each.name): each.value for each in self._producer.metrics()}
        return self._producer.statistics().records_acknowledged, metrics.get(_SENT, 0)

    def write_report(self, file: TextIO, code: int) -> None:
        """Write the report and close its file; one that cannot be written is one line more."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        seconds = time.monotonic() - self._begun - self._cold_s
        rows = self._count("rows")
        document = {
            "outcome": self._outcome,
            "exit_code": code,
            "engine": "local" if self._settings.master is None else "spark",
            "topic": self._settings.topic,
            "sink": self._settings.sink,
            "run": self._settings.run_id,
            "files": len({each.path for each in self._splits}),
            "row_groups": len(self._splits),
            "seconds": round(seconds, 3),
            "seconds_to_start": round(self._cold_s, 3),
            "rows_per_second": round(rows / seconds) if seconds > 0 else 0,
            "cpu_seconds_of_this_process": round(own.ru_utime + own.ru_stime, 3),
            **self._result,
        }
        try:
            with file:
                file.write(json.dumps(document, indent=2) + "\n")
        except OSError as error:
            tell(f"aioproducer: --report {self._settings.report}: {error.strerror}")

    @contextmanager
    def _progress(self) -> Iterator[Callable[[int, int], None]]:
        """Count what is read, and show a bar on a terminal."""

        def count(rows: int, octets: int) -> None:
            self._read_rows += rows
            self._read_bytes += octets

        if not sys.stderr.isatty():
            yield count
            return
        from rich.console import Console  # noqa: PLC0415  # only on a terminal
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415  # as above

        console = Console(stderr=True)
        is_wide = console.width >= NARROW_COLUMNS
        columns = [
            *((BarColumn(bar_width=None),) if is_wide else ()),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("{task.fields[rate]:,.0f}/s"),
            *((TimeRemainingColumn(),) if is_wide else ()),
        ]
        total = sum(each.rows for each in self._splits)
        with Progress(*columns, console=console, transient=True, expand=is_wide) as progress:
            bar = progress.add_task("", total=total, rate=0.0)
            begun = time.monotonic()

            def show(rows: int, octets: int) -> None:
                count(rows, octets)
                rate = self._read_rows / max(time.monotonic() - begun, 0.1)
                progress.update(bar, completed=self._read_rows, rate=rate)

            yield show


@contextmanager
def _task_bar(spark: SparkSession) -> Iterator[None]:
    """Show how many of Spark's tasks have ended, on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415  # only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn  # noqa: PLC0415  # as above

    from aioproducer.spark._load_spark import task_progress  # noqa: PLC0415  # needs pyspark

    over = threading.Event()
    columns = [BarColumn(bar_width=None), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as progress:
        bar = progress.add_task("tasks", total=None)

        def follow() -> None:
            while not over.wait(0.5):
                done, tasks = task_progress(spark)
                if tasks:
                    progress.update(bar, completed=done, total=tasks)

        follower = threading.Thread(target=follow, name="aioproducer-progress", daemon=True)
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()


@contextmanager
def _raising_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does."""

    def interrupt(number: int, _: object) -> NoReturn:
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in ending_signals() if number != signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class RunDecision:
    """Compares the last decision of a sink before and after one run.

    Args:
        query: of the run, as its decision names it.
        is_on_spark: whether Spark runs it, which may tell the error of its abort in place of its own.
    """

    def __init__(self, options: SinkOptions, query: str, *, is_on_spark: bool = False) -> None:
        self._options = options
        self._query = query
        self._undecided = _OF_TASKS if is_on_spark else _OF_TASKS | _OF_REQUESTS
        self._before: tuple[int | None, str | None] | None = None

    def look(self) -> None:
        """Note the last decision, before the run sends anything.

        What an earlier run has left open is ended first: its decision may still be on its way.

        Raises:
            ConfigurationError: the topic does not exist.
            KafkaError: as `SinkCommit.resolve`.
        """
        self._before = self._ended()

    @property
    def was_decided_before(self) -> bool:
        """Whether an earlier run under the same id was decided."""
        return self._before is not None and self._before[1] == self._query

    @property
    def is_begun(self) -> bool:
        """Whether the run may have sent anything."""
        return self._before is not None

    def after_error(self, name: str) -> RunState:
        """Return the state of a run that failed, from the error's name, or from the cluster if that leaves it open."""
        if self.was_decided_before:
            return RunState.DECIDED
        if name in self._undecided:
            return RunState.UNDECIDED
        try:
            found = self._compared(_named(with_sink(self._options, SinkCommit.last_decision)))
        except KafkaError:
            return RunState.UNKNOWN
        is_open = found is RunState.UNDECIDED and name in DRIVER_IS_GONE
        return RunState.UNKNOWN if is_open else found

    def after_interrupt(self) -> RunState:
        """Finish what is decided of the sink, abort the rest, and return the state of the run.

        Raises:
            KafkaError: as `SinkCommit.resolve`.
        """
        return self._compared(self._ended())

    def _ended(self) -> tuple[int | None, str | None]:
        return _named(with_sink(self._options, SinkCommit.resolve))

    def _compared(self, last: tuple[int | None, str | None]) -> RunState:
        _, query = last
        if query == self._query:
            return RunState.DECIDED
        return RunState.UNDECIDED if self._before in {None, last} else RunState.OVERTAKEN


def _named(decision: Decision | None) -> tuple[int | None, str | None]:
    return (None, None) if decision is None else (decision.batch, decision.query)
