"""`aioproducer txn`: list, describe and end the transactions of a cluster."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from aioproducer._admin.transactions import LONGEST_TRANSACTION_S, STATES, Transactions
from aioproducer._protocol.cluster_text import printable
from aioproducer.cli.argument_text import required_text
from aioproducer.cli.configuration import BootstrapServer, ConfigFile, connection_config
from aioproducer.cli.connecting import CLIENT_ID
from aioproducer.cli.exit_codes import EXIT_FAILED
from aioproducer.cli.running import usage_error
from aioproducer.cli.txn.answers import (
    PATIENCE_S,
    Json,
    Timeout,
    UnknownStateError,
    answer,
    say,
    say_json,
)
from aioproducer.cli.txn.sink import list_sink, reset, resolve
from aioproducer.cli.txn.tables import described_lines, hanging_lines, listed_lines
from aioproducer.config import ProducerConfig

txn: typer.Typer = typer.Typer(help="List, describe and end transactions.", no_args_is_help=True)
txn.command("resolve")(resolve)
txn.command("reset")(reset)


@txn.command("list")
def list_transactions(
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only those in this state (Ongoing, PrepareCommit, Empty, ...); may be given again."),
    ] = None,
    hanging: Annotated[bool, typer.Option("--hanging", help="Show transactions that no coordinator will end.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="With --hanging: search only this topic; may be given again. With --sink: of its decision."),
    ] = None,
    sink: Annotated[
        str | None, typer.Option(metavar="ID", help="Only those of this sinkId, with what was decided last.")
    ] = None,
    longest: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help=f"With --hanging: the broker's transaction.max.timeout.ms.  [default: {LONGEST_TRANSACTION_S:g}]",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Show the transactional ids of a cluster or of a sink, or hanging transactions.

    Exit code 0: all are shown. 1: no answer; with --hanging also if a transaction hangs. 2: invalid usage.
    """
    if topic and not hanging and sink is None:
        usage_error("--topic needs --hanging: coordinators list transactions by id")
    if longest is not None and not hanging:
        usage_error("--longest needs --hanging")
    if state and hanging:
        usage_error("--state and --hanging exclude each other: no coordinator knows a state of a hanging transaction")
    states = [required_text("--state", name) for name in state or []]
    topics = [required_text("--topic", name) for name in topic or []]

    if sink is not None:
        if state or hanging or len(topics) > 1:
            usage_error("--sink excludes --state and --hanging, and takes one --topic")
        of_sink = partial(list_sink, required_text("--sink", sink), next(iter(topics), None), as_json=as_json)
        answer(connection_config(bootstrap_server, config, client_id=CLIENT_ID), timeout, of_sink)
    elif hanging:
        patience_s = LONGEST_TRANSACTION_S if longest is None else longest
        _ask(
            connection_config(bootstrap_server, config, client_id=CLIENT_ID),
            timeout,
            partial(_list_hanging, topics or None, patience_s, as_json=as_json),
        )
    else:
        _ask(
            connection_config(bootstrap_server, config, client_id=CLIENT_ID),
            timeout,
            partial(_list, states, as_json=as_json),
        )


@txn.command("describe")
def describe(
    transactional_id: Annotated[str, typer.Argument(help="Of the transaction.", show_default=False)],
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    as_json: Json = False,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Show a transactional id: state, epoch, timeout, and the partitions of its transaction.

    Exit code 0: shown. 1: it does not exist, or no answer. 2: invalid usage.
    """
    name = required_text("the transactional id", transactional_id)
    _ask(
        connection_config(bootstrap_server, config, client_id=CLIENT_ID),
        timeout,
        partial(_describe, name, as_json=as_json),
    )


@txn.command("abort")
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(help="Take this id over: its producer is fenced, and its transaction is aborted.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    topic: Annotated[str | None, typer.Option(help="Topic of a hanging transaction.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Partition of a hanging transaction.")] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="First offset of a hanging transaction; see list --hanging.")
    ] = None,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """End a transaction: by its id if its producer is gone for good, by its place if it hangs.

    A live producer of that id gets ProducerFencedError at its next call.
    Ending a hanging transaction requires the right to alter the cluster.

    Exit code 0: done, or no transaction was open. 1: it does not exist, no answer, or a refusal. 2: invalid usage.
    """
    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        name = required_text("the transactional id", transactional_id)
        _ask(connection_config(bootstrap_server, config, client_id=CLIENT_ID), timeout, partial(_fence, name))
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None:
        name = required_text("--topic", topic)
        _ask(
            connection_config(bootstrap_server, config, client_id=CLIENT_ID),
            timeout,
            partial(_abort_hanging, name, partition, start_offset),
        )
    else:
        usage_error("give a transactional id, or all of --topic, --partition and --start-offset")


async def _list(states: Sequence[str], transactions: Transactions, *, as_json: bool) -> int:
    found, unknown = await transactions.listed(states=states)
    if unknown:
        raise UnknownStateError(_no_states(sorted(unknown)))
    if as_json:
        say_json({**each._asdict(), "coordinator": node} for each, node in found)
    else:
        say(listed_lines(found) if found else ["no transactions"])
    return 0


async def _list_hanging(
    topics: Sequence[str] | None, longest_s: float, transactions: Transactions, *, as_json: bool
) -> int:
    found = await transactions.hanging(topics, longest_s=longest_s)
    if as_json:
        say_json(
            {"topic": each.topic, "partition": each.partition, "open_s": each.open_s, **each.producer._asdict()}
            for each in found
        )
    else:
        say(hanging_lines(found) if found else ["no hanging transactions"])
    return EXIT_FAILED if found else 0


async def _describe(transactional_id: str, transactions: Transactions, *, as_json: bool) -> int:
    described = await transactions.described(transactional_id)
    if as_json:
        say_json([described._asdict()])
    else:
        producers = await transactions.producers(described.partitions)
        say(described_lines(described, producers, time.time_ns() // 1_000_000))
    return 0


async def _fence(transactional_id: str, transactions: Transactions) -> int:
    before = await transactions.fence(transactional_id)
    place = f"{len(before.partitions)} partition{'s' * (len(before.partitions) != 1)}"
    was = f"its transaction in {place} is aborted" if before.partitions else "it had no transaction open"
    say([f"{transactional_id} taken over: its producer is fenced; {was}"])
    return 0


async def _abort_hanging(topic: str, partition: int, start_offset: int, transactions: Transactions) -> int:
    await transactions.abort_hanging(topic, partition, start_offset)
    say([f"the transaction that began at offset {start_offset} of {topic}[{partition}] is aborted"])
    return 0


def _no_states(unknown: Sequence[str]) -> str:
    """Return the error for unknown states, with the known ones: case matters."""
    return f"--state: brokers know no state {', '.join(map(printable, unknown))}; there are {', '.join(STATES)}"


def _ask(config: ProducerConfig, timeout_s: float, ask: Callable[[Transactions], Awaitable[int]]) -> None:
    answer(config, timeout_s, lambda requests: ask(Transactions(requests)))
