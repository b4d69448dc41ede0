"""The scenario `outbox`: this package's relay beside a plain one, on PostgreSQL, which it starts; and the spool."""

import asyncio
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import aiosqlite
import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition
from sqlalchemy import MetaData, insert
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from aioproducer.outbox import Outbox, Spool
from aioproducer.outbox._leases import Leases
from aioproducer.outbox._store import Limits, SqlStore
from aioproducer.outbox._tables import tables_of
from tests.benchmarks.bench_run import Bench
from tests.benchmarks.brokers import fresh_topics
from tests.benchmarks.outbox_relays import PLAIN_TABLE
from tests.benchmarks.report import OURS, Comparison, Row, ScenarioReport, figures_text, median_of, ratio
from tests.benchmarks.worker import WorkerError, failure_text, python_process
from tests.outbox.postgres import Postgres, missing_for_postgres

TOPIC: Final = "bench-outbox"
PARTITIONS: Final = 4
VALUE: Final = b"x" * 300
KEYS: Final = 1_000
COLUMNS: Final = ("topic", "key", "value")
RATES: Final = (20, 500)
"""Events a second. The plain relay pauses only where it finds no row, which it does not at the higher one; the
scheduled one pauses after each look."""
WARM_UP_S: Final = 90
"""Until the Java compiler of a new broker is done with what a transaction passes: the first are three times as slow."""
CLAIMED: Final = 1_000
TASKS: Final = 100
TURNS: Final = 20
FEW: Final = 10_000
PLAIN, SCHEDULED, INSERT, COMMIT = "plain relay", "scheduled relay", "bare INSERT", "INSERT + commit"
COMMIT_BY_DEFAULT: Final = "INSERT + commit, defaults"
"""With a rollback journal, as `sqlite3.connect` opens a file; the others have a write-ahead log, as a spool has."""
COMMIT_IN_TASKS: Final = "INSERT + commit by aiosqlite"
COMMIT_IN_SESSIONS: Final = "INSERT + commit by SQLAlchemy"
COMMIT_TOGETHER: Final = f"{TASKS} INSERTs + commit"
"""What SQLite does for as many calls without a program around it: a spool cannot be faster."""
RELAYS: Final = {OURS: ("ours", "kafka_outbox"), PLAIN: ("plain", "plain_outbox")}
PACED_RELAYS: Final = {**RELAYS, SCHEDULED: ("scheduled", "plain_outbox")}
BACKLOG, ENQUEUE, SPOOL = "backlog", "in a request", f"{TASKS} tasks"
PACED: Final = {rate: f"{rate} events/s" for rate in RATES}
FEW_WAIT, MANY_WAIT = "few rows wait", "many rows wait"
WAITING: Final = {FEW_WAIT: "few_outbox", MANY_WAIT: "many_outbox"}
WRITE_AHEAD_LOG, ROLLBACK_JOURNAL = "PRAGMA journal_mode=WAL", "PRAGMA journal_mode=DELETE"
BARE_TABLE: Final = "CREATE TABLE bare (id INTEGER PRIMARY KEY, topic TEXT, key BLOB, value BLOB)"
BARE_INSERT: Final = "INSERT INTO bare (topic, value) VALUES (?, ?)"
CPU, P50, P99, CALL, CLAIM = "cpu_us_per_record", "p50_us", "p99_us", "call_us", "claim_ms"
COMPARED: Final = (
    # measure, figure, (client, variant), the other
    ("backlog: rate / plain relay", "records_per_s", (OURS, BACKLOG), (PLAIN, BACKLOG)),
    ("backlog: CPU a row / plain relay", CPU, (OURS, BACKLOG), (PLAIN, BACKLOG)),
    *(
        (f"{variant}, commit to reader, {figure[:3]} / {other}", figure, (OURS, variant), (other, variant))
        for variant in PACED.values()
        for other in (PLAIN, SCHEDULED)
        for figure in (P50, P99)
    ),
    ("enqueue / bare INSERT", CALL, (OURS, ENQUEUE), (INSERT, ENQUEUE)),
    ("spool: rate / INSERT + commit", "records_per_s", (OURS, SPOOL), (COMMIT, SPOOL)),
    ("spool: rate / INSERT + commit, SQLite's defaults", "records_per_s", (OURS, SPOOL), (COMMIT_BY_DEFAULT, SPOOL)),
    ("spool: rate / INSERT + commit by aiosqlite", "records_per_s", (OURS, SPOOL), (COMMIT_IN_TASKS, SPOOL)),
    ("spool: rate / INSERT + commit by SQLAlchemy", "records_per_s", (OURS, SPOOL), (COMMIT_IN_SESSIONS, SPOOL)),
    ("spool: rate / as many INSERTs in one commit", "records_per_s", (OURS, SPOOL), (COMMIT_TOGETHER, SPOOL)),
    ("claim: many rows wait / few", CLAIM, (OURS, MANY_WAIT), (OURS, FEW_WAIT)),
)
Figures = dict[str, float]
Measured = Sequence[tuple[str, str, Figures]]
"""Client, variant and figures of one round."""


class Place:
    """The servers of one run."""

    def __init__(self, server: Postgres, bootstrap_servers: str) -> None:
        self._dsn = f"postgresql://{server.dsn}"
        self._url = server.url("asyncpg")
        self.bootstrap_servers = bootstrap_servers

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        found = await asyncpg.connect(self._dsn)
        try:
            yield found
        finally:
            await found.close()

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[AsyncEngine]:
        made = create_async_engine(self._url)
        try:
            yield made
        finally:
            await made.dispose()

    @asynccontextmanager
    async def relay(self, name: str, rows: int) -> AsyncIterator[Callable[[], Awaitable[Figures]]]:
        """Run a relay in a process of its own, which ends when it has sent so many rows; yields the wait for that."""
        program = ("-m", "tests.benchmarks.outbox_relays", name, self._dsn, self.bootstrap_servers, str(rows))
        async with python_process(*program) as process:

            async def ended() -> Figures:
                printed, errors = await process.communicate()
                if process.returncode:
                    raise WorkerError(failure_text(f"relay {name} failed", errors))
                found: Figures = json.loads(printed.splitlines()[-1])
                return found

            yield ended


async def outbox(bench: Bench) -> ScenarioReport:
    """Measure relays, `enqueue`, claims and the spool, each pair in turn."""
    if missing := missing_for_postgres():
        raise WorkerError(missing)
    load_before = os.getloadavg()[0]
    server = Postgres(durable=True)
    try:
        async with fresh_topics(bench.broker.bootstrap_servers, [TOPIC], PARTITIONS):
            rows = await _measured(bench, Place(server, bench.broker.bootstrap_servers))
    finally:
        server.stop()
    comparisons = [
        Comparison(measure, ratio(median_of(rows, *one, figure), median_of(rows, *other, figure)))
        for measure, figure, one, other in COMPARED
    ]
    sizes = f"{_backlog(bench):,} rows of {len(VALUE)} bytes in the backlog, {_waiting(bench):,} in the large table"
    notes = [
        f"PostgreSQL with fsync on the same machine; {sizes}, claims of {CLAIMED:,}",
        f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after",
    ]
    return ScenarioReport("outbox", "Outbox, beside a plain relay", rows, comparisons, notes)


def _backlog(bench: Bench) -> int:
    return bench.size(200_000, 2_000)


def _waiting(bench: Bench) -> int:
    return bench.size(5_000_000, FEW)


async def _measured(bench: Bench, place: Place) -> list[Row]:
    """Make the tables, and measure one thing after another, each for all rounds."""
    async with place.engine() as engine, place.connection() as database:
        await Outbox().create(engine)
        await database.execute(PLAIN_TABLE)
        for variant, table in WAITING.items():
            await Outbox(table).create(engine)
            await _fill(database, table, FEW if variant == FEW_WAIT else _waiting(bench))
    await paced(place, RATES[-1], RATES[-1] * bench.size(WARM_UP_S // len(PACED_RELAYS), 1))
    rows: dict[tuple[str, str], Row] = {}
    rounds = [(measure, number) for measure in _measures(bench, place) for number in range(bench.rounds)]
    for measure, number in rounds:
        for client, variant, figures in await measure():
            rows.setdefault((client, variant), Row(client, variant)).add(figures)
            bench.say(f"round {number + 1}/{bench.rounds}: {client}, {variant}: {figures_text(figures)}")
    return [*rows.values()]


async def _fill(database: "asyncpg.Connection[asyncpg.Record]", table: str, rows: int) -> None:
    made = f"SELECT '{TOPIC}', 'k', $1::bytea FROM generate_series(1, $2::bigint)"
    await database.execute(f"INSERT INTO {table} (topic, key, value) {made}", VALUE, rows, timeout=900)
    await database.execute(f"VACUUM ANALYZE {table}", timeout=900)


def _measures(bench: Bench, place: Place) -> Sequence[Callable[[], Awaitable[Measured]]]:
    return (
        lambda: backlog(place, _backlog(bench)),
        *(partial(paced, place, rate, rate * bench.size(10, 1)) for rate in RATES),
        lambda: enqueue(place, bench.size(2_000, 100)),
        lambda: spool(bench.size(10_000, 1_000)),
        lambda: claim(place),
    )


async def backlog(place: Place, rows: int) -> Measured:
    """Measure what each relay takes for a table of rows."""
    measured = []
    for client, (name, table) in RELAYS.items():
        async with place.connection() as database:
            await database.execute(f"TRUNCATE {table}")
            records = ((TOPIC, b"%d" % (number % KEYS), VALUE) for number in range(rows))
            await database.copy_records_to_table(table, records=records, columns=COLUMNS)
        async with place.relay(name, rows) as ended:
            taken = await ended()
        measured.append(
            (client, BACKLOG, {"records_per_s": rows / taken["seconds"], CPU: taken["cpu"] / rows * 1_000_000})
        )
    return measured


async def paced(place: Place, rate: int, rows: int) -> Measured:
    """Measure how long events are on their way, one commit each, from another process than the relay."""
    measured = []
    for client, (name, table) in PACED_RELAYS.items():
        async with place.connection() as database, place.relay(name, rows) as ended:
            await database.execute(f"TRUNCATE {table}")
            late = await _paced(place, database, table, rate, rows)
            await ended()
        cuts = quantiles(late[len(late) // 5 :], n=100)  # without those that came before the relay worked
        measured.append((client, PACED[rate], {P50: cuts[49] * 1_000_000, P99: cuts[98] * 1_000_000}))
    return measured


async def _paced(
    place: Place, database: "asyncpg.Connection[asyncpg.Record]", table: str, rate: int, rows: int
) -> list[float]:
    """Return the seconds from the commit of each event until a reader of committed records has it."""
    consumer = AIOKafkaConsumer(bootstrap_servers=place.bootstrap_servers, isolation_level="read_committed")
    await consumer.start()
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    await consumer.seek_to_end()
    for partition in partitions:
        await consumer.position(partition)  # the end is looked up before the first event
    committed: dict[bytes, float] = {}
    late: list[float] = []

    async def read() -> None:
        async for record in consumer:
            late.append(time.perf_counter() - committed[record.value or b""])
            if len(late) == rows:
                return

    reading = asyncio.create_task(read())
    statement = f"INSERT INTO {table} (topic, key, value) VALUES ($1, $2, $3)"
    began = time.perf_counter()
    for number in range(rows):
        await asyncio.sleep(max(began + number / rate - time.perf_counter(), 0))
        value = b"%d" % number + VALUE
        committed[value] = time.perf_counter()  # the answer to the commit may come after the record
        await database.execute(statement, TOPIC, b"%d" % (number % KEYS), value)
        committed[value] = time.perf_counter()
    await reading
    await consumer.stop()
    return late


async def enqueue(place: Place, rows: int) -> Measured:
    """Measure `enqueue` and the INSERT of SQLAlchemy that it stands for."""
    made = Outbox()
    statement = insert(made.metadata.tables["kafka_outbox"])
    row = {"topic": TOPIC, "key": b"7", "value": VALUE, "headers": None, "partition": None, "timestamp": None}

    async def ours(session: AsyncSession) -> None:
        await made.enqueue(session, TOPIC, VALUE, key=b"7")

    async def bare(session: AsyncSession) -> None:
        await session.execute(statement, row)

    async def timed(call: Callable[[AsyncSession], Awaitable[None]], session: AsyncSession) -> float:
        began = time.perf_counter()
        for _ in range(rows // TURNS):
            await call(session)
        return time.perf_counter() - began

    taken = {ours: 0.0, bare: 0.0}
    async with place.engine() as engine, AsyncSession(engine) as session:
        await timed(ours, session)  # compiles the statement
        for turn in range(TURNS):  # a transaction becomes slower as it grows
            for call in (ours, bare) if turn % 2 else (bare, ours):
                taken[call] += await timed(call, session)
        await session.rollback()
    us = {call: {CALL: seconds / (rows // TURNS * TURNS) * 1_000_000} for call, seconds in taken.items()}
    return [(INSERT, ENQUEUE, us[bare]), (OURS, ENQUEUE, us[ours])]


async def claim(place: Place) -> Measured:
    """Measure claims from tables of two sizes."""
    async with place.engine() as engine:
        return [(OURS, variant, {CLAIM: await _claim_ms(engine, table)}) for variant, table in WAITING.items()]


async def _claim_ms(engine: AsyncEngine, table: str) -> float:
    """Return the median of claims that find the same rows, since the state that they are given stays."""
    tables = tables_of(table, MetaData(), None)
    leases = Leases(engine, tables, owner="bench", lease_s=10.0)
    store = SqlStore(engine, tables, lease_s=10.0, limits=Limits(CLAIMED, 4 * 1024 * 1024))
    await leases.create(1)
    await store.open()
    state = await leases.take_over(0, 1, await leases.lease(0, 1))
    assert state is not None
    taken = []
    for _ in range(9):
        began = time.perf_counter()
        claimed = await store.claim(state, [])
        taken.append(time.perf_counter() - began)
        assert claimed is not None
        assert len(claimed.rows) == CLAIMED
    await store.close()
    await leases.release(state, None)
    return median(taken) * 1_000


async def spool(records: int) -> Measured:
    """Measure a spool, and SQLite as it is, each with a sync per transaction, on the same disk."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        async with Spool(Path(folder) / "spool.db", "127.0.0.1:1") as spooled:

            async def store() -> None:
                for _ in range(records // TASKS):
                    await spooled.enqueue(TOPIC, VALUE)

            began = time.perf_counter()
            await asyncio.gather(*(store() for _ in range(TASKS)))
            rate = records / (time.perf_counter() - began)
        commits = records // TASKS
        by_default = await asyncio.to_thread(
            _commits_per_s, Path(folder) / "default.db", commits, 1, journal=ROLLBACK_JOURNAL
        )
        alone = await asyncio.to_thread(_commits_per_s, Path(folder) / "bare.db", commits, 1)
        together = await asyncio.to_thread(_commits_per_s, Path(folder) / "together.db", commits, TASKS)
        in_tasks = await _commits_per_s_in_tasks(Path(folder) / "tasks.db", records // TASKS)
        in_sessions = await _commits_per_s_in_sessions(Path(folder) / "sessions.db", records // TASKS)
    rates = {
        OURS: rate,
        COMMIT: alone,
        COMMIT_BY_DEFAULT: by_default,
        COMMIT_IN_TASKS: in_tasks,
        COMMIT_IN_SESSIONS: in_sessions,
        COMMIT_TOGETHER: together,
    }
    return [(client, SPOOL, {"records_per_s": found}) for client, found in rates.items()]


def _commits_per_s(file: Path, commits: int, rows: int, *, journal: str = WRITE_AHEAD_LOG) -> float:
    """Return the rows a second of so many commits of so many rows."""
    with closing(sqlite3.connect(file)) as bare:
        bare.execute(journal)
        bare.execute(BARE_TABLE)
        began = time.perf_counter()
        for _ in range(commits):
            bare.executemany(BARE_INSERT, [(TOPIC, VALUE)] * rows)
            bare.commit()
        return commits * rows / (time.perf_counter() - began)


async def _commits_per_s_in_tasks(file: Path, rows: int) -> float:
    """Measure what a service would do: as many tasks as the spool has, and a connection that they share in turn."""
    async with aiosqlite.connect(file) as bare:
        await bare.execute(WRITE_AHEAD_LOG)
        await bare.execute(BARE_TABLE)
        turn = asyncio.Lock()

        async def store() -> None:
            for _ in range(max(rows // TASKS, 1)):
                async with turn:
                    await bare.execute(BARE_INSERT, (TOPIC, VALUE))
                    await bare.commit()

        began = time.perf_counter()
        await asyncio.gather(*(store() for _ in range(TASKS)))
        return max(rows // TASKS, 1) * TASKS / (time.perf_counter() - began)


async def _commits_per_s_in_sessions(file: Path, rows: int) -> float:
    """Measure the same by SQLAlchemy's own pool of connections, each of which locks the file in its turn."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}", connect_args={"timeout": 60})
    async with engine.begin() as connection:
        await connection.exec_driver_sql(WRITE_AHEAD_LOG)
        await connection.exec_driver_sql(BARE_TABLE)

    async def store() -> None:
        for _ in range(max(rows // TASKS, 1)):
            async with engine.begin() as connection:
                await connection.exec_driver_sql(BARE_INSERT, (TOPIC, VALUE))

    began = time.perf_counter()
    await asyncio.gather(*(store() for _ in range(TASKS)))
    taken_s = time.perf_counter() - began
    await engine.dispose()
    return max(rows // TASKS, 1) * TASKS / taken_s
