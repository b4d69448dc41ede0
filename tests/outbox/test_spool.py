"""A spool on a real file and the embedded cluster."""

import asyncio
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from math import inf, nan
from pathlib import Path

import pytest

from aioproducer import ConfigurationError, JsonSerializer, Outcome, ProducerRecord, RecordTooLargeError
from aioproducer.outbox import Outbox, Spool, SpoolError, SpoolFullError, _spool
from aioproducer.outbox._spool_file import Contents, SpoolFile
from aioproducer.testing import FakeCluster
from tests.outbox.test_relay import sent, until

pytestmark = pytest.mark.timing

NOWHERE = "127.0.0.1:1"
"""Brokers that are away."""
RECORD = 64 + len("orders") + 100
"""Bytes that a record with a value of 100 bytes counts."""


@pytest.fixture
async def kafka() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(nodes=1, topics={"orders": 1}, auto_create_topics=False) as running:
        yield running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def values(path: Path) -> list[bytes | None]:
    with closing(sqlite3.connect(path)) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM kafka_outbox ORDER BY id")]


async def test_record_is_sent_once_in_order(path: Path, kafka: FakeCluster) -> None:
    async with Spool(path, kafka.bootstrap_servers, value_serializer=JsonSerializer()) as spool:
        for number in range(20):
            await spool.enqueue("orders", number, key=b"k")
        await spool.enqueue_many([ProducerRecord("orders", 20), ProducerRecord("orders", 21)])
        await spool.flush()
        statistics = spool.statistics()

    assert sent(kafka) == [b"%d" % number for number in range(22)]
    assert (statistics.records_stored, statistics.records_waiting, statistics.bytes_waiting) == (22, 0, 0)
    assert spool.relay.statistics().rows_sent == 22


async def test_record_is_in_the_file_when_enqueue_returns(path: Path) -> None:
    async with Spool(path, NOWHERE) as spool:
        await spool.enqueue("orders", b"a")
        assert values(path) == [b"a"]
        assert spool.health().is_ready


async def test_calls_that_wait_share_one_sync(path: Path) -> None:
    async with Spool(path, NOWHERE) as spool:
        await asyncio.gather(*(spool.enqueue("orders", b"%d" % number) for number in range(200)))
        statistics = spool.statistics()

    assert values(path) == [b"%d" % number for number in range(200)]
    assert statistics.records_stored == 200
    assert statistics.syncs == 1


async def test_records_are_sent_after_the_next_start(path: Path, kafka: FakeCluster) -> None:
    async with Spool(path, NOWHERE) as spool:
        await spool.enqueue("orders", b"a")
    async with Spool(path, kafka.bootstrap_servers) as spool:
        await spool.enqueue("orders", b"b")
        await spool.flush()

    assert sent(kafka) == [b"a", b"b"]


WRITES = """
import asyncio, sys
from aioproducer.outbox import Spool

async def main():
    async with Spool(sys.argv[1], "127.0.0.1:1") as spool:
        for number in range(1_000_000):
            await spool.enqueue("orders", b"%d" % number)
            print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_what_was_stored_is_sent_after_a_kill(path: Path, kafka: FakeCluster, number: signal.Signals) -> None:
    command = [sys.executable, "-c", WRITES, str(path)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    for _ in range(50):
        await process.stdout.readline()
    process.send_signal(number)
    rest, _ = await process.communicate()
    told = 50 + rest.count(b"\n")
    async with Spool(path, kafka.bootstrap_servers) as spool:
        await spool.flush()

    found = sent(kafka)
    assert found == [b"%d" % number for number in range(len(found))]
    assert told <= len(found) <= told + 1


async def test_full_spool_refuses_and_keeps_what_it_has(path: Path) -> None:
    async with Spool(path, NOWHERE, when_full="refuse", max_bytes=3 * RECORD) as spool:
        for _ in range(3):
            await spool.enqueue("orders", bytes(100))
        with pytest.raises(SpoolFullError, match=r"is full: 510 of max_bytes=510 bytes are in use") as caught:
            await spool.enqueue("orders", bytes(100))
        statistics, health = spool.statistics(), spool.health()

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert values(path) == [bytes(100)] * 3
    assert (statistics.records_refused, statistics.bytes_waiting) == (1, 3 * RECORD)
    assert not health.is_ready
    assert "are in use" in health.reason


async def test_spool_is_ready_again_once_it_has_room(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Also where nothing is enqueued any more, because it was not ready."""
    monkeypatch.setattr(_spool, "LOOK_S", 0.05)
    async with Spool(path, NOWHERE, when_full="refuse", max_bytes=RECORD) as spool:
        await spool.enqueue("orders", bytes(100))
        with pytest.raises(SpoolFullError):
            await spool.enqueue("orders", bytes(100))
        await asyncio.sleep(0.2)
        assert not spool.health().is_ready
        with closing(sqlite3.connect(path, timeout=60)) as relay:
            relay.execute("DELETE FROM kafka_outbox")
            relay.commit()
        await until(lambda: spool.health().is_ready)


async def test_spool_is_ready_again_once_its_disk_has_room(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(_spool, "LOOK_S", 0.05)
    async with Spool(path, NOWHERE) as spool:
        with monkeypatch.context() as patched:
            patched.setattr(SpoolFile, "_free_bytes", lambda _: 0)
            with pytest.raises(SpoolError, match="the disk is full"):
                await spool.enqueue("orders", bytes(100))
            await asyncio.sleep(0.2)
            assert "the disk is full" in spool.health().reason
        await until(lambda: spool.health().is_ready)


async def test_bad_record_of_many_is_named_by_its_position(path: Path) -> None:
    async with Spool(path, NOWHERE) as spool:
        with pytest.raises(TypeError, match=r"records\[1\]: value must be bytes"):
            await spool.enqueue_many([ProducerRecord("orders", b"a"), ProducerRecord("orders", "b")])


async def test_full_spool_drops_the_oldest_and_counts(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aioproducer"):
        async with Spool(path, NOWHERE, when_full="drop oldest", max_bytes=3 * RECORD) as spool:
            for number in range(5):
                await spool.enqueue("orders", b"%d" % number * 100)
            dropped = spool.statistics().records_dropped
    async with Spool(path, NOWHERE) as spool:
        kept = spool.statistics().records_dropped

    assert values(path) == [b"%d" % number * 100 for number in (2, 3, 4)]
    assert dropped == kept == 2
    assert "spool_dropped" in caplog.text


async def test_full_spool_waits_until_there_is_room(path: Path, kafka: FakeCluster) -> None:
    async with Spool(path, NOWHERE, max_bytes=2 * RECORD) as spool:
        await spool.enqueue_many([ProducerRecord("orders", b"%d" % number * 100) for number in range(2)])
        waiting = asyncio.create_task(spool.enqueue("orders", b"2" * 100))
        await until(lambda: not spool.health().is_ready)
        assert not waiting.done()
    with pytest.raises(SpoolFullError):  # closed before there was room
        await waiting
    async with Spool(path, kafka.bootstrap_servers, max_bytes=2 * RECORD) as spool:
        await asyncio.gather(*(spool.enqueue("orders", b"%d" % number * 100) for number in range(2, 9)))
        await spool.flush()

    assert sent(kafka) == [b"%d" % number * 100 for number in range(9)]


def make_older(path: Path, seconds: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")  # waits for a relay that writes, where an UPDATE alone may fail at once
        change = "created_at = strftime('%Y-%m-%d %H:%M:%f', created_at, ?)"
        connection.execute(f"UPDATE kafka_outbox SET {change} WHERE id = 1", (f"-{seconds} seconds",))


async def test_spool_refuses_when_its_oldest_record_is_too_old(path: Path) -> None:
    async with Spool(path, NOWHERE, when_full="refuse", max_age_s=3_600) as spool:
        await spool.enqueue("orders", b"0")
        await spool.enqueue("orders", b"1")
        await asyncio.to_thread(make_older, path, 3_700)  # the relay's transactions end on this loop
        with pytest.raises(
            SpoolFullError, match=r"its oldest record has waited for 3,70\d.\d s, longer than max_age_s"
        ):
            await spool.enqueue("orders", b"2")

    assert values(path) == [b"0", b"1"]


async def test_records_that_are_too_old_are_dropped_unsent(path: Path, kafka: FakeCluster) -> None:
    async with Spool(path, NOWHERE) as spool:
        await spool.enqueue("orders", b"0")
        await spool.enqueue("orders", b"1")
    make_older(path, 3_700)
    async with Spool(path, kafka.bootstrap_servers, when_full="drop oldest", max_age_s=3_600) as spool:
        await spool.flush()
        assert spool.statistics().records_dropped == 1

    assert sent(kafka) == [b"1"]


async def test_record_that_a_relay_has_claimed_is_not_dropped(path: Path) -> None:
    async with Spool(path, NOWHERE) as spool:
        await spool.enqueue_many([ProducerRecord("orders", b"%d" % number * 100) for number in range(3)])
        await until(lambda: spool.relay.statistics().is_working)  # it has made its row
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE kafka_outbox_relay SET number = 1, claimed = '[[1,1,2]]'")
    async with Spool(path, NOWHERE, when_full="drop oldest", max_bytes=3 * RECORD) as spool:
        await spool.enqueue("orders", b"3" * 100)
        with pytest.raises(SpoolFullError, match="those in use are being sent"):
            await spool.enqueue("orders", bytes(100 + RECORD))

    assert values(path) == [b"%d" % number * 100 for number in (0, 1, 3)]


async def test_record_larger_than_the_spool_is_refused(path: Path) -> None:
    async with Spool(path, NOWHERE, max_bytes=100, max_request_size=1_000) as spool:
        with pytest.raises(SpoolFullError, match="takes 170 bytes, more than max_bytes=100"):
            await spool.enqueue("orders", bytes(100))
        with pytest.raises(RecordTooLargeError, match="max_request_size"):
            await spool.enqueue("orders", bytes(1_000))


async def test_full_disk_is_told_and_nothing_is_lost(small_disk: Path, kafka: FakeCluster) -> None:
    path = small_disk / "spool.db"
    stored = 0

    async def fill(spool: Spool) -> None:
        nonlocal stored
        for _ in range(200):
            await spool.enqueue("orders", b"%d" % stored + bytes(100_000))
            stored += 1

    async with Spool(path, NOWHERE) as spool:
        with pytest.raises(SpoolError, match="the disk is full") as caught:
            await fill(spool)
        reason = spool.health().reason
    async with Spool(path, kafka.bootstrap_servers) as spool:
        await spool.flush()
        await spool.enqueue("orders", b"after")
        await spool.flush()

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert "the disk is full" in reason
    assert sent(kafka) == [*(b"%d" % number + bytes(100_000) for number in range(stored)), b"after"]


async def test_start_on_a_full_disk_is_told(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    with pytest.raises(SpoolError, match=r"the disk is full \(database or disk is full\)"):
        await Spool(small_disk / "spool.db", NOWHERE).start()


async def test_file_that_another_process_locks_is_told(path: Path) -> None:
    async with Spool(path, NOWHERE, lock_timeout_s=0.05) as spool:
        await spool.enqueue("orders", b"0")
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")  # the relay's transactions end on this loop
            with pytest.raises(SpoolError, match="another process locks the file") as caught:
                await spool.enqueue("orders", b"1")
            other.execute("ROLLBACK")
        await spool.enqueue("orders", b"2")

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert values(path) == [b"0", b"2"]


async def test_read_only_file_is_told_at_the_start(small_disk: Path) -> None:
    path = small_disk / "spool.db"
    async with Spool(path, NOWHERE):
        pass
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)  # noqa: ASYNC221  # short
    with pytest.raises(SpoolError, match=r"may not be written to|cannot be opened"):
        await Spool(path, NOWHERE).start()


@pytest.mark.parametrize(
    "content,text",
    [(None, "the file cannot be opened; its folder must exist"), (b"no database" * 100, "is not a database of SQLite")],
)
async def test_file_that_cannot_be_used_is_told_at_the_start(content: bytes | None, text: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "spool.db"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(SpoolError, match=text):
        await Spool(path, NOWHERE).start()


async def test_file_with_another_table_of_that_name_is_told(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE kafka_outbox (id INTEGER, topic TEXT, key, value, headers)")
    with pytest.raises(SpoolError, match=r"no such column: .*partition"):
        await Spool(path, NOWHERE).start()


async def test_file_is_shared_by_two_spools(path: Path, kafka: FakeCluster) -> None:
    async with Spool(path, kafka.bootstrap_servers) as one, Spool(path, kafka.bootstrap_servers) as two:
        for number in range(20):
            await (one, two)[number % 2].enqueue("orders", b"%d" % number)
        await two.flush()

    assert sent(kafka) == [b"%d" % number for number in range(20)]


async def test_cancelled_call_leaves_the_others(path: Path) -> None:
    async with Spool(path, NOWHERE) as spool:
        calls = [asyncio.create_task(spool.enqueue("orders", b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    assert values(path) in ([b"0", b"2"], [b"0", b"1", b"2"])


async def test_spool_closes_after_a_call_that_gave_up(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(_spool, "LOOK_S", 3_600)
    async with Spool(path, NOWHERE, max_bytes=1_000) as spool:
        await spool.enqueue("orders", bytes(800))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await spool.enqueue("orders", bytes(800))


async def test_parked_records_that_fill_a_spool_are_named(path: Path) -> None:
    async with Spool(path, NOWHERE):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        insert = "INSERT INTO kafka_outbox_parked (id, topic, value, error) VALUES (1, 'orders', ?, 'no')"
        connection.execute(insert, [bytes(800)])
    async with Spool(path, NOWHERE, max_bytes=1_000, when_full="drop oldest") as spool:
        with pytest.raises(SpoolFullError, match="parked records are among them: `aioproducer outbox parked sqlite"):
            await spool.enqueue("orders", bytes(800))


def test_spool_of_an_event_loop_that_has_ended_can_be_closed(path: Path) -> None:
    spool = Spool(path, NOWHERE)
    asyncio.run(spool.start())

    async def use() -> None:
        with pytest.raises(SpoolError, match="the event loop on which the spool was started is closed"):
            await spool.enqueue("orders", b"a")
        await spool.close()

    asyncio.run(use())
    assert spool.health().reason == "the spool is closed"


async def test_defect_that_ends_the_task_is_told(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    def fail(_file: SpoolFile) -> int:
        raise ZeroDivisionError("a defect")

    async with Spool(path, NOWHERE) as spool:
        monkeypatch.setattr(SpoolFile, "_free_bytes", fail)
        with pytest.raises(SpoolError, match="may not be stored: ZeroDivisionError: a defect"):
            await spool.enqueue("orders", b"a")
        assert spool.health().reason == "the task of the spool has ended: ZeroDivisionError: a defect"
        with pytest.raises(SpoolError, match="cannot store: the task of the spool has ended: ZeroDivisionError"):
            await spool.enqueue("orders", b"b")


async def test_start_that_is_cancelled_closes_the_file(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    looks, may_look, closed = threading.Event(), threading.Event(), threading.Event()
    look, close = SpoolFile.look, SpoolFile.close

    def look_later(file: SpoolFile) -> Contents:
        looks.set()
        may_look.wait()
        return look(file)

    def note_close(file: SpoolFile) -> None:
        close(file)
        closed.set()

    monkeypatch.setattr(SpoolFile, "look", look_later)
    monkeypatch.setattr(SpoolFile, "close", note_close)
    spool = Spool(path, NOWHERE)
    start = asyncio.create_task(spool.start())
    await asyncio.to_thread(looks.wait)
    start.cancel()
    await asyncio.wait([start])
    may_look.set()

    assert await asyncio.to_thread(closed.wait, 60)
    await spool.close()


async def test_spool_that_is_not_open_refuses(path: Path) -> None:
    spool = Spool(path, NOWHERE)
    assert spool.health().reason == "the spool is not started"
    with pytest.raises(SpoolError, match="is not started"):
        await spool.enqueue("orders", b"a")
    async with spool:
        await spool.start()
    with pytest.raises(SpoolError, match="is closed"):
        await spool.enqueue("orders", b"a")
    with pytest.raises(SpoolError, match="is closed: make another one"):
        await spool.start()
    await spool.close()


async def test_call_from_another_event_loop_is_refused(path: Path) -> None:
    async with Spool(path, NOWHERE) as spool:
        for call in (lambda: spool.enqueue("orders", b"a"), spool.flush, spool.close):
            with pytest.raises(SpoolError, match="from another event loop or thread than the one that started it"):
                await asyncio.wait_for(asyncio.to_thread(asyncio.run, call()), 20)
        await spool.enqueue("orders", b"b")

    assert values(path) == [b"b"]


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_file_deleted_while_open_is_told(path: Path, *, is_replaced: bool) -> None:
    async with Spool(path, NOWHERE) as spool:
        await spool.enqueue("orders", b"a")
        await asyncio.to_thread(path.rename, path.with_name("moved.db"))
        if is_replaced:
            await asyncio.to_thread(path.write_bytes, b"")
        with pytest.raises(SpoolError, match="the file was deleted or replaced while it was open") as caught:
            await spool.enqueue("orders", b"b")
        health = spool.health()

    assert caught.value.outcome is Outcome.NOT_WRITTEN
    assert not health.is_ready
    assert "deleted or replaced" in health.reason


async def test_existing_outbox_file_is_counted(path: Path) -> None:
    async with Spool(path, NOWHERE) as spool:
        await spool.enqueue("orders", bytes(100))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE kafka_outbox_spool")
        Outbox().enqueue_many(connection, [])
    async with Spool(path, NOWHERE) as spool:
        assert (spool.statistics().records_waiting, spool.statistics().bytes_waiting) == (1, RECORD)


async def test_metrics_show_spool_and_relay(path: Path) -> None:
    async with Spool(path, NOWHERE) as spool:
        await spool.enqueue("orders", bytes(100))
        found = {metric.name: metric.value for metric in spool.metrics()}
        labels = {metric.tags["client-id"] for metric in spool.metrics()} | {spool.relay.label}

    assert labels == {f"spool {path.name}"}
    assert found["spool-records-stored-total"] == 1
    assert found["spool-bytes-waiting"] == RECORD
    assert found["outbox-rows-sent-total"] == 0


@pytest.mark.parametrize(
    "options,text",
    [
        ({"path": ":memory:"}, "path must be the path of a file"),
        ({"path": "sqlite+aiosqlite:///spool.db"}, "path must be the path of a file"),
        ({"path": 7}, "path must be a str or a path, not int"),
        ({"when_full": "drop"}, "when_full must be one of 'wait', 'refuse', 'drop oldest', not 'drop'"),
        ({"when_full": ["wait"]}, "when_full must be one of"),
        ({"max_bytes": 0}, "max_bytes must be an int from 1 to"),
        ({"max_age_s": inf}, "max_age_s must be a number of seconds above 0"),
        ({"lock_timeout_s": nan}, "lock_timeout_s must be a number of seconds above 0"),
        ({"transactional": "no"}, "transactional must be True or False"),
        ({"acks": 1}, "acks=1 is not for a relay with transactions"),
        ({"retries": 0}, "retries=0 is not for a relay with transactions"),
        ({"max_age_s": -1}, "max_age_s must be a number of seconds above 0"),
        ({"lock_timeout_s": "1"}, "lock_timeout_s must be a number of seconds above 0"),
        ({"on_refused": "drop"}, "on_refused must be one of"),
        ({"transactional_id": "a"}, "transactional_id is not for a relay"),
        ({"linger_ms": -1}, "linger_ms"),
    ],
)
def test_bad_option_is_refused(options: dict[str, object], text: str, path: Path) -> None:
    given = {"path": os.fspath(path), "bootstrap_servers": NOWHERE, **options}
    with pytest.raises(ConfigurationError, match=text):
        Spool(**given)  # type: ignore[arg-type]  # what is tested


def test_missing_driver_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiosqlite", None)
    with pytest.raises(ModuleNotFoundError, match=r"Spool needs aiosqlite: pip install 'aioproducer\[spool\]'"):
        Spool(path, NOWHERE)
