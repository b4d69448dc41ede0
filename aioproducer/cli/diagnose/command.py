"""`aioproducer diagnose`: the arguments of the command, and its way from the bootstrap servers to all brokers."""

import logging
import sys
from typing import Annotated

import structlog
import typer

from aioproducer.cli.configuration import LOCAL, SERVERS_VARIABLE, ConfigFile, connection_config
from aioproducer.cli.diagnose.broker_check import CLIENT_ID, BrokerCheck, Step
from aioproducer.cli.diagnose.output import Printed
from aioproducer.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED
from aioproducer.cli.running import run_until_signal
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per step.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="For each step.")] = 5.0,
) -> None:
    """Try each step of connecting to a cluster, then to each broker that it advertises.

    Name, addresses, TCP, proxy, TLS, versions, mechanisms, ticket, login, metadata: one line each; the failure is
    explained.

    Exit code 0: all brokers can be used. 1: a step failed. 2: invalid usage. 130: Ctrl-C.
    """
    settings = connection_config(server, config, client_id=CLIENT_ID)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # the steps say it all
    printed = Printed(as_json=as_json)
    code = EXIT_INTERRUPTED

    async def run() -> None:
        nonlocal code
        failed = await check_all(settings, printed, timeout)
        printed.last(f"cannot be used: {', '.join(failed)}" if failed else "all brokers can be used")
        code = EXIT_FAILED if failed else 0

    run_until_signal(run)
    sys.exit(code)


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
