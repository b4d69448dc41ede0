"""The outbox on MariaDB: SQLAlchemy's asynchronous driver, and one of the DB-API."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import aiomysql
import asyncmy
import pymysql
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from aioproducer import ProducerRecord
from aioproducer.outbox import NotInTransactionError, Outbox, OutboxTableError
from aioproducer.outbox._operations import Operations
from aioproducer.testing import FakeCluster
from tests.outbox.mariadb import MariaDb, missing_for_mariadb
from tests.outbox.test_relay import relaying, rows_left, sent, until, until_empty, write

pytestmark = [
    pytest.mark.timing,
    pytest.mark.slow(seconds=20),
    pytest.mark.skipif(bool(missing_for_mariadb()), reason=missing_for_mariadb() or "-"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    running = MariaDb()
    yield running
    running.stop()


@pytest.fixture
async def engine(server: MariaDb, outbox: Outbox) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(server.url("asyncmy"))
    async with made.begin() as connection:
        await connection.run_sync(outbox.metadata.drop_all)
    await outbox.create(made)
    yield made
    await made.dispose()


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as running:
        yield running


async def test_rows_of_each_driver_arrive_once_in_order(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, server: MariaDb, outbox: Outbox, kafka: FakeCluster
) -> None:
    headers = [("h", b"1"), ("b", b"\xff"), ("n", None)]
    await write(engine, outbox, ProducerRecord("orders", b"0", b"\x00k", 0, 17, headers))
    with pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="service") as plain:
        outbox.enqueue(plain, "orders", b"1", key=b"k")
        outbox.enqueue_many(plain.cursor(), [ProducerRecord("orders", b"2"), ProducerRecord("orders", None)])
        plain.commit()
        outbox.enqueue(plain, "orders", b"never")
        plain.rollback()
        plain.autocommit(True)
        with pytest.raises(NotInTransactionError):
            outbox.enqueue(plain, "orders", b"never")
    async with relaying(outbox, engine, kafka, batch_rows=2) as relay:
        await until(lambda: relay.statistics().rows_sent == 4)
        await write(engine, outbox, *(ProducerRecord("orders", b"%d" % number) for number in range(3, 40)))
        await until_empty(engine)

    assert sent(kafka) == [b"0", b"1", b"2", None, *(b"%d" % number for number in range(3, 40))]
    first = kafka.records("orders", 0)[0]
    assert (first.key, first.timestamp, list(first.headers)) == (b"\x00k", 17, headers)


async def test_row_is_inserted_by_asynchronous_drivers(engine: AsyncEngine, server: MariaDb, outbox: Outbox) -> None:
    place = {"host": "127.0.0.1", "port": server.port, "user": "root", "db": "service"}
    one = await asyncmy.connect(**place)
    await outbox.enqueue(one, "orders", b"\xff\x00%s")
    await outbox.enqueue_many(one.cursor(), [ProducerRecord("orders", b"1"), ProducerRecord("orders", b"2")])
    assert await rows_left(engine) == 0
    await one.commit()
    assert await rows_left(engine) == 3
    await outbox.enqueue(one, "orders", b"never")
    await one.rollback()
    await one.autocommit(True)
    with pytest.raises(NotInTransactionError, match="autocommit is on"):
        outbox.enqueue(one, "orders")
    await one.ensure_closed()
    with pytest.raises(NotInTransactionError, match="is closed"):
        outbox.enqueue(one, "orders")
    other = await aiomysql.connect(**place)
    await outbox.enqueue(other, "orders")  # this version cannot send bytes
    await outbox.enqueue(await other.cursor(), "orders")
    assert await rows_left(engine) == 3
    await other.commit()
    other.close()
    with pytest.raises(NotInTransactionError, match="is closed"):
        outbox.enqueue(other, "orders")

    assert await rows_left(engine) == 5


async def test_transaction_begun_beside_autocommit_is_accepted(
    engine: AsyncEngine, server: MariaDb, outbox: Outbox
) -> None:
    place = {"host": "127.0.0.1", "port": server.port, "user": "root", "database": "service"}
    with pymysql.connect(**place, autocommit=True) as plain:
        plain.begin()
        outbox.enqueue(plain, "orders", b"v")
        plain.rollback()
        plain.begin()
        outbox.enqueue(plain, "orders", b"v")
        plain.commit()
        with pytest.raises(NotInTransactionError, match="autocommit is on"):
            outbox.enqueue(plain, "orders")
    with pytest.raises(NotInTransactionError, match="is closed"):
        outbox.enqueue(plain, "orders")

    assert await rows_left(engine) == 1


async def test_autocommit_of_an_engine_is_refused(engine: AsyncEngine, server: MariaDb, outbox: Outbox) -> None:
    made = create_async_engine(server.url("asyncmy"), connect_args={"autocommit": True})
    for automatic in (made, create_async_engine(server.url("asyncmy"), isolation_level="autocommit")):
        async with AsyncSession(automatic) as session:
            with pytest.raises(NotInTransactionError, match=r"AUTOCOMMIT|its autocommit is on"):
                await outbox.enqueue(session, "orders")
        await automatic.dispose()

    assert await rows_left(engine) == 0


async def test_rows_of_slower_transactions_are_not_skipped(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with relaying(outbox, engine, kafka) as relay, engine.connect() as slow, engine.connect() as undone:
        await outbox.enqueue(slow, "orders", b"slow")
        await outbox.enqueue(undone, "orders", b"never")
        await write(engine, outbox, ProducerRecord("orders", b"0"), ProducerRecord("orders", b"1"))
        await until(lambda: relay.statistics().rows_sent == 2)
        await slow.commit()
        await undone.rollback()
        await until(lambda: relay.statistics().rows_sent == 3)

    assert sent(kafka) == [b"0", b"1", b"slow"]


async def test_batch_ends_at_its_bytes(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    sizes = (600, 600, 3000, 10)
    await write(engine, outbox, *(ProducerRecord("orders", bytes(size)) for size in sizes))
    async with relaying(outbox, engine, kafka, batch_bytes=1000) as relay:
        await until(lambda: relay.statistics().rows_sent == 4)
        assert relay.statistics().batches_sent == 3


async def test_refused_rows_are_parked_and_sent_when_told_so(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    operations = Operations(outbox, engine)
    await write(engine, outbox, ProducerRecord("absent", b"v"), ProducerRecord("orders", b"v"))
    async with relaying(outbox, engine, kafka, on_refused="park", max_block_ms=3_000):
        await until(lambda: len(sent(kafka)) == 1)
        (parked,) = await operations.parked()
        assert (await operations.status()).rows_parked == 1
        kafka.create_topic("absent", 1)
        assert await operations.retry([parked.id]) == 1
        await until(lambda: sent(kafka, "absent") == [b"v"])

    assert await rows_left(engine, "kafka_outbox_parked") == 0


async def test_one_of_two_relays_works_when_both_start_at_once(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    await write(engine, outbox, *(ProducerRecord("orders", b"%d" % number) for number in range(100)))
    one = outbox.relay(engine, kafka.bootstrap_servers, batch_rows=9)
    other = outbox.relay(engine, kafka.bootstrap_servers, batch_rows=9)
    async with one, other:
        await until(lambda: one.statistics().rows_sent + other.statistics().rows_sent == 100)

    assert sent(kafka) == [b"%d" % number for number in range(100)]


async def test_engine_that_cannot_lock_is_refused(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, server: MariaDb, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE kafka_outbox ENGINE = MyISAM"))
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: "has the engine MyISAM, which cannot lock" in relay.health().reason)
    for dialect in ("mysql", "mariadb"):
        made = create_async_engine(make_url(server.url("asyncmy")).set(drivername=f"{dialect}+asyncmy"))
        with pytest.raises(
            OutboxTableError, match=r"may keep rows that were rolled back: run ALTER TABLE kafka_outbox"
        ):
            await outbox.create(made)
        await made.dispose()


async def test_column_of_another_kind_of_type_is_named(engine: AsyncEngine, outbox: Outbox) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE kafka_outbox MODIFY topic TEXT, MODIFY value VARBINARY(9000)"))
    await outbox.create(engine)
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE kafka_outbox MODIFY `key` TEXT, MODIFY timestamp DATETIME"))
    with pytest.raises(OutboxTableError, match=r"key is TEXT, and must be LONGBLOB; timestamp is DATETIME, and must"):
        await outbox.create(engine)


async def test_time_without_a_zone_is_refused(engine: AsyncEngine, outbox: Outbox) -> None:
    """Of each session's zone, which the relay does not know."""
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE kafka_outbox MODIFY created_at TIMESTAMP(6) NOT NULL"))
    await outbox.create(engine)
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE kafka_outbox MODIFY created_at DATETIME(3)"))
    with pytest.raises(OutboxTableError, match=r"created_at is DATETIME\(3\), and must be TIMESTAMP\(3\)"):
        await outbox.create(engine)


async def test_missing_table_is_named(engine: AsyncEngine, outbox: Outbox) -> None:
    async with engine.connect() as connection:
        await outbox.enqueue(connection, "orders", b"v")
        await connection.execute(text("DROP TABLE kafka_outbox"))
        with pytest.raises(OutboxTableError, match=r"kafka_outbox.*doesn't exist"):
            await outbox.enqueue(connection, "orders", b"v")


async def test_relay_goes_on_after_the_server_was_killed(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, server: MariaDb, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with relaying(outbox, engine, kafka) as relay:
        await write(engine, outbox, ProducerRecord("orders", b"a"))
        await until(lambda: relay.statistics().rows_sent == 1)
        await asyncio.to_thread(server.kill)
        await until(lambda: not relay.health().is_ready)
        await asyncio.to_thread(server.start)
        await engine.dispose()
        await write(engine, outbox, ProducerRecord("orders", b"b"))
        await until(lambda: relay.statistics().rows_sent == 2)

    assert sent(kafka) == [b"a", b"b"]
