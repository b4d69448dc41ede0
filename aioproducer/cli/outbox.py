"""`aioproducer outbox`: the tables of an outbox, its relay, and its parked rows."""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, Literal, TypeAlias, cast

import anyio
import typer
from sqlalchemy import URL, create_mock_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, ProgrammingError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.schema import ExecutableDDLElement

from aioproducer._protocol.cluster_text import printable
from aioproducer.cli.answering import Json, columns, say, say_json
from aioproducer.cli.arguments import (
    BootstrapServer,
    ConfigFile,
    TokenProviderName,
    file_properties,
    required_text,
    tell_ignored,
)
from aioproducer.cli.process import EXIT_FAILED, tell
from aioproducer.cli.running import run_to_end, usage_error
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigurationError, KafkaError
from aioproducer.outbox import Outbox, OutboxTableError, Relay
from aioproducer.outbox._arguments import check_engine
from aioproducer.outbox._attempts import is_of_database, words_of
from aioproducer.outbox._check import check_dialect, check_tables
from aioproducer.outbox._errors import NAME, creation_of
from aioproducer.outbox._kafka import ID_PREFIX
from aioproducer.outbox._operations import Operations, Status
from aioproducer.outbox._relay import rows_text

REPORT_S: Final = 1.0
LIKE: Final = "postgresql+asyncpg://user:password@host/name"
SHARDS_OF_A_POOL: Final = 10
KEY_SHOWN: Final = 40
INT64: Final = 2**63
URL_VARIABLE: Final = "AIOPRODUCER_OUTBOX_URL"
REFUSED_STATES: Final = ("28", "3D", "42")
"""Classes of SQLSTATE that no repetition changes: the user or password, the name of the database, rights."""
REFUSED_WORDS: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "permission denied")
"""Of psycopg, which has no SQLSTATE when it connects; errors in other words are tried again and told."""

Url: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Of the database, with an asynchronous driver: postgresql+asyncpg://user@host/name, "
        "sqlite+aiosqlite:///file.db.",
        envvar=URL_VARIABLE,
        show_default=False,
    ),
]
TableName: TypeAlias = Annotated[str, typer.Option("--table", metavar="NAME", help="Name of the outbox's table.")]
Schema: TypeAlias = Annotated[
    str | None, typer.Option("--schema", metavar="NAME", help="Schema of the tables.", show_default=False)
]
ParkedIds: TypeAlias = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID]...", help="Ids of parked rows; none is all.", show_default=False),
]
Ids: TypeAlias = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID]...", help="Ids of rows; before a negative one write `--`.", show_default=False),
]
OfBatch: TypeAlias = Annotated[
    bool, typer.Option("--batch", help="The batch of which Kafka does not say whether it was committed.")
]

OfShard: TypeAlias = Annotated[
    int | None,
    typer.Option("--shard", metavar="NUMBER", help="Of the batch, where there are several.", show_default=False),
]

outbox: typer.Typer = typer.Typer(
    help="Send the rows of an outbox in a database, and look after those that are refused.", no_args_is_help=True
)


@outbox.command("create")
def create(
    url: Url,
    table: TableName = NAME,
    schema: Schema = None,
    is_printed: Annotated[
        bool, typer.Option("--print", help="Show the statements for a migration, and run none of them.")
    ] = False,
) -> None:
    """Create the tables of an outbox; those that exist stay as they are.

    Exit code 0: they exist. 1: the database refused. 2: invalid usage.
    """
    if is_printed:
        _say_statements(url, table, schema)
        return

    async def run(made: Outbox, engine: AsyncEngine) -> None:
        await _connect(engine)
        await made.create(engine)
        say([f"outbox {made.name} exists"])

    _with_database(url, table, schema, run=run, is_made=True)


def _say_statements(url: str, table: str, schema: str | None) -> None:
    made, engine = _outbox_and_engine(url, table, schema)
    found: list[str] = []

    def note(statement: ExecutableDDLElement, *_: object, **__: object) -> None:
        found.append(str(statement.compile(dialect=engine.dialect)).strip())

    made.metadata.create_all(create_mock_engine(engine.url, note), checkfirst=False)
    say(f"{statement};" for statement in found)


@outbox.command("relay")
def relay(
    url: Url,
    bootstrap_server: BootstrapServer = None,
    config: ConfigFile = None,
    table: TableName = NAME,
    schema: Schema = None,
    on_refused: Annotated[
        str, typer.Option(metavar="stop|park|park-key", help="With a row that Kafka refuses for good.")
    ] = "stop",
    not_transactional: Annotated[
        bool, typer.Option("--not-transactional", help="Send at least once, to a cluster without transactions.")
    ] = False,
    shards: Annotated[
        int, typer.Option(metavar="NUMBER", help="Parts, by key, that relays of several processes share.")
    ] = 1,
    keep: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Keep rows so long after they were sent.", show_default=False),
    ] = None,
    id_prefix: Annotated[
        str,
        typer.Option(
            "--id-prefix",
            metavar="TEXT",
            help="Of the transactional id and the consumer group; the same for all relays of an outbox.",
        ),
    ] = ID_PREFIX,
    token_provider: TokenProviderName = None,
) -> None:
    """Send the rows of an outbox to Kafka until Ctrl-C, or stand by while another relay does.

    A database that is away is tried again, and told.

    Exit code 130, 143, 129: ended by Ctrl-C, SIGTERM or SIGHUP. 1: at the start the tables are missing, or the
    database refuses the user, the password or its name. 2: invalid usage.
    """
    policy = on_refused.replace("-", " ")
    if policy not in {"stop", "park", "park key"}:
        usage_error(f"--on-refused must be stop, park or park-key, not {on_refused!r}")
    properties = file_properties(config, token_provider)
    given = {"bootstrap.servers": properties.servers(bootstrap_server), **properties.all, **properties.provided}
    try:
        producer = ProducerConfig.from_kafka_properties(given)
    except ConfigurationError as error:
        usage_error(properties.located(error))
    tell_ignored(properties)

    async def run(made: Outbox, engine: AsyncEngine) -> None:
        chosen = cast("Literal['stop', 'park', 'park key']", policy)
        try:
            running = made.relay(
                engine,
                producer,
                on_refused=chosen,
                transactional=not not_transactional,
                shards=shards,
                keep=keep,
                id_prefix=id_prefix,
            )
        except ConfigurationError as error:
            own = f"--{error}".replace("id_prefix", "id-prefix", 1)
            usage_error(own if error.option is None else properties.located(error))
        await _look_first(made, engine)
        await _report(running)

    _with_database(url, table, schema, run=run, is_made=True, shards=shards)


async def _look_first(made: Outbox, engine: AsyncEngine) -> None:
    """Raise what no repetition helps; anything else the relay meets too, and tells."""
    try:
        await _check(made, engine)
    except OutboxTableError:
        raise
    except Exception as error:
        if not is_of_database(error) or _is_refusal(error):
            raise


def _is_refusal(error: Exception) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    state = str(getattr(cause, "sqlstate", None) or "")
    is_worded = type(cause).__module__.startswith("psycopg") and any(word in str(cause) for word in REFUSED_WORDS)
    return state.startswith(REFUSED_STATES) or is_worded or isinstance(error, ProgrammingError)


async def _report(running: Relay) -> None:
    """Start a relay, and say what it does, where that changes, without an end."""
    await running.start()
    said = ""
    try:
        while True:
            explained = running.explain()
            if _without_counts(explained) != _without_counts(said):
                tell(f"aioproducer: {explained}")
            said = explained
            await anyio.sleep(REPORT_S)
    finally:
        with anyio.CancelScope(shield=True):
            await running.close()


def _without_counts(explained: str) -> str:
    """Return what is told again only where it changes; while a relay works, its numbers do all the time."""
    return explained.partition(":")[0] if explained.startswith("works") else explained


@outbox.command("status")
def status(url: Url, table: TableName = NAME, schema: Schema = None, as_json: Json = False) -> None:
    """Show how many rows wait, are parked and kept, the age of the oldest, and for each shard which relay works.

    Exit code 0: shown, and nothing is wrong. 1: nothing is sent, or the database refused. 2: invalid usage.
    """
    trouble: list[str] = []

    async def run(made: Outbox, engine: AsyncEngine) -> None:
        found = await Operations(made, engine).status()
        if as_json:
            shards = [shard._asdict() for shard in found.shards]
            say_json([{**found._asdict(), "shards": shards, "trouble": found.trouble or None}])
        else:
            _say_status(found)
        trouble.extend([found.trouble] if found.trouble else [])

    _with_database(url, table, schema, run=run)
    if trouble:
        sys.exit(EXIT_FAILED)


def _say_status(found: Status) -> None:
    counts = {name: value for name, value in found._asdict().items() if name != "shards"}
    say(f"{name.replace('_', ' '):<16}{_shown(value)}" for name, value in counts.items())
    rows = [tuple(map(_shown, shard[:-1])) for shard in found.shards]
    say(columns(("SHARD", "ROWS WAITING", "RELAY", "BATCH"), rows) if rows else ["no relay has worked yet"])
    if found.trouble and not any(shard.trouble for shard in found.shards):
        say([found.trouble])
    for shard in found.shards:
        if shard.trouble:  # whole, since it ends with what to do
            say([f"shard {shard.shard}: {printable(shard.trouble, None)}"])


@outbox.command("parked")
def parked(url: Url, table: TableName = NAME, schema: Schema = None, as_json: Json = False) -> None:
    """Show the parked rows, each with its error.

    Exit code 0: shown. 1: the database refused. 2: invalid usage.
    """

    async def run(made: Outbox, engine: AsyncEngine) -> None:
        found = await Operations(made, engine).parked()
        if as_json:
            say_json(row._asdict() for row in found)
        else:
            rows = [(str(row.id), row.topic, _shown(row.key)[:KEY_SHOWN], row.parked_at, row.error) for row in found]
            say(columns(("ID", "TOPIC", "KEY", "PARKED AT", "ERROR"), rows) if rows else ["no parked rows"])

    _with_database(url, table, schema, run=run)


@outbox.command("retry")
def retry(
    url: Url,
    ids: ParkedIds = None,
    batch: OfBatch = False,
    new_identity: Annotated[
        bool,
        typer.Option(
            "--new-identity", help="Send as another outbox from now on: for a copy of a database, or a restored one."
        ),
    ] = False,
    shard: OfShard = None,
    table: TableName = NAME,
    schema: Schema = None,
) -> None:
    """Let parked rows be sent, or a batch in doubt again.

    Exit code 0: done. 1: there is none, or the database refused. 2: invalid usage.
    """
    url, numbers = _url_and_ids(url, ids, is_batch=batch or new_identity, shard=shard)

    async def run(made: Outbox, engine: AsyncEngine) -> None:
        operations = Operations(made, engine)
        if batch or new_identity:
            rows = await operations.retry_batch(shard, new_identity=new_identity)
            as_another = ", as another outbox" if new_identity else ""
            say([f"{rows_text(rows)} of the last batch {'is' if rows == 1 else 'are'} sent again{as_another}"])
        else:
            _say_moved(await operations.retry(numbers), "is sent again")

    _with_database(url, table, schema, run=run)


@outbox.command("skip")
def skip(
    url: Url,
    ids: Ids = None,
    batch: OfBatch = False,
    shard: OfShard = None,
    table: TableName = NAME,
    schema: Schema = None,
) -> None:
    """Delete rows without sending them, parked or waiting, or a batch in doubt that Kafka has.

    Exit code 0: done. 1: there is none, or the database refused. 2: invalid usage.
    """
    url, numbers = _url_and_ids(url, ids, is_batch=batch, shard=shard)
    if not numbers and not batch:
        usage_error("skip: give the URL of the database, and then the ids of rows, or --batch")

    async def run(made: Outbox, engine: AsyncEngine) -> None:
        operations = Operations(made, engine)
        if batch:
            rows = await operations.skip_batch(shard)
            say([f"{rows_text(rows)} of the last batch {'was' if rows == 1 else 'were'} deleted"])
        else:
            _say_moved(await operations.skip(numbers), "was deleted")

    _with_database(url, table, schema, run=run)


def _url_and_ids(url: str, ids: list[int] | None, *, is_batch: bool, shard: int | None) -> tuple[str, list[int]]:
    """Return the URL, and the ids of rows; where the variable has the URL, the first argument may be an id."""
    numbers = ids or []
    if url.removeprefix("-").isdecimal() and (known := os.environ.get(URL_VARIABLE)):
        url, numbers = known, [int(url), *numbers]
    for number in numbers:
        if not -INT64 <= number < INT64:
            usage_error(f"ID must be the id of a row, a number of 64 bits, not {number}")
    if numbers and is_batch:
        usage_error("give ids of rows, or --batch or --new-identity, not both")
    if shard is not None and not is_batch:
        usage_error("--shard is for --batch and --new-identity")
    return url, numbers


def _say_moved(rows: int, what: str) -> None:
    if not rows:
        tell("aioproducer: there is no such row")
        sys.exit(EXIT_FAILED)
    say([f"{rows_text(rows)} {what.replace('is', 'are').replace('was', 'were') if rows != 1 else what}"])


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _with_database(
    url: str,
    table: str,
    schema: str | None,
    *,
    run: Callable[[Outbox, AsyncEngine], Awaitable[None]],
    is_made: bool = False,
    shards: int = 1,
) -> None:
    """Run with an outbox and its database; a signal ends the command, and what cannot be had is a usage error.

    Args:
        is_made: whether `run` looks by itself whether the tables are there.
        shards: that a relay is to have.
    """
    made, engine = _outbox_and_engine(url, table, schema, shards)
    try:
        check_engine(engine)
    except ConfigurationError as error:
        usage_error(f"URL: {error}")

    async def main() -> None:
        try:
            if not is_made:
                await _check(made, engine)
            await run(made, engine)
        finally:
            with anyio.CancelScope(shield=True):
                await engine.dispose()

    try:
        run_to_end(main)
    except Exception as error:
        if not isinstance(error, KafkaError) and not is_of_database(error):
            raise
        host, port = engine.url.host, engine.url.port or "its usual port"
        place = "" if host is None or isinstance(error, KafkaError) else f" at {host}:{port}"
        tell(f"aioproducer: {words_of(error).replace('database', f'database{place}', 1)}")
        sys.exit(EXIT_FAILED)


async def _check(made: Outbox, engine: AsyncEngine) -> None:
    """Connect, and refuse tables that cannot be used, without making anything."""
    check_dialect(engine.dialect)
    path = engine.url.database or ""
    if engine.dialect.name == "sqlite" and not path.startswith("file:") and not await anyio.Path(path).exists():
        raise OutboxTableError(f"there is no file {path!r}: create it with {creation_of(made.name)}")
    await _connect(engine)
    async with engine.connect() as connection:
        await connection.run_sync(check_tables, made._tables.needed)  # noqa: SLF001  # of the same package


async def _connect(engine: AsyncEngine) -> None:
    """Connect once: a driver refuses parameters of the URL by a TypeError."""
    try:
        async with engine.connect():
            pass
    except TypeError as error:
        usage_error(f"URL: the driver {engine.dialect.driver} refuses a parameter: {error}")


def _outbox_and_engine(url: str, table: str, schema: str | None, shards: int = 1) -> tuple[Outbox, AsyncEngine]:
    address = _parsed(required_text("URL", url))
    # A relay keeps a connection for each shard; by default a pool lends five, and ten beyond them.
    options = {"max_overflow": shards} if shards > SHARDS_OF_A_POOL else {}
    try:
        return Outbox(table, schema=schema), create_async_engine(address, **options)
    except ConfigurationError as error:
        usage_error(str(error))
    except ModuleNotFoundError as error:
        usage_error(f"URL: its driver is not installed ({error}); one that works is as in {LIKE}")
    except (SQLAlchemyError, TypeError, ValueError) as error:  # of a parameter, or of a database without a pool
        usage_error(f"URL: {error}; it is like {LIKE}")


def _parsed(url: str) -> URL:
    """Parse a URL; no message has a part of it, which may be of the password."""
    place = url.partition("?")[0].partition("://")[2]
    if place.count("@") > 1 and not place.startswith("/"):
        usage_error("URL: an '@' in the user or the password is written as %40")
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        usage_error(
            f"URL: it cannot be read; it is like {LIKE}. In the user and the password '@' is written as %40, ':' as "
            "%3A and '/' as %2F"
        )
