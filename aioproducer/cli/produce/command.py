"""`aioproducer produce`: lines, JSON lines or CSV, from files or standard input, into a topic."""

import logging
import math
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import anyio
import structlog
import typer

from aioproducer._threads.installed_uvloop import installed_uvloop
from aioproducer.cli.arguments import (
    MOST_SECONDS,
    OF_OBJECTS,
    BootstrapServer,
    ConfigFile,
    FileProperties,
    TokenProviderName,
    file_properties,
    tell_ignored,
    tell_unused_id,
    text_of,
)
from aioproducer.cli.inspecting import InspectPort, listener_of
from aioproducer.cli.process import tell
from aioproducer.cli.produce.input import Format, find_inputs
from aioproducer.cli.produce.report import RunResult, Tally, summary
from aioproducer.cli.produce.run import LONGEST_TRANSACTION_MS, FeedSettings, Run
from aioproducer.cli.running import usage_error
from aioproducer.config import ProducerConfig
from aioproducer.config._option_names import kafka_name, python_name, reason_to_ignore
from aioproducer.errors import ConfigurationError
from aioproducer.records import MAX_PARTITION, check_topic_name
from aioproducer.security._cleared_frames import clears_frames

_SETUP_TIMEOUT = "socket.connection.setup.timeout"

DEFAULT_PROPERTIES: Mapping[str, str] = {
    "client.id": "aioproducer-produce",
    "max.block.ms": "10000",  # a wrong address or topic is reported after ten seconds, not after a minute
    f"{_SETUP_TIMEOUT}.ms": "4000",  # so that the reason is known by then
}

_TRANSACTIONAL_ID = "transactional.id"
OWN_OPTIONS: Mapping[str, str] = {"bootstrap.servers": "--bootstrap-server", _TRANSACTIONAL_ID: "--transactional-id"}
"""Property -> the option of this command that replaces it."""


def produce(
    topic: Annotated[str, typer.Argument(help="Topic of the records.", show_default=False)],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Input; - or none for standard input.", show_default=False),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    config_file: ConfigFile = None,
    token_provider: TokenProviderName = None,
    input_format: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="lines: each line is a value, byte for byte; an empty line is an empty value. "
            "jsonl: each line is a JSON text, and is the value, unchanged; blank lines are skipped. "
            "csv: the first row names the fields; every other row becomes a JSON object of strings.",
        ),
    ] = Format.LINES,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The jsonl or csv field that becomes the key; customer.id is a field within a field. "
            "null, or an empty csv cell, is no key.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of every record; may be given again.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, max=MAX_PARTITION, help="Send everything to this partition.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-X", metavar="NAME=VALUE", help="An option of the producer by Kafka's name: linger.ms=20."
        ),
    ] = None,
    transactional: Annotated[
        bool,
        typer.Option(
            "--transactional",
            help="All of the input or nothing: read_committed consumers see all of it together, when it is complete.",
        ),
    ] = False,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Id for --transactional. A second run with the same id stops the first, and aborts what a killed run "
            "left open. Without it: aioproducer-produce-TOPIC.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="At most N records per second.")] = None,
    skip_bad_lines: Annotated[
        bool,
        typer.Option(
            "--skip-bad-lines",
            help="Skip an invalid line, or a record that the broker rejects; "
            "without it the first one ends the run, and the lines before it are delivered.",
        ),
    ] = False,
    drain_timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Seconds to wait after Ctrl-C for accepted records to be delivered."),
    ] = 10.0,
    inspect: InspectPort = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the producer's log on standard error.")
    ] = False,
) -> None:
    """Send lines, JSON lines or CSV rows to a topic, in constant memory.

    Exit code 0: everything was delivered.
    1: some lines were not delivered; the report says which, and why. With --transactional, nothing was sent visibly.
    2: invalid usage, such as a file that is not there; nothing was sent.
    130, 143, 129: ended by Ctrl-C, SIGTERM or SIGHUP. Accepted records are delivered first (--transactional: aborted).
    A second signal stops immediately.
    """
    inputs, problems = find_inputs(files or [])
    transactional_id = _text("--transactional-id", transactional_id, problems)
    settings = FeedSettings(
        topic=topic,
        inputs=inputs,
        format=input_format,
        key=_text("--key", key, problems),
        partition=partition,
        headers=tuple((name, os.fsencode(value)) for name, value in _pairs("--header", header or [], problems)),
        skip_bad_lines=skip_bad_lines,
        records_per_s=rate,
        is_one_transaction=transactional,
    )
    problems += _argument_problems(settings, drain_timeout)
    given = _properties(properties or [], problems)
    file = file_properties(config_file, token_provider)
    defaults = DEFAULT_PROPERTIES
    if transactional:
        default_id = file.all.get(_TRANSACTIONAL_ID, f"aioproducer-produce-{topic}")
        defaults = {
            **DEFAULT_PROPERTIES,
            _TRANSACTIONAL_ID: default_id if transactional_id is None else transactional_id,
            "transaction.timeout.ms": str(LONGEST_TRANSACTION_MS),  # a --property may shorten it
        }
    elif transactional_id is not None:
        problems.append(f"--transactional-id {transactional_id!r} needs --transactional")
    given = {**file.besides([*given, _TRANSACTIONAL_ID]), **given}
    config = _config(file.servers(bootstrap_server), given, {**defaults, **file.provided}, file=file, problems=problems)
    if config is None or problems:
        usage_error(problems)
    tell_ignored(file)
    if not transactional:
        tell_unused_id(file, "without --transactional there is no transaction")
    listener = listener_of(inspect)
    _show_logs(verbose=verbose)
    result, tally = _run(config, settings, drain_timeout, listener)
    for line in summary(result, tally):
        tell(f"aioproducer: {line}")
    sys.exit(result.exit_code)


def _text(name: str, argument: str | None, problems: list[str]) -> str | None:
    """Return the argument as UTF-8; anything else becomes a problem."""
    try:
        return None if argument is None else text_of(name, argument)
    except ValueError as error:
        problems.append(str(error))
        return None


def _properties(arguments: Sequence[str], problems: list[str]) -> dict[str, str]:
    """Return the values of --property; those with an option of their own, no use here, or not UTF-8 are problems."""
    given = {}
    for name, value in _pairs("--property", arguments, problems):
        option, reason = OWN_OPTIONS.get(name.replace("_", ".")), reason_to_ignore(python_name(name))
        if option is not None:
            problems.append(f"--property {name}: use {option}")
        elif reason is not None:  # Java would only warn about it; here it is given for this one command
            problems.append(f"--property {name}: {reason}")
        elif kafka_name(name) in OF_OBJECTS:
            problems.append(f"--property {name}: keys and values are sent as the bytes of the input")
        elif (text := _text(f"--property {name}", value, problems)) is not None:
            given[name] = text
    return given


def _pairs(option: str, arguments: Sequence[str], problems: list[str]) -> list[tuple[str, str]]:
    """Return the NAME=VALUE arguments; others become problems."""
    pairs = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not (name and equals):
            problems.append(f"{option} {argument!r}: not like NAME=VALUE")
        elif (text := _text(f"the name in {option}", name, problems)) is not None:
            pairs.append((text, value))
    return pairs


def _argument_problems(settings: FeedSettings, drain_timeout_s: float) -> Iterator[str]:
    """Yield a line for each argument that is invalid, alone or with another."""
    try:
        check_topic_name(settings.topic)
    except ValueError as error:
        yield str(error)
    if settings.key is not None and settings.format is Format.LINES:
        yield "--key needs --format jsonl or csv: a plain line has no fields"
    if settings.records_per_s is not None and not 0 < settings.records_per_s < math.inf:
        yield f"--rate {settings.records_per_s:g}: must be above 0"
    if not 0 <= drain_timeout_s <= MOST_SECONDS:
        yield f"--drain-timeout {drain_timeout_s:g}: must be 0 to {MOST_SECONDS} seconds"


@clears_frames
def _config(
    bootstrap_server: str,
    given: Mapping[str, str],
    defaults: Mapping[str, object],
    *,
    file: FileProperties,
    problems: list[str],
) -> ProducerConfig | None:
    """Return the configuration; an error in it becomes a problem."""
    spelled = {name.replace("_", "."): value for name, value in given.items()}
    left = {name: value for name, value in defaults.items() if name not in spelled}
    # A lower maximum also lowers the default of the first time-out, which must not exceed it.
    longest_ms, default_ms = spelled.get(f"{_SETUP_TIMEOUT}.max.ms", ""), DEFAULT_PROPERTIES[f"{_SETUP_TIMEOUT}.ms"]
    # Compared as text: `int` refuses more than 4,300 digits.
    if longest_ms.isdecimal() and (len(longest_ms), longest_ms) < (len(default_ms), default_ms):
        left = {name: longest_ms if name == f"{_SETUP_TIMEOUT}.ms" else value for name, value in left.items()}
    try:
        return ProducerConfig.from_kafka_properties({"bootstrap.servers": bootstrap_server, **left, **given})
    except ConfigurationError as error:
        problems.append(file.located(error))
        return None


def _show_logs(*, verbose: bool) -> None:
    """Send the producer's log to standard error, or nowhere: the command reports errors itself."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _run(
    config: ProducerConfig, settings: FeedSettings, drain_timeout_s: float, listener: socket.socket | None
) -> tuple[RunResult, Tally]:
    is_typed = any(source.path is None for source in settings.inputs) and sys.stdin.isatty()
    if is_typed:
        tell("reading what you type; Ctrl-D on an empty line ends it")
    has_progress = sys.stderr.isatty() and not is_typed

    async def run() -> tuple[RunResult, Tally]:
        this = Run(config, settings, drain_timeout_s=drain_timeout_s, has_progress=has_progress, listener=listener)
        return await this.to_end(), this.tally

    return anyio.run(run, backend_options={"loop_factory": installed_uvloop()})
