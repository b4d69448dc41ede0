"""`aioproducer diagnose`: checks the bootstrap servers, then all brokers, and prints each step."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import textwrap
from typing import Annotated, Final

import structlog
import typer

from aioproducer.cli.arguments import (
    LOCAL,
    SERVERS_VARIABLE,
    ConfigFile,
    FileProperties,
    TokenProviderName,
    checked_timeout,
    config_of_connections,
    file_properties,
)
from aioproducer.cli.broker_check import CLIENT_ID, BrokerCheck, Step
from aioproducer.cli.process import EXIT_FAILED, discard
from aioproducer.cli.running import run_to_end
from aioproducer.cluster import Node
from aioproducer.config import ProducerConfig


def diagnose(
    server: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST:PORT]",
            help="A broker, or several with commas.",
            show_default=f"of --config, or ${SERVERS_VARIABLE}, or {LOCAL}",
        ),
    ] = None,
    config: ConfigFile = None,
    token_provider: TokenProviderName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per step.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", callback=checked_timeout, help="For each step.")] = 5.0,
) -> None:
    """Try each step of connecting to a cluster, then to each broker that it advertises.

    Name, addresses, TCP, proxy, TLS, versions, mechanisms, ticket, login, metadata: one line each; the failure is
    explained.

    Exit code 0: all brokers can be used. 1: a step failed. 2: invalid usage.
    130, 143, 129: ended by Ctrl-C, SIGTERM or SIGHUP.
    """
    properties = file_properties(config, token_provider)
    settings = config_of_connections(server, properties, client_id=CLIENT_ID)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # the steps say it all
    printed = Printed(as_json=as_json)
    code = 0
    if config is not None:
        show_file(config, properties, printed)

    async def run() -> None:
        nonlocal code
        failed = await check_all(settings, printed, timeout)
        printed.last(f"cannot be used: {', '.join(failed)}" if failed else "all brokers can be used")
        code = EXIT_FAILED if failed else 0

    run_to_end(run)
    sys.exit(code)


def show_file(path: str, properties: FileProperties, printed: Printed) -> None:
    """Print what a producer would refuse, or not use, of the file: a step reads only what concerns connections."""
    said = properties.for_a_producer()
    for text in said.refused:
        printed.step(Step(path, "options", True, text.removeprefix(f"{path}, "), 0.0, "a producer refuses this file"))
    for text in said.ignored:
        printed.step(Step(path, "options", True, text, 0.0))


async def check_all(config: ProducerConfig, printed: Printed, timeout_s: float) -> list[str]:
    """Check bootstrap servers, then all brokers that they name; return those that cannot be used."""
    failed: list[str] = []
    brokers: dict[int, Node] = {}
    for index, (host, port) in enumerate(config.bootstrap):
        check = BrokerCheck(config, Node(-1 - index, host, port), timeout_s)
        failed += await _check(check, printed)
        brokers |= {node.id: node for node in check.brokers}
    for _, node in sorted(brokers.items()):
        failed += await _check(BrokerCheck(config, node, timeout_s), printed)
    return failed


async def _check(check: BrokerCheck, printed: Printed) -> list[str]:
    step: Step | None = None
    async for step in check.steps():
        printed.step(step)
    return [check.title] if step is None or not step.is_ok else []


_LABEL: Final = 20  # characters before the text of a step
_NARROWEST: Final = _LABEL + 20
_UNBOUNDED: Final = 10_000


class Printed:
    """The steps that were printed: a line each, wrapped on a terminal, under a heading per broker; or JSON objects."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._broker = ""
        self._width = max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _UNBOUNDED

    def step(self, step: Step) -> None:
        if self._as_json:
            row = {
                "broker": step.broker,
                "step": step.name,
                "ok": step.is_ok,
                "text": step.text,
                "remedy": step.remedy or None,
                "took_s": round(step.took_s, 4),
            }
            self._line(json.dumps(row))
            return
        if step.broker != self._broker:
            self._broker = step.broker
            self._line(step.broker)
        state = ("ok" if not step.remedy else "look") if step.is_ok else "FAILED"
        self._wrapped(f"  {step.name:<10} {state:<6}", step.text)
        if step.remedy:
            self._wrapped(" " * (_LABEL - 3) + "->", step.remedy)

    def last(self, text: str) -> None:
        """Print the result of all steps."""
        if not self._as_json:
            self._wrapped("", text)

    def _wrapped(self, label: str, text: str) -> None:
        if not label:
            self._line("\n".join(textwrap.wrap(text, self._width)))
            return
        lines = textwrap.wrap(text, self._width - _LABEL, break_on_hyphens=False) or [""]
        self._line(f"{label:<{_LABEL}}{lines[0]}")
        for line in lines[1:]:
            self._line(" " * _LABEL + line)

    def _line(self, text: str) -> None:
        try:
            print(text, flush=True)
        except BrokenPipeError:  # as after `| head`
            discard(sys.stdout)
