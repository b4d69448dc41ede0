"""`aioproducer txn`: list, describe and end the transactions of a cluster."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import Annotated, TypeAlias

import typer

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._admin.transactions import (
    LONGEST_TRANSACTION_S,
    STATES,
    CoordinatedTransaction,
    IdleTransaction,
    Transactions,
)
from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.transaction_admin_messages import NO_TRANSACTION, PartitionProducers, TransactionDescription
from aioproducer.cli.answering import Json, Timeout, answer, columns, say, say_json
from aioproducer.cli.arguments import (
    BootstrapServer,
    ConfigFile,
    TokenProviderName,
    connection_config,
    required_text,
    seconds_from,
)
from aioproducer.cli.connecting import CONNECT_TIMEOUT_S
from aioproducer.cli.process import EXIT_FAILED, EXIT_LOST, EXIT_UNFINISHED, tell
from aioproducer.cli.running import usage_error
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigurationError
from aioproducer.spark._commit import LostTransactionsError, UnfinishedCommitError
from aioproducer.spark._coordinators import find_sink
from aioproducer.spark._decision_record import Decision, SinkIds

CLIENT_ID = "aioproducer-txn"

Sink: TypeAlias = Annotated[str | None, typer.Option("--sink", metavar="ID", help="The sinkId.")]
Topic: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Topic that keeps the decision.", show_default="found by the group's offsets"),
]

txn: typer.Typer = typer.Typer(help="List, describe and end transactions.", no_args_is_help=True)


@txn.command("resolve")
def resolve(
    sink: Sink = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    token_provider: TokenProviderName = None,
    topic: Topic = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="If rows of a decided batch are lost, let its query go on without.")
    ] = False,
    timeout: Timeout = CONNECT_TIMEOUT_S,
) -> None:
    """Finish what a load or a Spark query has left: commit what is decided, abort the rest.

    A query or load that still runs under this sinkId fails at its next commit.

    Exit code 0: nothing is open any more. 1: no answer, or a refusal. 2: invalid usage.
    3: rows of the decided batch are lost; the line names them. 4: still unfinished.
    """
    name = required_text("--sink", sink)
    answer(
        _config(bootstrap_server, config, token_provider),
        timeout,
        partial(_resolve, name, topic, accepts_loss=accept_loss),
    )


@txn.command("reset")
def reset(
    sink: Sink = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    token_provider: TokenProviderName = None,
    topic: Topic = None,
    timeout: Timeout = CONNECT_TIMEOUT_S,
) -> None:
    """Finish what is decided, then forget it: for a new query, or a new checkpoint, under an old sinkId.

    Exit codes as of resolve.
    """
    name = required_text("--sink", sink)
    answer(_config(bootstrap_server, config, token_provider), timeout, partial(_reset, name, topic))


@txn.command("list")
def list_transactions(
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    token_provider: TokenProviderName = None,
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
            callback=seconds_from(0),
            help=f"With --hanging: the broker's transaction.max.timeout.ms.  [default: {LONGEST_TRANSACTION_S:g}]",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    timeout: Timeout = CONNECT_TIMEOUT_S,
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
        of_sink = partial(_list_sink, required_text("--sink", sink), next(iter(topics), None), as_json=as_json)
        answer(_config(bootstrap_server, config, token_provider), timeout, of_sink)
    elif hanging:
        patience_s = LONGEST_TRANSACTION_S if longest is None else longest
        of_hanging = partial(_list_hanging, topics or None, patience_s, as_json=as_json)
        answer(_config(bootstrap_server, config, token_provider), timeout, of_hanging)
    else:
        answer(_config(bootstrap_server, config, token_provider), timeout, partial(_list, states, as_json=as_json))


@txn.command("describe")
def describe(
    transactional_id: Annotated[str, typer.Argument(help="Of the transaction.", show_default=False)],
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    token_provider: TokenProviderName = None,
    as_json: Json = False,
    timeout: Timeout = CONNECT_TIMEOUT_S,
) -> None:
    """Show a transactional id: state, epoch, timeout, and the partitions of its transaction.

    Exit code 0: shown. 1: it does not exist, or no answer. 2: invalid usage.
    """
    name = required_text("the transactional id", transactional_id)
    answer(_config(bootstrap_server, config, token_provider), timeout, partial(_describe, name, as_json=as_json))


@txn.command("abort")
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(help="Take this id over: its producer is fenced, and its transaction is aborted.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    token_provider: TokenProviderName = None,
    topic: Annotated[str | None, typer.Option(help="Topic of a hanging transaction.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Partition of a hanging transaction.")] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="First offset of a hanging transaction; see list --hanging.")
    ] = None,
    timeout: Timeout = CONNECT_TIMEOUT_S,
) -> None:
    """End a transaction: by its id if its producer is gone for good, by its place if it hangs.

    A live producer of that id gets ProducerFencedError at its next call.
    Ending a hanging transaction requires the right to alter the cluster.

    Exit code 0: done, or no transaction was open. 1: it does not exist, no answer, or a refusal. 2: invalid usage.
    """
    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        name = required_text("the transactional id", transactional_id)
        answer(_config(bootstrap_server, config, token_provider), timeout, partial(_fence, name))
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None:
        name = required_text("--topic", topic)
        answer(
            _config(bootstrap_server, config, token_provider),
            timeout,
            partial(_abort_hanging, name, partition, start_offset),
        )
    else:
        usage_error("give a transactional id, or all of --topic, --partition and --start-offset")


async def _list(states: Sequence[str], requests: ClusterRequests, *, as_json: bool) -> int:
    found, unknown = await Transactions(requests).listed(states=states)
    if unknown:  # with the known ones: case matters
        names = ", ".join(map(printable, sorted(unknown)))
        raise UnknownStateError(f"--state: brokers know no state {names}; there are {', '.join(STATES)}")
    if as_json:
        say_json({**each._asdict(), "coordinator": node} for each, node in found)
    else:
        say(listed_lines(found) if found else ["no transactions"])
    return 0


async def _list_hanging(
    topics: Sequence[str] | None, longest_s: float, requests: ClusterRequests, *, as_json: bool
) -> int:
    found = await Transactions(requests).hanging(topics, longest_s=longest_s)
    if as_json:
        say_json(
            {"topic": each.topic, "partition": each.partition, "open_s": each.open_s, **each.producer._asdict()}
            for each in found
        )
    else:
        say(hanging_lines(found) if found else ["no hanging transactions"])
    return EXIT_FAILED if found else 0


async def _describe(transactional_id: str, requests: ClusterRequests, *, as_json: bool) -> int:
    transactions = Transactions(requests)
    described = await transactions.described(transactional_id)
    if as_json:
        say_json([described._asdict()])
    else:
        producers = await transactions.producers(described.partitions)
        say(described_lines(described, producers, time.time_ns() // 1_000_000))
    return 0


async def _fence(transactional_id: str, requests: ClusterRequests) -> int:
    before = await Transactions(requests).fence(transactional_id)
    place = f"{len(before.partitions)} partition{'s' * (len(before.partitions) != 1)}"
    was = f"its transaction in {place} is aborted" if before.partitions else "it had no transaction open"
    say([f"{transactional_id} taken over: its producer is fenced; {was}"])
    return 0


async def _abort_hanging(topic: str, partition: int, start_offset: int, requests: ClusterRequests) -> int:
    await Transactions(requests).abort_hanging(topic, partition, start_offset)
    say([f"the transaction that began at offset {start_offset} of {topic}[{partition}] is aborted"])
    return 0


async def _list_sink(sink: str, topic: str | None, requests: ClusterRequests, *, as_json: bool) -> int:
    """Print a sink's last decision and its transactional ids; changes nothing."""
    found = await find_sink(requests, sink, topic)
    decision = await found.decision()
    every, _ = await Transactions(requests).listed(prefix=found.ids.prefix)
    own = [each for each in every if _is_of(found.ids, each)]
    if as_json:
        row = {
            "sink": sink,
            "topic": found.topic or None,
            "batch": None if decision is None else decision.batch,
            "query": None if decision is None else decision.query,
            "tasks": [] if decision is None else [each._asdict() for each in decision.entries],
            "transactions": [{**each._asdict(), "coordinator": node} for each, node in own],
        }
        say_json([row])
    else:
        say(_sink_lines(sink, found.topic, decision, own))
    return 0


def _sink_lines(
    sink: str, topic: str, decision: Decision | None, own: Sequence[CoordinatedTransaction]
) -> Iterator[str]:
    if decision is None:
        yield f"sink {sink}: nothing is decided"
    else:
        rows = sum(each.rows for each in decision.entries)
        tasks = "finished" if decision.is_finished else f"{len(decision.entries)} tasks, {rows:,} rows"
        yield f"sink {sink}: last decided is batch {decision.batch} of [{decision.query}]: {tasks}; kept by {topic}"
    yield from listed_lines(own) if own else ["no transactions"]


def _is_of(ids: SinkIds, each: CoordinatedTransaction) -> bool:
    name = each[0].transactional_id
    return name == ids.coordinator or ids.is_data_id(name)


async def _resolve(sink: str, topic: str | None, requests: ClusterRequests, *, accepts_loss: bool) -> int:
    found = await find_sink(requests, sink, topic)
    before = set(await found.cluster.ongoing_ids(found.ids.prefix))
    try:
        if accepts_loss:
            await found.commit.accept_loss()
        else:
            await found.commit.resolve()
    except (LostTransactionsError, UnfinishedCommitError) as error:
        return _left_open(sink, error)
    decision = await found.decision()
    last = "nothing is decided" if decision is None else f"batch {decision.batch} of [{decision.query}] is committed"
    ended = sum(map(found.ids.is_data_id, before))
    say([f"sink {sink}: {last}; {ended} open transaction{'s' * (ended != 1)} ended"])
    return 0


async def _reset(sink: str, topic: str | None, requests: ClusterRequests) -> int:
    found = await find_sink(requests, sink, topic)
    try:
        forgotten = await found.commit.reset()
    except (LostTransactionsError, UnfinishedCommitError) as error:
        return _left_open(sink, error)
    if forgotten is None:
        say([f"sink {sink}: nothing was decided"])
    else:
        say([f"sink {sink}: batch {forgotten.batch} of [{forgotten.query}] is committed, and forgotten"])
    return 0


def _left_open(sink: str, error: LostTransactionsError | UnfinishedCommitError) -> int:
    """Print why transactions of the sink are still open, and return the exit code."""
    if isinstance(error, UnfinishedCommitError):
        tell(f"aioproducer: {error}")
        return EXIT_UNFINISHED
    tell(f"aioproducer: {error}. To go on without them: aioproducer txn resolve --sink {sink} --accept-loss")
    return EXIT_LOST


class UnknownStateError(ConfigurationError):
    """Brokers do not know a state."""


def _config(bootstrap_server: str | None, config_file: str | None, token_provider: str | None) -> ProducerConfig:
    return connection_config(bootstrap_server, config_file, client_id=CLIENT_ID, token_provider=token_provider)


def listed_lines(found: Sequence[CoordinatedTransaction]) -> Iterator[str]:
    rows = [(each.transactional_id, each.state, str(each.producer_id), str(node)) for each, node in found]
    yield from columns(("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"), rows)


def described_lines(
    described: TransactionDescription, producers: Sequence[PartitionProducers], now_ms: int
) -> Iterator[str]:
    yield f"transactional id  {printable(described.transactional_id)}"
    yield f"state             {printable(described.state)}"
    yield f"producer id       {described.producer_id}, epoch {described.producer_epoch}"
    yield f"timeout           {described.timeout_ms / 1000:g} s"
    if described.start_time_ms > 0:
        open_s = (now_ms - described.start_time_ms) / 1000
        yield f"began             {moment(described.start_time_ms)}, {open_s:,.1f} s ago"
    if described.partitions:
        starts = {
            (found.topic, found.partition): producer.transaction_start_offset
            for found in producers
            for producer in found.producers
            if producer.producer_id == described.producer_id
        }
        rows = [
            (topic, str(number), _offset(starts.get((topic, number), NO_TRANSACTION)))
            for topic, number in sorted(described.partitions)
        ]
        yield ""
        yield from columns(("TOPIC", "PARTITION", "FIRST OFFSET"), rows)


def hanging_lines(found: Sequence[IdleTransaction]) -> Iterator[str]:
    """Yield a line for each transaction, and the command that ends it."""
    rows = [
        (
            each.topic,
            str(each.partition),
            str(each.producer.transaction_start_offset),
            f"{each.producer.producer_id}, {each.producer.producer_epoch}",
            f"{each.open_s:,.0f} s",
        )
        for each in found
    ]
    yield from columns(("TOPIC", "PARTITION", "FIRST OFFSET", "PRODUCER ID, EPOCH", "LAST WROTE"), rows)
    for each in found:
        place = f"--topic {quote(printable(each.topic))} --partition {each.partition}"
        yield f"aioproducer txn abort {place} --start-offset {each.producer.transaction_start_offset}"


def moment(time_ms: int) -> str:
    """Return a time in UTC, or its number if it is out of range."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms after 1970"


def _offset(offset: int) -> str:
    return "nothing yet" if offset == NO_TRANSACTION else str(offset)
