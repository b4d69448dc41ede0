"""`aioproducer txn resolve` and `reset`, and `list --sink`: the transactions of a load or a Spark query."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, TypeAlias

import typer

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._admin.transactions import CoordinatedTransaction, Transactions
from aioproducer.cli.argument_text import required_text
from aioproducer.cli.configuration import BootstrapServer, ConfigFile, connection_config
from aioproducer.cli.connecting import CLIENT_ID
from aioproducer.cli.exit_codes import EXIT_LOST, EXIT_UNFINISHED
from aioproducer.cli.standard_streams import tell
from aioproducer.cli.txn.answers import PATIENCE_S, Timeout, answer, say, say_json
from aioproducer.cli.txn.tables import listed_lines
from aioproducer.spark._commit import LostTransactionsError, UnfinishedCommitError
from aioproducer.spark._decision import Decision, SinkIds
from aioproducer.spark._sinks import find_sink

Sink: TypeAlias = Annotated[str | None, typer.Option("--sink", metavar="ID", help="The sinkId.")]
Topic: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Topic that keeps the decision.", show_default="found by the group's offsets"),
]


def resolve(
    sink: Sink = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    topic: Topic = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="If rows of a decided batch are lost, let its query go on without.")
    ] = False,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Finish what a load or a Spark query has left: commit what is decided, abort the rest.

    A query or load that still runs under this sinkId fails at its next commit.

    Exit code 0: nothing is open any more. 1: no answer, or a refusal. 2: invalid usage.
    3: rows of the decided batch are lost; the line names them. 4: still unfinished.
    """
    name = required_text("--sink", sink)
    answer(
        connection_config(bootstrap_server, config, client_id=CLIENT_ID),
        timeout,
        partial(_resolve, name, topic, accepts_loss=accept_loss),
    )


def reset(
    sink: Sink = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    topic: Topic = None,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Finish what is decided, then forget it: for a new query, or a new checkpoint, under an old sinkId.

    Exit codes as of resolve.
    """
    name = required_text("--sink", sink)
    answer(connection_config(bootstrap_server, config, client_id=CLIENT_ID), timeout, partial(_reset, name, topic))


async def list_sink(sink: str, topic: str | None, requests: ClusterRequests, *, as_json: bool) -> int:
    """Print a sink's last decision and its transactional ids; changes nothing."""
    found = await find_sink(requests, sink, topic)
    decision = await found.decision()
    every, _ = await Transactions(requests).listed(prefix=found.ids.prefix)
    own = [each for each in every if _is_of(found.ids, each)]
    if as_json:
        say_json(
            [
                {
                    "sink": sink,
                    "topic": found.topic or None,
                    "batch": None if decision is None else decision.batch,
                    "query": None if decision is None else decision.query,
                    "tasks": [] if decision is None else [each._asdict() for each in decision.entries],
                    "transactions": [{**each._asdict(), "coordinator": node} for each, node in own],
                }
            ]
        )
        return 0
    say(_lines(sink, found.topic, decision, own))
    return 0


def _lines(sink: str, topic: str, decision: Decision | None, own: Sequence[CoordinatedTransaction]) -> Iterator[str]:
    if decision is None:
        yield f"sink {sink}: nothing is decided"
    else:
        rows = sum(each.rows for each in decision.entries)
        tasks = f"{len(decision.entries)} tasks, {rows:,} rows" if decision.entries else "finished"
        yield f"sink {sink}: last decided is batch {decision.batch} of [{decision.query}]: {tasks}; kept by {topic}"
    yield from listed_lines(own) if own else ["no transactions"]


def _is_of(ids: SinkIds, each: CoordinatedTransaction) -> bool:
    name = each[0].transactional_id
    return name == ids.coordinator or ids.parity_of(name) is not None


async def _resolve(sink: str, topic: str | None, requests: ClusterRequests, *, accepts_loss: bool) -> int:
    found = await find_sink(requests, sink, topic)
    before = set(await found.cluster.ongoing_ids(found.ids.prefix))
    try:
        if accepts_loss:
            await found.commit.accept_loss()
        else:
            await found.commit.prepare()
    except LostTransactionsError as error:
        return _told(f"{error}. To go on without them: aioproducer txn resolve --sink {sink} --accept-loss", EXIT_LOST)
    except UnfinishedCommitError as error:
        return _told(str(error), EXIT_UNFINISHED)
    decision = await found.decision()
    last = "nothing is decided" if decision is None else f"batch {decision.batch} of [{decision.query}] is committed"
    ended = sum(found.ids.parity_of(each) is not None for each in before)
    say([f"sink {sink}: {last}; {ended} open transaction{'s' * (ended != 1)} ended"])
    return 0


async def _reset(sink: str, topic: str | None, requests: ClusterRequests) -> int:
    found = await find_sink(requests, sink, topic)
    try:
        forgotten = await found.commit.reset()
    except LostTransactionsError as error:
        return _told(f"{error}. To go on without them: aioproducer txn resolve --sink {sink} --accept-loss", EXIT_LOST)
    except UnfinishedCommitError as error:
        return _told(str(error), EXIT_UNFINISHED)
    if forgotten is None:
        say([f"sink {sink}: nothing was decided"])
    else:
        say([f"sink {sink}: batch {forgotten.batch} of [{forgotten.query}] is committed, and forgotten"])
    return 0


def _told(line: str, code: int) -> int:
    tell(f"aioproducer: {line}")
    return code
