"""Asks a cluster and prints the answer: what the commands of `aioproducer txn` have in common."""

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, NoReturn, TypeAlias

import typer

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer.cli.connecting import connected
from aioproducer.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED
from aioproducer.cli.running import run_until_signal, usage_error
from aioproducer.cli.standard_streams import discard, tell
from aioproducer.cli.waiting import CONNECT_TIMEOUT_S
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigurationError, KafkaError

Timeout: TypeAlias = Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="For each answer of a broker.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]

PATIENCE_S = CONNECT_TIMEOUT_S


class UnknownStateError(KafkaError):
    """Brokers do not know a state."""


class OutputError(KafkaError):
    """The answer could not be printed."""


def answer(config: ProducerConfig, timeout_s: float, ask: Callable[[ClusterRequests], Awaitable[int]]) -> None:
    """Ask, and exit with the code of the answer."""
    code = EXIT_INTERRUPTED

    async def run() -> None:
        nonlocal code
        async with connected(config, timeout_s) as requests:
            code = await ask(requests)

    try:
        run_until_signal(run)
    except (UnknownStateError, ConfigurationError) as error:
        usage_error(str(error))
    except KafkaError as error:
        _fail(str(error))
    sys.exit(code)


def _fail(line: str) -> NoReturn:
    tell(f"aioproducer: {line}")
    sys.exit(EXIT_FAILED)


def say_json(rows: Iterable[Mapping[str, object]]) -> None:
    """Print one JSON object per line."""
    say(json.dumps(row) for row in rows)


def say(lines: Iterable[str]) -> None:
    """Print the answer; a closed pipe, as after `| head`, is not an error.

    Raises:
        OutputError: the disk is full, or similar.
    """
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"standard output: {error.strerror or error}") from None
