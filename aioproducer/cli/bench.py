"""`aioproducer bench`: this producer and its peers, measured one after another on one broker."""

import dataclasses
import datetime as dt
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from aiokafka.errors import KafkaError as ReaderError
from rich.console import Console

from aioproducer.cli.benchmark.bench_run import Bench
from aioproducer.cli.benchmark.brokers import BrokerUnderTest, NoBrokerError, embedded_broker, given_broker, real_broker
from aioproducer.cli.benchmark.machine import machine, versions
from aioproducer.cli.benchmark.report import BenchReport
from aioproducer.cli.benchmark.scenarios.enqueue import WORK as CLIENTS
from aioproducer.cli.benchmark.scenarios.registry import SCENARIOS
from aioproducer.cli.benchmark.sizes import FULL, QUICK
from aioproducer.cli.benchmark.tables import WIDTH, print_report
from aioproducer.cli.benchmark.worker_process import WorkerError
from aioproducer.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED
from aioproducer.cli.running import run_until_signal, usage_error
from aioproducer.config._bootstrap_servers import parse_bootstrap_servers
from aioproducer.errors import ConfigurationError
from aioproducer.testing.kafka import BrokerStartError, MissingToolError
from aioproducer.testing.kafka.kafka_jars import TESTED_VERSIONS, kafka_jars

KAFKA_VERSION = TESTED_VERSIONS[0]

STOPPERS = (NoBrokerError, WorkerError, ReaderError, OSError)
"""What may stop a bench without being a bug: brokers that do not answer, or no more."""


def bench(
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            help="Measure on this broker, or on several with commas, instead of starting one.",
        ),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Measure on the embedded cluster, which needs no Java.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help=f"Only this scenario: {' | '.join(SCENARIOS)}.")] = None,
    client: Annotated[list[str] | None, typer.Option(help=f"Only this client: {' | '.join(CLIENTS)}.")] = None,
    rounds: Annotated[int, typer.Option(min=0, help="How often each client is measured; 0: as the bench says.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="A short run that only shows that everything works.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write what was found to this file.")] = None,
) -> None:
    """Measure this producer beside its peers, on real Kafka 4.3.1 unless told otherwise, for about 15 minutes."""
    names = _known("--only", only or list(SCENARIOS), SCENARIOS)
    clients = _known("--client", client or [], CLIENTS)
    starting = _broker(bootstrap_server, embedded=embedded)
    _check_writable(json_file)
    report = BenchReport(
        started=dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        command=" ".join(sys.argv[2:]),
        machine=machine(),
        versions=versions(),
    )
    failures: list[str] = []
    sizes = QUICK if quick else FULL
    if rounds:
        sizes = dataclasses.replace(sizes, rounds=rounds)

    async def measure() -> None:
        async with starting as broker:
            report.broker = broker.name
            runs = Bench(broker, sizes, _say, java_jars=await _java_jars(), clients=clients, failures=failures)
            report.settings.update(runs.settings())
            await runs.warm_up_broker()
            for name in names:
                _say(f"--- {name}")
                report.scenarios.append(await SCENARIOS[name](runs))

    _run(measure)
    if len(report.scenarios) < len(names):
        _end_unfinished(report, len(names))
    _publish(report, failures, json_file)


def _check_writable(json_file: Path | None) -> None:
    """End with a usage error if the file cannot be written, before the time is spent; what is there is kept."""
    try:
        if json_file is not None:
            json_file.open("a").close()
    except OSError as error:
        usage_error(f"--json {json_file}: {error.strerror or error}")


def _run(measure: Callable[[], Awaitable[None]]) -> None:
    """Measure; ends with a line where that cannot be, or not be finished."""
    try:
        run_until_signal(measure)
    except MissingToolError as missing:
        usage_error([*missing.missing, "or measure on the embedded cluster: aioproducer bench --embedded"])
    except BrokerStartError as failed:
        usage_error(str(failed))
    except STOPPERS as failed:
        _say(f"aioproducer: {_in_one_line(failed)}")
        sys.exit(EXIT_FAILED)


def _end_unfinished(report: BenchReport, scenarios: int) -> NoReturn:
    """Print what was measured before a signal came; a report of all that a file holds is not given up for it."""
    if report.scenarios:
        print_report(Console(width=WIDTH), report)
    _say(f"aioproducer: interrupted after {len(report.scenarios)} of {scenarios} scenarios; no file was written")
    sys.exit(EXIT_INTERRUPTED)


def _publish(report: BenchReport, failures: Sequence[str], json_file: Path | None) -> None:
    """Print and write the report; exits with 1 if a client failed."""
    print_report(Console(width=WIDTH), report)
    try:
        if json_file is not None:
            json_file.write_text(report.to_json(), "utf-8")
    except OSError as error:
        failures = [*failures, f"--json {json_file}: {error.strerror or error}; the figures are above"]
    for failure in failures:
        _say(f"failed: {failure}")
    if failures:
        sys.exit(EXIT_FAILED)


def _broker(bootstrap_server: str | None, *, embedded: bool) -> AbstractAsyncContextManager[BrokerUnderTest]:
    """The broker that was asked for, not started yet; ends with a usage error if two were."""
    if bootstrap_server is None:
        return embedded_broker() if embedded else real_broker(KAFKA_VERSION)
    if embedded:
        usage_error("--bootstrap-server and --embedded exclude each other")
    try:
        parse_bootstrap_servers(bootstrap_server)
    except ConfigurationError as error:
        usage_error(str(error))
    return given_broker(bootstrap_server)


async def _java_jars() -> str:
    """The class path of Java's load generator; empty, with the reason, where it cannot be had."""
    try:
        return str(await kafka_jars(KAFKA_VERSION, tools=True))
    except BrokerStartError as missing:
        _say(f"without the Java producer: {missing}")
        return ""


def _in_one_line(failed: BaseException) -> str:
    """What stopped the bench; of a worker's last words the last ones, which name the error."""
    said = [line.strip() for line in str(failed).splitlines()] or [type(failed).__name__]
    return said[0] if len(said) == 1 else f"{said[0]}: {said[-1]}"


def _known(option: str, names: Sequence[str], known: Collection[str]) -> Sequence[str]:
    """The names as given; ends with a usage error for one that does not exist."""
    for name in names:
        if name not in known:
            usage_error(f"{option} {name}: must be one of {' | '.join(known)}")
    return names


def _say(line: str) -> None:
    """Show progress, apart from the result."""
    print(line, file=sys.stderr, flush=True)
