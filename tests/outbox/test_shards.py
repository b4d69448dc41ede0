"""An outbox that is divided into shards: by key, shared by relays, and divided again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import pytest
from sqlalchemy import MetaData, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from aioproducer import ConfigurationError, ProducerRecord
from aioproducer.outbox import Outbox, OutboxError, Relay
from aioproducer.outbox._errors import RelayFencedError, ShardsChangedError
from aioproducer.outbox._leases import Leases
from aioproducer.outbox._operations import Operations
from aioproducer.outbox._protocol import State
from aioproducer.outbox._shards import add_hash, hash_of, shard_of
from aioproducer.outbox._store import Limits, SqlStore
from aioproducer.outbox._tables import tables_of
from aioproducer.testing import FakeCluster
from tests.outbox.test_relay import relaying, rows_left, until, until_empty, write

pytestmark = pytest.mark.timing

TABLES = tables_of("kafka_outbox", MetaData(), None)
KEYS = [b"customer-%d" % number for number in range(12)]


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 4}, auto_create_topics=False) as running:
        yield running


def records(begin: int, end: int) -> list[ProducerRecord]:
    """Rows of each key in turn, and some without a key."""
    keys = [*KEYS, None]
    return [ProducerRecord("orders", b"%d" % number, keys[number % len(keys)]) for number in range(begin, end)]


def arrived(kafka: FakeCluster, key: bytes | None) -> list[int]:
    found = [record for number in range(4) for record in kafka.committed_records("orders", number)]
    return [int(record.value or b"") for record in found if record.key == key]


def check_arrived(kafka: FakeCluster, rows: int) -> None:
    """Each row once, and those of each key in order."""
    keys = [*KEYS, None]
    for at, key in enumerate(keys):
        expected = [*range(at, rows, len(keys))]
        found = arrived(kafka, key) if key is not None else sorted(arrived(kafka, key))
        assert found == expected


def holds(*relays: Relay) -> list[int]:
    return [relay.statistics().shards_working for relay in relays]


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("shards", [2, 7])
async def test_database_computes_the_hash_of_keys(any_engine: AsyncEngine, outbox: Outbox, shards: int) -> None:
    """Also of keys that are empty or no text; and each row has a shard, also one with a negative id."""
    keys = [b"", b"\x00\xff", *(b"%d" % number for number in range(60))]
    await write(any_engine, outbox, *(ProducerRecord("orders", key, key) for key in keys))
    async with any_engine.begin() as connection:
        await connection.execute(text("INSERT INTO kafka_outbox (id, topic) VALUES (-7, 'orders')"))
        await add_hash(connection)
        rows = outbox.metadata.tables["kafka_outbox"]
        found = (await connection.execute(select(rows.c.id, rows.c.key, shard_of(rows, shards)))).all()

    assert sorted(shard for number, _, shard in found if number == -7) == [7 % shards]
    assert {key: shard for _, key, shard in found if key is not None} == {key: hash_of(key) % shards for key in keys}


@pytest.mark.slow(seconds=20)
async def test_shards_send_each_row_once_in_order(any_engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    await write(any_engine, outbox, *records(0, 400))
    async with relaying(outbox, any_engine, kafka, shards=3, batch_rows=20) as relay:
        await until(lambda: relay.statistics().rows_sent == 400)
        await write(any_engine, outbox, *records(400, 500))
        await until_empty(any_engine)
        assert relay.statistics().shards_working == 3
        assert relay.explain().startswith("works for 3 of 3 shards: 500 rows sent")

    check_arrived(kafka, 500)


@pytest.mark.slow(seconds=20)
async def test_number_of_shards_changes_between_relays(
    any_engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """Each ends in the middle of its work, with batches that are claimed."""
    await write(any_engine, outbox, *records(0, 600))
    for number, shards in enumerate((1, 3, 2, 4), 1):
        async with relaying(outbox, any_engine, kafka, shards=shards, batch_rows=10) as relay:
            await until(lambda: relay.statistics().batches_sent >= 2)
        await write(any_engine, outbox, *records(500 + number * 100, 600 + number * 100))
    async with relaying(outbox, any_engine, kafka, shards=1):
        await until_empty(any_engine)

    check_arrived(kafka, 1000)
    assert await rows_left(any_engine, "kafka_outbox_relay") == 1


async def test_other_number_of_shards_stands_by(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    async with relaying(outbox, engine, kafka) as before:
        await until(lambda: before.statistics().is_working)
        async with relaying(outbox, engine, kafka, shards=2) as after:
            await until(lambda: "with shards=1; this one, with shards=2, stands by until none does" in after.explain())
            await write(engine, outbox, *records(0, 50))
            await until(lambda: before.statistics().rows_sent == 50)
            assert not after.statistics().is_working
            await before.close()
            await write(engine, outbox, *records(50, 100))
            await until(lambda: after.statistics().rows_sent == 50)

    check_arrived(kafka, 100)


async def test_relays_share_shards_evenly(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    """One that ends leaves its shards to the others."""
    async with relaying(outbox, engine, kafka, shards=4, lease_s=1) as first:
        await until(lambda: holds(first) == [4])
        async with relaying(outbox, engine, kafka, shards=4, lease_s=1) as second:
            await until(lambda: holds(first, second) == [2, 2])
            await write(engine, outbox, *records(0, 200))
            await until(lambda: first.statistics().rows_sent + second.statistics().rows_sent == 200)
            assert first.statistics().rows_sent > 0
            assert second.statistics().rows_sent > 0
        await until(lambda: holds(first) == [4])

    check_arrived(kafka, 200)


async def test_shard_whose_relay_was_asked_in_passing_is_taken_again(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """The one that asked has died."""
    async with relaying(outbox, engine, kafka, shards=2, lease_s=0.6) as relay:
        await until(lambda: holds(relay) == [2])
        async with engine.begin() as connection:
            await connection.execute(text("UPDATE kafka_outbox_relay SET wanted_by = 'dead' WHERE id = 1"))
        await until(lambda: holds(relay) == [1])
        await until(lambda: holds(relay) == [2])


async def test_shard_that_stops_does_not_stop_others(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    stuck, free = KEYS[0], next(key for key in KEYS if (hash_of(key) - hash_of(KEYS[0])) % 2)
    rows = [ProducerRecord("missing", b"x", stuck), ProducerRecord("orders", b"1", stuck)]
    await write(engine, outbox, *rows, ProducerRecord("orders", b"2", free))
    shard = hash_of(stuck) % 2
    async with relaying(outbox, engine, kafka, shards=2, max_block_ms=200, lease_s=1) as relay:
        await until(lambda: f"shard {shard}: row 1 is refused" in relay.health().reason)
        await until(lambda: arrived(kafka, free) == [2])
        assert arrived(kafka, stuck) == []
        status = await Operations(outbox, engine).status()
        assert status.shards[shard].rows_waiting == 2
        await skipped(Operations(outbox, engine), 1)
        await until(lambda: arrived(kafka, stuck) == [1])


async def skipped(operations: Operations, row: int) -> None:
    """Skip a row, between two attempts of its relay."""
    async with asyncio.timeout(60):
        while True:
            with suppress(OutboxError):
                await operations.skip([row])
                return
            await asyncio.sleep(0.01)


@pytest.fixture
def leases(engine: AsyncEngine) -> Leases:
    return Leases(engine, TABLES, owner="this", lease_s=10)


async def taken(leases: Leases, shard: int, shards: int) -> State:
    state = await leases.take_over(shard, shards, await leases.lease(shard, shards))
    assert state is not None
    return state


async def claim(engine: AsyncEngine, state: State, *, rows: int) -> None:
    """Claim a batch of a shard, and stop."""
    store = SqlStore(engine, TABLES, lease_s=10, limits=Limits(rows, 1000))
    await store.open()
    await store.claim(state, [])
    await store.close()


@pytest.mark.parametrize("most_bytes, is_full", [(1_000, True), (1_000_000, False)])
async def test_claim_that_its_bytes_end_is_full(
    engine: AsyncEngine, outbox: Outbox, leases: Leases, *, most_bytes: int, is_full: bool
) -> None:
    """The next one is claimed while it is committed."""
    await leases.create(1)
    state = await taken(leases, 0, 1)
    await write(engine, outbox, *(ProducerRecord("orders", bytes(200)) for _ in range(20)))
    store = SqlStore(engine, TABLES, lease_s=10, limits=Limits(5_000, most_bytes))
    await store.open()
    claimed = await store.claim(state, [])
    await store.close()

    assert claimed is not None
    assert (len(claimed.rows) < 20, claimed.is_full) == (is_full, is_full)


async def test_number_stays_where_a_relay_came_between(leases: Leases) -> None:
    """A relay of before has taken its shard since it was finished."""
    await leases.create(2)
    finished = [await taken(leases, shard, 2) for shard in range(2)]
    await taken(leases, 1, 2)

    assert not await leases.resize(finished, 4)
    assert await leases.number() == 2


async def test_number_stays_while_a_batch_is_claimed(engine: AsyncEngine, outbox: Outbox, leases: Leases) -> None:
    await leases.create(1)
    state = await taken(leases, 0, 1)
    await write(engine, outbox, *records(0, 1))
    await claim(engine, state, rows=10)

    assert not await leases.resize([state], 2)


async def test_rows_of_shards_of_before_are_counted(engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster) -> None:
    """A relay that divides the outbox first sends what one of another number has claimed."""
    leases = Leases(engine, TABLES, owner="before", lease_s=10)
    await leases.create(1)
    state = await taken(leases, 0, 1)
    await write(engine, outbox, *records(0, 5))
    await claim(engine, state, rows=3)
    await leases.release(state, None)

    async with relaying(outbox, engine, kafka, shards=2) as relay:
        await until_empty(engine)

        assert relay.statistics().rows_sent == 5


async def test_relay_of_another_number_claims_nothing(engine: AsyncEngine, outbox: Outbox, leases: Leases) -> None:
    """Nor does one whose shard was given up, and made again since with the same epoch."""
    await leases.create(2)
    old = [await taken(leases, shard, 2) for shard in range(2)]
    await write(engine, outbox, *records(0, 20))

    async def check_fenced() -> None:
        for shard, state in enumerate(old):
            store = SqlStore(engine, TABLES, shard=shard, shards=2, lease_s=10, limits=Limits(10, 1000))
            await store.open()
            with pytest.raises(RelayFencedError):
                await store.claim(state, [])
            await store.close()

    assert await leases.resize(old, 1)
    await check_fenced()
    with pytest.raises(ShardsChangedError):
        await leases.lease(0, 2)
    assert await leases.resize([await taken(leases, 0, 1)], 2)
    again = [await taken(leases, shard, 2) for shard in range(2)]
    assert again[1].epoch == old[1].epoch
    await check_fenced()


async def test_batch_in_doubt_needs_the_number_of_its_shard(
    engine: AsyncEngine, outbox: Outbox, leases: Leases
) -> None:
    await leases.create(2)
    operations = Operations(outbox, engine)
    await write(engine, outbox, *[ProducerRecord("orders", b"")] * 6)
    async with engine.begin() as connection:
        doubt = "claimed = '[[2,5,6]]', trouble = 'run `aioproducer outbox skip --batch`'"
        await connection.execute(text(f"UPDATE kafka_outbox_relay SET {doubt} WHERE id = 1"))

    with pytest.raises(OutboxError, match="has 2 shards: say which one, as in --shard 0"):
        await operations.retry_batch(new_identity=False)
    with pytest.raises(OutboxError, match="has the shards 0 to 1, not 2"):
        await operations.skip_batch(2)
    assert await operations.skip_batch(1) == 2
    identities = [(await taken(leases, shard, 2)).identity for shard in range(2)]
    for shard in range(2):
        await leases.release(await taken(leases, shard, 2), None)
    await operations.retry_batch(new_identity=True)
    assert not {*identities} & {(await taken(leases, shard, 2)).identity for shard in range(2)}


@pytest.mark.parametrize("shards", [0, 33, 2.0, True])
def test_bad_number_of_shards_is_refused(shards: object, outbox: Outbox) -> None:
    with pytest.raises(ConfigurationError, match="shards must be an int from 1 to 32"):
        outbox.relay(create_async_engine("sqlite+aiosqlite:///a.db"), "localhost:9092", shards=shards)  # type: ignore[arg-type]


async def test_random_relays_of_random_numbers_send_rows_once(
    engine: AsyncEngine, outbox: Outbox, kafka: FakeCluster
) -> None:
    """Two at a time, of numbers that may differ, each ended at any moment, while rows are written."""
    random, written = Random(3), 0
    for _ in range(6):
        relays = [
            outbox.relay(engine, kafka.bootstrap_servers, shards=random.randint(1, 3), batch_rows=5, lease_s=0.5)
            for _ in range(2)
        ]
        async with relays[0], relays[1]:
            await write(engine, outbox, *records(written, written + 100))
            written += 100
            await asyncio.sleep(random.random())
    async with relaying(outbox, engine, kafka, shards=2):
        await until_empty(engine)

    check_arrived(kafka, written)
