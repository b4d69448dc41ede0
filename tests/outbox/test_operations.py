"""What people do with an outbox beside its relay."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from aioproducer import ProducerRecord
from aioproducer.outbox import Outbox, OutboxError, _attempts
from aioproducer.outbox._kafka import ProducerLog
from aioproducer.outbox._operations import Operations
from aioproducer.outbox._protocol import Position, StoredRow
from aioproducer.testing import FakeCluster
from tests.outbox.test_relay import relaying, rows_left, sent, until, until_empty, write

pytestmark = pytest.mark.timing


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as running:
        yield running


async def leave_a_batch_in_doubt(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    """Send a row, and be as if a relay had died before it deleted another, so long ago that the offset has expired."""
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    await write(engine, outbox, ProducerRecord("orders", b"b"), ProducerRecord("orders", b"c"))
    async with engine.begin() as connection:
        changes = "number = 2, claimed = '[[2,2,2]]', topic = 'gone'"
        await connection.execute(text(f"UPDATE kafka_outbox_relay SET {changes}"))
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: "batch 2" in relay.health().reason)


async def test_rows_that_wait_for_no_relay_are_trouble(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    operations = Operations(outbox, engine)
    assert (await operations.status()).trouble == ""
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    assert (await operations.status()).trouble == "rows wait, and no relay works"
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    assert (await operations.status()).trouble == ""
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    assert (await operations.status()).trouble == "rows wait, and no relay works"


async def test_batch_in_doubt_is_sent_again_when_told_so(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    await leave_a_batch_in_doubt(engine, outbox, kafka)

    assert "skip --batch" in ((await Operations(outbox, engine).status()).trouble or "")
    assert await Operations(outbox, engine).retry_batch(new_identity=False) == 1
    async with relaying(outbox, engine, kafka):
        await until(lambda: sent(kafka) == [b"a", b"b", b"c"])


async def test_batch_in_doubt_is_deleted_when_told_so(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    await leave_a_batch_in_doubt(engine, outbox, kafka)

    assert await Operations(outbox, engine).skip_batch() == 1
    async with relaying(outbox, engine, kafka):
        await until(lambda: sent(kafka) == [b"a", b"c"])


@pytest.mark.parametrize("decide", [Operations.skip_batch, partial(Operations.retry_batch, new_identity=False)])
async def test_rows_that_were_skipped_are_not_counted_with_their_batch(  # noqa: PLR0917  # fixtures
    decide: Callable[[Operations], Awaitable[int]], engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    await leave_a_batch_in_doubt(engine, outbox, kafka)

    assert await Operations(outbox, engine).skip([2]) == 1
    assert await decide(Operations(outbox, engine)) == 0


async def test_copy_of_a_database_sends_as_another_outbox(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE kafka_outbox_relay SET token = 'x', former_token = 'y'"))
    await write(engine, outbox, ProducerRecord("orders", b"b"))
    await Operations(outbox, engine).retry_batch(new_identity=True)
    async with relaying(outbox, engine, kafka):
        await until(lambda: sent(kafka) == [b"a", b"b"])


async def test_batch_is_not_touched_while_a_relay_works(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: relay.statistics().is_working)
        with pytest.raises(OutboxError, match="a relay works, so no batch is in doubt"):
            await Operations(outbox, engine).skip_batch()


async def test_doubt_that_is_over_is_not_said_any_more(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay that has found the offset sends the batch: it must not be told to send it again meanwhile."""
    await leave_a_batch_in_doubt(engine, outbox, kafka)
    commit, asked, may_commit = ProducerLog.commit, asyncio.Event(), asyncio.Event()

    async def commit_later(log: ProducerLog, rows: list[StoredRow], *position: *tuple[str, Position]) -> None:
        if rows:
            asked.set()
            await may_commit.wait()
        await commit(log, rows, *position)

    monkeypatch.setattr(ProducerLog, "commit", commit_later)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE kafka_outbox_relay SET topic = 'orders'"))
    async with relaying(outbox, engine, kafka):
        await asked.wait()
        with pytest.raises(OutboxError, match="a relay works, so no batch is in doubt"):
            await Operations(outbox, engine).retry_batch(new_identity=False)
        may_commit.set()
        await until(lambda: sent(kafka) == [b"a", b"b", b"c"])


async def test_doubt_is_not_said_again_by_the_relay_that_had_it(  # noqa: PLR0917  # fixtures
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second decision would be taken for the batch that it sends after the first one."""
    await leave_a_batch_in_doubt(engine, outbox, kafka)
    commit, asked, may_commit = ProducerLog.commit, asyncio.Event(), asyncio.Event()

    async def commit_later(log: ProducerLog, rows: list[StoredRow], *position: *tuple[str, Position]) -> None:
        if rows:
            asked.set()
            await may_commit.wait()
        await commit(log, rows, *position)

    monkeypatch.setattr(ProducerLog, "commit", commit_later)
    monkeypatch.setattr(_attempts, "BACKOFF_MS", (100, 200))
    operations = Operations(outbox, engine)
    async with relaying(outbox, engine, kafka, lease_s=0.3) as relay:
        await until(lambda: "batch 2" in relay.health().reason)
        assert await operations.retry_batch(new_identity=False) == 1
        await asked.wait()
        await asyncio.sleep(0.5)  # the lease is renewed meanwhile
        with pytest.raises(OutboxError, match="a relay works, so no batch is in doubt"):
            await operations.retry_batch(new_identity=False)
        may_commit.set()
        await until(lambda: sent(kafka) == [b"a", b"b", b"c"])


@pytest.mark.parametrize("decide", [Operations.skip_batch, partial(Operations.retry_batch, new_identity=False)])
async def test_batch_of_a_copied_database_is_not_touched(  # noqa: PLR0917  # fixtures
    decide: Callable[[Operations], Awaitable[int]], engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """It would go on under the identity of the original."""
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE kafka_outbox_relay SET token = 'x', former_token = 'y'"))
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: "retry --new-identity" in relay.health().reason)
    with pytest.raises(OutboxError, match="no batch is in doubt: the relay sends again once this is over: the token"):
        await decide(Operations(outbox, engine))


@pytest.mark.parametrize("change", [Operations.skip_batch, partial(Operations.retry_batch, new_identity=False)])
async def test_batch_that_is_not_in_doubt_is_not_touched(  # noqa: PLR0917  # fixtures
    change: Callable[[Operations], Awaitable[int]], engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """A relay has ended between its claim and the commit, or behind it: the next one finds out."""
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    await write(engine, outbox, ProducerRecord("orders", b"b"))
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE kafka_outbox_relay SET number = 2, claimed = '[[2,2,2]]'"))
    with pytest.raises(OutboxError, match="no relay has said that a batch is in doubt: start one"):
        await change(Operations(outbox, engine))
    async with relaying(outbox, engine, kafka):
        await until(lambda: sent(kafka) == [b"a", b"b"])


async def test_row_in_the_hands_of_a_relay_is_not_skipped(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """It may be sent all the same; once no relay works, the next one reads again what is claimed."""
    await write(engine, outbox, ProducerRecord("orders", b"a"))
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    await write(engine, outbox, ProducerRecord("orders", b"b"), ProducerRecord("orders", b"c"))
    operations = Operations(outbox, engine)
    async with engine.begin() as connection:
        held = "number = 2, claimed = '[[2,2,3]]', owner = 'other', lease_until = 9999999999999"
        await connection.execute(text(f"UPDATE kafka_outbox_relay SET {held}"))
    with pytest.raises(OutboxError, match="the relay other has row 2 in its hands, and may send it"):
        await operations.skip([2])
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE kafka_outbox_relay SET trouble = 'run `aioproducer outbox skip --batch`'")
        )
    assert await operations.skip([3]) == 1  # in doubt, so it is not sent
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE kafka_outbox_relay SET owner = NULL, lease_until = 0"))
    async with engine.connect() as connection:
        before = (await connection.execute(text("SELECT epoch FROM kafka_outbox_relay"))).scalar_one()
    assert await operations.skip([2]) == 1
    async with engine.connect() as connection:
        after = (await connection.execute(text("SELECT epoch FROM kafka_outbox_relay"))).scalar_one()
    assert after == before + 1
    async with relaying(outbox, engine, kafka):
        await until_empty(engine)
    assert sent(kafka) == [b"a"]


async def test_batch_needs_a_relay_that_has_worked(engine: AsyncEngine, outbox: Outbox) -> None:
    with pytest.raises(OutboxError, match="no relay has worked on outbox 'kafka_outbox' yet"):
        await Operations(outbox, engine).retry_batch(new_identity=False)


async def test_parked_rows_are_sent_or_deleted_when_told_so(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    operations = Operations(outbox, engine)
    await write(engine, outbox, *(ProducerRecord(name, b"v") for name in ("one", "two", "orders")))
    async with relaying(outbox, engine, kafka, on_refused="park", max_block_ms=500, retry_backoff_max_ms=100) as relay:
        await until(lambda: len(sent(kafka)) == 1)
        parked = await operations.parked()
        assert [(row.id, row.topic, row.key) for row in parked] == [(1, "one", None), (2, "two", None)]
        assert "topic 'one' is still unknown" in parked[0].error
        assert (await operations.status()).rows_parked == relay.statistics().rows_parked == 2
        assert await operations.skip([1, 7]) == 1
        kafka.create_topic("two", 1)
        assert await operations.retry([]) == 1
        await until(lambda: sent(kafka, "two") == [b"v"])

    assert await rows_left(engine, "kafka_outbox_parked") == 0


async def test_status_counts_what_waits(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    await write(engine, outbox, ProducerRecord("orders", b"a"), ProducerRecord("orders", b"b"))
    before = await Operations(outbox, engine).status()
    async with relaying(outbox, engine, kafka) as relay:
        await until(lambda: relay.statistics().rows_sent == 2)
        during = await Operations(outbox, engine).status()

    assert (before.rows_waiting, before.rows_parked, before.shards) == (2, 0, ())
    assert before.trouble == "rows wait, and no relay works"
    assert before.oldest_age_s is not None
    assert 0 <= before.oldest_age_s < 3_600
    (shard,) = during.shards
    assert shard.relay is not None
    assert shard.batch >= 1
