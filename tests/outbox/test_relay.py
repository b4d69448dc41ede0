"""A relay on SQLite and the embedded cluster: every committed row once, in order."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from math import inf, nan
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from aioproducer import ConfigurationError, Producer, ProducerRecord
from aioproducer.errors import BrokerError, TransactionTimeoutError
from aioproducer.outbox import Outbox, Relay, _calls, _kafka
from aioproducer.outbox._store import SqlStore
from aioproducer.testing import FakeCluster

pytestmark = pytest.mark.timing


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1, "bills": 1}, auto_create_topics=False) as running:
        yield running


async def write(engine: AsyncEngine, outbox: Outbox, *records: ProducerRecord) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await outbox.enqueue_many(session, records)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # of a cluster that has no event for it
            await asyncio.sleep(0.01)


def sent(kafka: FakeCluster, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in kafka.committed_records(topic, 0)]


@asynccontextmanager
async def relaying(outbox: Outbox, engine: AsyncEngine, kafka: FakeCluster, **options: object) -> AsyncIterator[Relay]:
    async with outbox.relay(engine, kafka.bootstrap_servers, **options) as relay:  # type: ignore[arg-type]
        yield relay


async def rows_left(engine: AsyncEngine, table: str = "kafka_outbox") -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())


async def until_empty(engine: AsyncEngine) -> None:
    """Wait until each row was sent and deleted."""
    async with asyncio.timeout(60):
        while await rows_left(engine):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)


async def test_rows_are_sent_once_in_order(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    await write(engine, outbox, *(ProducerRecord("orders", b"%d" % number, b"k") for number in range(50)))
    async with relaying(outbox, engine, kafka, batch_rows=7) as relay:
        await until(lambda: len(sent(kafka)) == 50)
        await write(engine, outbox, ProducerRecord("orders", b"50"), ProducerRecord("bills", b"b"))
        await until(lambda: relay.statistics().rows_sent == 52)
        statistics = relay.statistics()

    assert sent(kafka) == [b"%d" % number for number in range(51)]
    assert sent(kafka, "bills") == [b"b"]
    assert statistics.batches_sent >= 9
    assert statistics.is_working


async def test_parts_of_a_row_arrive(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    headers = [("h", b"1"), ("n", None), ("b", b"\xff")]
    record = ProducerRecord("orders", None, b"k", 0, 17, headers)
    async with relaying(outbox, engine, kafka):
        await write(engine, outbox, record)
        await until(lambda: len(sent(kafka)) == 1)

    (found,) = kafka.records("orders", 0)
    assert (found.key, found.value, found.timestamp, list(found.headers)) == (b"k", None, 17, headers)


async def test_rows_of_other_programs_are_sent(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    async with engine.begin() as connection:
        insert = "INSERT INTO kafka_outbox (topic, value, headers) VALUES ('orders', x'61', '{\"a\": \"b\"}')"
        await connection.execute(text(insert))
    async with relaying(outbox, engine, kafka):
        await until(lambda: len(sent(kafka)) == 1)

    (found,) = kafka.records("orders", 0)
    assert (found.value, list(found.headers)) == (b"a", [("a", b"b")])
    assert found.timestamp > 1_700_000_000_000


async def test_rows_are_sent_once_by_many_relays(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    """Each takes the outbox over from the one before, in the middle of its work."""
    await write(engine, outbox, *(ProducerRecord("orders", b"%d" % number) for number in range(300)))
    for stop_after in range(1, 6):
        async with relaying(outbox, engine, kafka, batch_rows=10) as relay:
            await until(lambda: relay.statistics().batches_sent >= stop_after)  # noqa: B023  # called before the next round
    async with relaying(outbox, engine, kafka, batch_rows=100):
        await until(lambda: len(sent(kafka)) >= 300)

    assert sent(kafka) == [b"%d" % number for number in range(300)]


async def test_second_relay_stands_by_until_the_first_ends(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with relaying(outbox, engine, kafka) as first:
        await until(lambda: first.statistics().is_working)
        async with relaying(outbox, engine, kafka) as second:
            await write(engine, outbox, ProducerRecord("orders", b"a"))
            await until(lambda: first.statistics().rows_sent == 1)
            await until(lambda: "stands by" in second.explain())
            await first.close()
            await write(engine, outbox, ProducerRecord("orders", b"b"))
            await until(lambda: second.statistics().rows_sent == 1)

    assert sent(kafka) == [b"a", b"b"]


async def test_relay_is_not_ready_while_brokers_are_away(engine: AsyncEngine, outbox: Outbox) -> None:
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with outbox.relay(engine, "127.0.0.1:1") as relay:
        await until(lambda: "cannot connect to bootstrap broker 127.0.0.1:1" in relay.health().reason)

        assert relay.explain().startswith("nothing is sent: the producer is starting: cannot connect")
        assert relay.statistics().trouble == relay.health().reason


async def test_waiting_rows_are_counted_while_none_is_sent(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """An alert on the age of the oldest row is for this; a relay that has ended knows nothing of them."""
    async with relaying(outbox, engine, kafka, max_block_ms=200, lease_s=0.3) as relay:
        await until(lambda: relay.statistics().is_working)
        await write(engine, outbox, ProducerRecord("missing", b"a"), ProducerRecord("orders", b"b"))
        await until(lambda: "row 1 is refused" in relay.health().reason)
        await until(lambda: relay.statistics().rows_waiting == 2)
        before = relay.statistics().oldest_age_s
        await until(lambda: (relay.statistics().oldest_age_s or 0) > (before or 0) + 0.2)

    assert relay.statistics().rows_waiting is None


async def test_unknown_topic_is_told_while_it_is_asked_for(  # noqa: PLR0917  # fixtures
    monkeypatch: pytest.MonkeyPatch, engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    monkeypatch.setattr(_kafka, "TOLD_AFTER_S", 0.1)
    async with relaying(outbox, engine, kafka, max_block_ms=3_000, on_refused="park") as relay:
        await write(engine, outbox, ProducerRecord("missing", b"a"))
        await until(lambda: "no broker has named the topic 'missing' yet" in relay.health().reason)
        await until(lambda: relay.statistics().rows_parked == 1)


async def test_unknown_topics_are_asked_for_at_the_same_time(  # noqa: PLR0917  # fixtures
    monkeypatch: pytest.MonkeyPatch, engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    monkeypatch.setattr(_kafka, "TOLD_AFTER_S", 0.1)
    await write(engine, outbox, *(ProducerRecord(topic, b"a") for topic in ("one", "two", "orders")))
    async with relaying(outbox, engine, kafka, max_block_ms=1_000, on_refused="park") as relay:
        await until(lambda: "no broker has named the topics 'one', 'two' yet" in relay.health().reason)
        await until(lambda: relay.statistics().rows_parked == 2)
        await until_empty(engine)

    assert sent(kafka) == [b"a"]


async def test_offset_of_a_hanging_transaction_says_what_to_do(  # noqa: PLR0917  # fixtures
    monkeypatch: pytest.MonkeyPatch, engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """Kafka 4.3 gives markers up where no replica is there, and keeps the offset of the transaction pending."""
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    pending = BrokerError.of(88, "offsets of an open transaction are pending", retriable=True)

    async def hang(*_: object) -> None:
        raise TransactionTimeoutError("no committed offsets after 60 s", last_broker_error=pending)

    with monkeypatch.context() as patched:
        patched.setattr(Producer, "committed_offsets", hang)
        async with relaying(outbox, engine, kafka) as relay:
            await until(lambda: "aioproducer txn list --hanging --longest 60" in relay.health().reason)


async def test_refused_row_stops_the_rows_behind_it(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    await write(engine, outbox, ProducerRecord("missing", b"a"), ProducerRecord("orders", b"b"))
    async with relaying(outbox, engine, kafka, max_block_ms=200) as relay:
        await until(lambda: "row 1 is refused: topic 'missing' is still unknown" in relay.health().reason)
        assert "aioproducer outbox skip URL 1" in relay.explain()
        assert sent(kafka) == []
        async with engine.begin() as connection:
            await connection.execute(text("DELETE FROM kafka_outbox WHERE id = 1"))
        await until(lambda: sent(kafka) == [b"b"])
        assert relay.statistics().retries >= 1


async def test_database_that_does_not_answer_is_told_and_left(  # noqa: PLR0917  # fixtures
    monkeypatch: pytest.MonkeyPatch, engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """A connection may be dead without a word."""
    monkeypatch.setattr(_calls, "LEAST_LIMIT_S", 0.5)
    is_silent, first_rows = True, SqlStore.first_rows

    @_calls.uninterrupted
    async def first_rows_later(store: SqlStore) -> object:
        if is_silent:
            await asyncio.Event().wait()
        return await first_rows(store)

    monkeypatch.setattr(SqlStore, "first_rows", first_rows_later)
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka, lease_s=0.1) as relay:
        await until(lambda: relay.health().reason == "database: it has not answered for 0.5 s")
        is_silent = False
        await until(lambda: sent(kafka) == [b"a"])
        await until(lambda: relay.health().is_ready)


async def test_relays_made_before_a_fork_are_told_apart(engine: AsyncEngine, outbox: Outbox) -> None:
    relay = outbox.relay(engine, "127.0.0.1:1")
    assert not relay._leases.owner  # noqa: SLF001  # a child process would have the same
    async with relay:
        assert str(os.getpid()) in relay._leases.owner  # noqa: SLF001


async def test_engine_that_translates_schemas_is_refused(engine: AsyncEngine, outbox: Outbox) -> None:
    translating = engine.execution_options(schema_translate_map={None: "tenant"})
    with pytest.raises(ConfigurationError, match="engine must have no schema_translate_map"):
        outbox.relay(translating, "127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="engine must have no schema_translate_map"):
        await outbox.create(translating)


async def test_remedy_names_the_table(engine: AsyncEngine, kafka: FakeCluster) -> None:
    """Else it would concern the row of another outbox."""
    other = Outbox("orders_outbox")
    await other.create(engine)
    await write(engine, other, ProducerRecord("missing", b"a"))
    async with relaying(other, engine, kafka, max_block_ms=200) as relay:
        await until(lambda: "aioproducer outbox skip URL 1 --table orders_outbox" in relay.health().reason)


async def test_relay_that_stands_by_says_what_the_other_is_stopped_by(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """A probe finds neither of them ready, at any time."""
    await write(engine, outbox, ProducerRecord("missing", b"a"))
    options: dict[str, object] = {"max_block_ms": 300, "lease_s": 1}
    async with relaying(outbox, engine, kafka, **options) as one, relaying(outbox, engine, kafka, **options) as two:
        await until(lambda: all("row 1 is refused" in each.health().reason for each in (one, two)))
        reasons = set()
        for _ in range(30):
            await asyncio.sleep(0.05)
            reasons |= {one.health().reason, two.health().reason}
        kafka.create_topic("missing", 1)
        await until(lambda: one.health().is_ready and two.health().is_ready)

    assert "" not in reasons


@pytest.mark.parametrize("policy,arrived", [("park", [b"b", b"c"]), ("park key", [b"c"])])
async def test_refused_row_is_parked(  # noqa: PLR0917  # fixtures
    policy: str, arrived: list[bytes], engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """With its key: the later rows of it too."""
    big = ProducerRecord("orders", bytes(3000), b"k")
    await write(engine, outbox, big, ProducerRecord("orders", b"b", b"k"), ProducerRecord("orders", b"c", b"l"))
    async with relaying(outbox, engine, kafka, on_refused=policy, max_request_size=2000) as relay:
        await until(lambda: len(sent(kafka)) == len(arrived))
        await until(lambda: relay.statistics().rows_sent == len(arrived))

    assert sent(kafka) == arrived
    assert await rows_left(engine, "kafka_outbox_parked") == 3 - len(arrived)


async def test_invalid_headers_of_a_row_are_refused(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO kafka_outbox (topic, headers) VALUES ('orders', 'a=b')"))
    async with relaying(outbox, engine, kafka, on_refused="park") as relay:
        await until(lambda: relay.statistics().rows_parked == 1)

    async with engine.connect() as connection:
        error = (await connection.execute(text("SELECT error FROM kafka_outbox_parked"))).scalar_one()
    assert 'headers must be JSON like [["name", "text"]' in error


async def test_rows_are_sent_at_least_once_without_transactions(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with relaying(outbox, engine, kafka, transactional=False) as relay:
        await write(engine, outbox, *(ProducerRecord("orders", b"%d" % number) for number in range(30)))
        await until(lambda: relay.statistics().rows_sent == 30)

    assert sent(kafka) == [b"%d" % number for number in range(30)]
    assert {record.producer_epoch for record in kafka.records("orders", 0)} == {0}


async def test_relay_goes_on_after_the_broker_was_away(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    async with relaying(outbox, engine, kafka, max_block_ms=500) as relay:
        await until(lambda: relay.statistics().is_working)
        await kafka.kill(1)
        await write(engine, outbox, ProducerRecord("orders", b"a"))
        await until(lambda: not relay.health().is_ready)
        await kafka.restart(1)
        await until(lambda: sent(kafka) == [b"a"])
        await until(lambda: relay.health().is_ready)


async def test_missing_table_is_in_readiness(outbox: Outbox, kafka: FakeCluster, database: Path) -> None:
    made = create_async_engine(f"sqlite+aiosqlite:///{database}")
    async with relaying(outbox, made, kafka) as relay:
        await until(lambda: "there is no table 'kafka_outbox'" in relay.health().reason)
    await made.dispose()


async def test_lost_offset_is_in_doubt_where_a_batch_was_claimed(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    async with engine.begin() as connection:  # as if the relay had died before it deleted the row, weeks ago
        await connection.execute(text("INSERT INTO kafka_outbox (id, topic) VALUES (9, 'orders')"))
        await connection.execute(
            text("UPDATE kafka_outbox_relay SET number = 2, claimed = '[[2,9,9]]', topic = 'bills'")
        )
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: "batch 2 with the rows 9 was committed" in relay.health().reason)

    assert sent(kafka) == [b"a"]


async def test_copy_of_the_database_is_refused(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE kafka_outbox_relay SET token = 'x', former_token = 'y'"))
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: "the database is a copy, was restored from a backup, or has lost" in relay.health().reason)


def test_metrics_show_the_relay_before_its_start(outbox: Outbox) -> None:
    relay = outbox.relay(create_async_engine("sqlite+aiosqlite:///a.db"), "localhost:9092")

    values = {metric.name: metric.value for metric in relay.metrics()}
    assert values["outbox-rows-sent-total"] == 0
    assert values["outbox-is-working"] == 0
    assert relay.health() == (False, "the relay is not started")


@pytest.mark.parametrize(
    "options,text",
    [
        ({"on_refused": "drop"}, "on_refused must be one of 'stop', 'park', 'park key', not 'drop'"),
        ({"on_refused": ["park"]}, "on_refused must be one of"),
        ({"transactional": "no"}, "transactional must be True or False, not 'no'"),
        ({"batch_rows": 0}, "batch_rows must be an int from 1 to 2,147,483,647, not 0"),
        ({"batch_rows": inf}, "batch_rows must be an int from 1"),
        ({"batch_bytes": 2.5}, "batch_bytes must be an int from 1"),
        ({"lease_s": "10"}, "lease_s must be a number of seconds of at least 0.1, and at most 86,400, not '10'"),
        ({"lease_s": inf}, "lease_s must be a number of seconds"),
        ({"lease_s": nan}, "lease_s must be a number of seconds"),
        ({"keep": 1e300}, "keep must be a number of seconds above 0, and at most"),
        ({"id_prefix": 5}, "id_prefix must be a str, not int"),
        ({"id_prefix": "é" * 16_001}, "id_prefix must be printable text of up to 32,000 bytes"),
        ({"id_prefix": "orders-{pid}."}, "without braces, not 'orders-{pid}.'"),
        ({"acks": 1}, 'acks=1 is not for a relay with transactions, which needs acks="all"'),
        ({"acks": 0}, "acks=0 is not for a relay with transactions"),
        ({"retries": 0}, "retries=0 is not for a relay .* leave retries out, or set transactional=False"),
        ({"enable_idempotence": False}, "enable_idempotence=False is not for a relay with transactions"),
        ({"transactional_id": "mine"}, "transactional_id is not for a relay"),
        ({"value_serializer": str.encode}, "value_serializer is not for a relay"),
    ],
)
def test_bad_option_of_a_relay_is_refused(options: dict[str, object], text: str, outbox: Outbox) -> None:
    with pytest.raises(ConfigurationError, match=text):
        outbox.relay(create_async_engine("sqlite+aiosqlite:///a.db"), "localhost:9092", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"acks": 1}, {"retries": 0}, {"enable_idempotence": False}])
def test_relay_without_transactions_takes_any_acks(options: dict[str, object], outbox: Outbox) -> None:
    engine = create_async_engine("sqlite+aiosqlite:///a.db")
    assert outbox.relay(engine, "localhost:9092", transactional=False, **options)  # type: ignore[arg-type]


def test_engine_with_one_shared_connection_is_refused(outbox: Outbox) -> None:
    """The relay's commit would commit rows that the application then cannot roll back."""
    with pytest.raises(ConfigurationError, match="its StaticPool shares one, as of SQLite in memory"):
        outbox.relay(create_async_engine("sqlite+aiosqlite://"), "localhost:9092")


@pytest.mark.parametrize(
    "size, overflow, shards, is_refused",
    [
        (1, 0, 1, True),
        (1, 1, 1, False),
        (2, 0, 1, False),
        (0, 0, 1, False),
        (1, 3, 4, True),
        (1, 4, 4, False),
        (1, -1, 4, False),
    ],
)
def test_pool_with_too_few_connections_is_refused(
    outbox: Outbox, *, size: int, overflow: int, shards: int, is_refused: bool
) -> None:
    """Each shard keeps one for its rows, and could not renew its lease; 0 and -1 mean any number."""
    engine = create_async_engine("sqlite+aiosqlite:///a.db", pool_size=size, max_overflow=overflow)

    text = f"engine must lend a relay {shards + 1} connections at a time"
    with pytest.raises(ConfigurationError, match=text) if is_refused else nullcontext():
        outbox.relay(engine, "localhost:9092", shards=shards)


async def test_lost_cancellation_does_not_keep_the_relay(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As asyncpg's does where it meets the error of a lost connection."""

    async def listen(*_: object) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    monkeypatch.setattr("aioproducer.outbox._outbox.listen", listen)
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: relay.statistics().is_working)
        async with engine.begin() as connection:
            await connection.run_sync(outbox.metadata.drop_all)
        await until(lambda: not relay.health().is_ready)
        await outbox.create(engine)
        await write(engine, outbox, ProducerRecord("orders", b"v"))
        await until(lambda: relay.statistics().rows_sent == 1)

    assert sent(kafka) == [b"v"]


async def test_lost_cancellation_does_not_keep_close(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def open_(_store: SqlStore) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise ConnectionError("lost") from error

    monkeypatch.setattr(SqlStore, "open", open_)
    relay = await outbox.relay(engine, kafka.bootstrap_servers).start()
    await asked.wait()

    async with asyncio.timeout(60):
        await relay.close()
    assert relay.health().reason == "the relay is closed"


async def test_empty_text_of_headers_is_none(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    """As some programs write it; also beside a row that has headers."""
    async with engine.begin() as connection:
        rows = "('orders', x'61', ''), ('orders', x'62', '{\"a\": \"b\"}')"
        await connection.execute(text(f"INSERT INTO kafka_outbox (topic, value, headers) VALUES {rows}"))
    async with relaying(outbox, engine, kafka):
        await until(lambda: len(sent(kafka)) == 2)

    assert [list(record.headers) for record in kafka.records("orders", 0)][:2] == [[], [("a", b"b")]]


async def test_relay_goes_on_without_the_topic_of_its_position(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """It has asked for no commit of what it has claimed."""
    async with relaying(outbox, engine, kafka, max_block_ms=300) as relay:
        await write(engine, outbox, ProducerRecord("orders", b"1"))
        await until(lambda: relay.statistics().rows_sent == 1)
        kafka.delete_topic("orders")
        await write(engine, outbox, *(ProducerRecord("bills", b"%d" % number) for number in range(20)))
        await until_empty(engine)

    assert sent(kafka, "bills") == [b"%d" % number for number in range(20)]
    async with engine.connect() as connection:
        found = (await connection.execute(text("SELECT topic, claimed FROM kafka_outbox_relay"))).one()
    assert tuple(found) == ("bills", "[]")
