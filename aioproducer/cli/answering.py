"""Asks a cluster one question and prints the answer: what commands without records have in common."""

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NoReturn, TypeAlias, TypeVar

import typer

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._protocol.cluster_text import printable
from aioproducer.cli.arguments import checked_timeout
from aioproducer.cli.connecting import connected
from aioproducer.cli.process import EXIT_FAILED, discard, tell
from aioproducer.cli.running import run_to_end, usage_error
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigurationError, KafkaError

Timeout: TypeAlias = Annotated[
    float, typer.Option(metavar="SECONDS", callback=checked_timeout, help="For each answer of a broker.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


AnswerT = TypeVar("AnswerT")


class OutputError(KafkaError):
    """The answer could not be printed."""


def answer(config: ProducerConfig, timeout_s: float, ask: Callable[[ClusterRequests], Awaitable[int]]) -> NoReturn:
    """Ask, and exit with the code that `ask` returns."""
    sys.exit(asked(config, timeout_s, ask))


def asked(config: ProducerConfig, timeout_s: float, ask: Callable[[ClusterRequests], Awaitable[AnswerT]]) -> AnswerT:
    """Return the answer; an error or a signal ends the command, and an invalid argument is a usage error."""
    found: list[AnswerT] = []

    async def run() -> None:
        async with connected(config, timeout_s, client_id=config.client_id) as requests:
            found.append(await ask(requests))

    try:
        run_to_end(run)
    except ConfigurationError as error:
        usage_error(str(error))
    except KafkaError as error:
        tell(f"aioproducer: {error}")
        sys.exit(EXIT_FAILED)
    return found[0]


def say_json(rows: Iterable[Mapping[str, object]]) -> None:
    """Print one JSON object per line."""
    say(json.dumps(row) for row in rows)


def say(lines: Iterable[str]) -> None:
    """Print the answer; a closed pipe, as after `| head`, is not an error, but a full disk is."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"standard output: {error.strerror or error}") from None


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield aligned lines; cells are escaped by `printable`, since clients choose their text."""
    shown = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
