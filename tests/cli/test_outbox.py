"""`aioproducer outbox`, on SQLite and the embedded cluster."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from aioproducer.outbox import Outbox
from aioproducer.testing import FakeCluster
from tests.cli.commands import ended, refused, run, started
from tests.outbox.postgres import Postgres, missing_for_postgres
from tests.outbox.test_relay import rows_left, until

pytestmark = [pytest.mark.slow, pytest.mark.timing]


URL = "sqlite+aiosqlite:///not-made.db"
NO_TABLE = "there is no table 'kafka_outbox': create it with `aioproducer outbox create URL`"


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite+aiosqlite:///"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'outbox.db'}"


async def write(url: str, *topics: str) -> None:
    engine, outbox = create_async_engine(url), Outbox()
    async with AsyncSession(engine) as session, session.begin():
        for topic in topics:
            await outbox.enqueue(session, topic, b"v", key=b"k")
    await engine.dispose()


async def test_outbox_is_created_relayed_and_looked_after(url: str, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("max.block.ms=2000\n", "utf-8")
    created = await run("outbox", "create", url)
    await write(url, "missing", "orders")
    async with FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as cluster:
        options = ["-b", cluster.bootstrap_servers, "--config", str(properties), "--on-refused", "park"]
        async with started("outbox", "relay", url, *options) as relay:
            await until(lambda: bool(cluster.records("orders", 0)))
            while json.loads((await run("outbox", "status", url, "--json")).output)["rows_waiting"]:
                pass
            relay.terminate()
            stopped = await ended(relay)
    status = await run("outbox", "status", url, "--json")
    parked = await run("outbox", "parked", url)
    skipped = await run("outbox", "skip", url, "1")
    retried = await run("outbox", "retry", url)

    assert created == (0, "outbox kafka_outbox exists\n", [])
    assert stopped.code == 143
    found = json.loads(status.output)
    assert (found["rows_waiting"], found["rows_parked"], found["trouble"]) == (0, 1, None)
    assert [(shard["shard"], shard["relay"]) for shard in found["shards"]] == [(0, None)]
    assert "topic 'missing' is still unknown" in parked.output
    assert (skipped.code, skipped.output) == (0, "1 row was deleted\n")
    assert (retried.code, retried.errors) == (1, ["there is no such row"])


async def test_variable_holds_the_url_also_with_ids(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await run("outbox", "create", url)
    await write(url, "orders", "orders", "orders")
    monkeypatch.setenv("AIOPRODUCER_OUTBOX_URL", url)

    assert (await run("outbox", "skip", "1")).output == "1 row was deleted\n"
    assert (await run("outbox", "skip", "2", "3")).output == "2 rows were deleted\n"
    assert (await run("outbox", "retry", "4")).errors == ["there is no such row"]
    assert "rows waiting    0" in (await run("outbox", "status")).output


async def test_relay_divides_and_keeps_rows(url: str) -> None:
    await run("outbox", "create", url)
    before = await run("outbox", "status", url)
    await write(url, *["orders"] * 3)
    async with FakeCluster(nodes=1, topics={"orders": 1}) as cluster:
        options = ["-b", cluster.bootstrap_servers, "--shards", "4", "--keep", "3600"]
        async with started("outbox", "relay", url, *options) as relay:
            await until(lambda: len(cluster.records("orders", 0)) == 3)
            engine = create_async_engine(url)
            while await rows_left(engine, "kafka_outbox_sent") != 3:
                pass
            await engine.dispose()
            relay.terminate()
            await ended(relay)
    status = await run("outbox", "status", url)

    assert "no relay has worked yet" in before.output
    lines = status.output.splitlines()
    assert lines[4].split() == ["rows", "kept", "3"]
    assert lines[5].split() == ["SHARD", "ROWS", "WAITING", "RELAY", "BATCH"]
    assert [line.split()[0] for line in lines[6:]] == ["0", "1", "2", "3"]


async def test_trouble_is_shown_whole(url: str) -> None:
    """It ends with what to do."""
    await run("outbox", "create", url)
    trouble = "x" * 500 + " run `aioproducer outbox retry --batch URL`"
    with closing(sqlite3.connect(path_of(url))) as database:
        row = "(id, identity, epoch, number, claimed, token, former_token, lease_until, renewals, trouble)"
        database.execute(
            f"INSERT INTO kafka_outbox_relay {row} VALUES (0, 'i', 1, 1, '[]', '', '', 0, 0, ?)", (trouble,)
        )
        database.commit()
    status = await run("outbox", "status", url)

    assert status.code == 1
    assert f"shard 0: {trouble}" in status.output.splitlines()


@pytest.mark.parametrize(
    "arguments,text",
    [
        (["skip", "14"], "skip: give the URL of the database, and then the ids of rows, or --batch"),
        (["status", "postgresql+asyncpg://u:p@SECRET@127.0.0.1:1/db"], "an '@' in the user or the password is"),
        (["status", "mysql+mysqlconnectorx://u@h/d"], "URL: "),
    ],
)
def test_bad_url_says_what_is_wrong(arguments: list[str], text: str) -> None:
    result = refused("outbox", *arguments)

    assert result.code == 2
    assert text in "".join(result.errors)
    assert "SECRET" not in "".join(result.errors)


def test_missing_table_is_one_line(url: str) -> None:
    sqlite3.connect(path_of(url)).close()
    for command in (["status"], ["parked"], ["retry"], ["skip", "1"], ["relay", "-b", "127.0.0.1:1"]):
        result = refused("outbox", command[0], url, *command[1:])

        assert result.code == 1
        assert result.errors == [f"{NO_TABLE}, or by a migration of the tables in the MetaData of Outbox(metadata=...)"]


@pytest.mark.parametrize("command", [["status"], ["skip", "1"], ["relay", "-b", "127.0.0.1:1"]])
def test_missing_file_is_told_and_not_made(command: list[str], url: str) -> None:
    result = refused("outbox", command[0], url, *command[1:])

    assert result.code == 1
    assert result.errors == [f"there is no file '{path_of(url)}': create it with `aioproducer outbox create URL`"]
    assert not path_of(url).exists()


@pytest.mark.parametrize("command", [["create"], ["status"], ["relay", "-b", "127.0.0.1:1"]])
def test_parameter_that_a_driver_refuses_is_told(command: list[str]) -> None:
    url = "postgresql+asyncpg://user@127.0.0.1:1/name?sslmode=require"
    result = refused("outbox", command[0], url, *command[1:])

    assert result.code == 2
    assert result.errors == [
        "URL: the driver asyncpg refuses a parameter: connect() got an unexpected keyword argument 'sslmode'"
    ]


@pytest.mark.parametrize("password", ["p@s:horse", "p@127.0.0.1/horse", "p:horse@", "p@s/s:horse"])
def test_no_part_of_a_password_is_told(password: str) -> None:
    result = refused("outbox", "status", f"postgresql+asyncpg://user:{password}@host/name")

    assert result.code == 2
    assert "is written as %40" in result.errors[0]
    assert "horse" not in "".join(result.errors)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_relay_ends_where_the_database_refuses_it(driver: str) -> None:
    if reason := missing_for_postgres():
        pytest.skip(reason)
    server = Postgres()
    try:
        result = await run("outbox", "relay", f"{server.url(driver)}x", "-b", "127.0.0.1:1")
    finally:
        server.stop()

    assert result.code == 1
    assert ['database "postgresx" does not exist' in error for error in result.errors] == [True]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_relay_goes_on_while_the_database_is_away(driver: str) -> None:
    url = f"postgresql+{driver}://user@127.0.0.1:1/name"
    async with started("outbox", "relay", url, "-b", "127.0.0.1:1") as relay:
        assert relay.stderr is not None
        first = await asyncio.wait_for(relay.stderr.readline(), 60)
        while b"nothing is sent" not in first:
            first = await asyncio.wait_for(relay.stderr.readline(), 60)
        relay.terminate()
        stopped = await ended(relay)

    assert stopped.code == 143


def test_relay_names_the_line_of_an_option(url: str, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("linger.ms=5\nacks=1\n", "utf-8")
    result = refused("outbox", "relay", url, "-b", "127.0.0.1:1", "--config", str(properties))

    assert result.code == 2
    assert "client.properties, line 2" in result.errors[0]
    assert "acks=1 is not for a relay with transactions" in result.errors[0]


def test_relay_names_what_it_ignores(url: str, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("session.timeout.ms=45000\ngroup.id=g\n", "utf-8")
    result = refused("outbox", "relay", url, "-b", "127.0.0.1:1", "--config", str(properties))

    told, missing = result.errors
    assert told.startswith("not used here: ")
    assert "session.timeout.ms" in told
    assert "group.id" in told
    assert missing.startswith("there is no file")


@pytest.mark.parametrize(
    "arguments,text",
    [
        (["create", "orders.db"], "URL: it cannot be read; it is like postgresql+asyncpg://user:password@host/name"),
        (["relay", URL, "-b", "127.0.0.1:1", "--id-prefix", "a{b}"], "--id-prefix must be printable text"),
        (["create", "sqlite+aiosqlite:///a.db?timeout=abc"], "URL: could not convert string to float: 'abc'"),
        (["create", "sqlite:///a.db"], "URL: The asyncio extension requires an async driver"),
        (["create", URL, "--table", "a b"], "name must be the name of a table"),
        (["create", "sqlite+aiosqlite://"], "URL: engine must give each transaction a connection of its own"),
        (["status", "sqlite+aiosqlite:///:memory:"], "URL: engine must give each transaction"),
        (["skip", URL, "9" * 20], "ID must be the id of a row, a number of 64 bits, not 9999"),
        (["retry", URL, "9" * 20], "ID must be the id of a row, a number of 64 bits, not 9999"),
        (["skip", URL], "then the ids of rows, or --batch"),
        (["retry", URL, "1", "--batch"], "not both"),
        (["retry", URL, "1", "--shard", "3"], "--shard is for --batch and --new-identity"),
        (["relay", URL, "--on-refused", "drop"], "--on-refused must be stop, park or park-key"),
        (
            ["relay", URL, "-b", "127.0.0.1:1", "--shards", "0"],
            "--shards must be an int from 1 to 32",
        ),
        (["relay", URL, "-b", "127.0.0.1:1", "--keep", "0"], "--keep must be a number of seconds above 0"),
    ],
)
def test_bad_argument_is_a_usage_error(arguments: list[str], text: str) -> None:
    result = refused("outbox", *arguments)

    assert result.code == 2
    assert text in result.errors[0]
