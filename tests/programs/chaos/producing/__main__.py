"""A producer process: `python -m tests.programs.chaos.producing ORDERS`; it sends steadily, or producers come and go.

SIGTERM ends it as orders end: it closes first.
"""

import asyncio
import json
import logging
import random
import signal
import sys
import time
from pathlib import Path

from aioproducer import KafkaError
from tests.programs.chaos.checker.cell_files import Close, End, HistoryWriter
from tests.programs.chaos.plans import CLIENTS_OF_A_PROCESS, Orders
from tests.programs.chaos.producing.recording_client import RecordingClient

TICK_S = 0.02
FLUSH_S = 0.1
LAG_S = 0.05  # a loop that is so much late has not run
STREAMS = 3  # tasks that share one producer; the last of them never waits
CATCH_UP_S = 1.0  # limit for catching up: records that are later than this are left out
LOOK_S = 1.0  # pause between two looks of a steady client for new partitions

CLOSE_S = 60.0

SHORT_RECORDS = 30  # topics of a short-lived producer
SHORT_CLOSES_S = (0.0, 0.05, 0.5, 5.0, 30.0)  # timeouts of a short-lived producer's close: some give it no time at all
SHORT_AT_ONCE = 60  # short-lived producers that live at the same time, at most; in trouble they cannot end


class Workload:
    """Runs until `stop` is set; counts for the report at the end of the process."""

    def __init__(self, orders: Orders, history: HistoryWriter) -> None:
        self.stop = asyncio.Event()
        self.closes: list[Close] = []
        self.failed_starts = 0
        self.lags: list[tuple[int, int]] = []
        self._orders = orders
        self._history = history

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            flushing = tasks.create_task(self._flush_history())
            await (self._steady() if self._orders.workload == "steady" else self._short())
            flushing.cancel()

    async def _flush_history(self) -> None:
        while True:
            before_us, busy_us = time.time_ns() // 1000, time.process_time_ns() // 1000
            await asyncio.sleep(FLUSH_S)
            idle_us = time.time_ns() // 1000 - before_us - (time.process_time_ns() // 1000 - busy_us)
            if idle_us > (FLUSH_S + LAG_S) * 1e6:  # a loop that works for so long is no excuse
                self.lags.append((before_us, before_us + idle_us - int(FLUSH_S * 1e6)))
            self._history.flush()

    # One producer for all of the cell

    async def _steady(self) -> None:
        client = await self._started_client()
        await client.look_for_partitions()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._stream(client, stream)) for stream in range(STREAMS)]
            looking = tasks.create_task(self._look_for_partitions(client))
            await self.stop.wait()
            # a stream may wait for room for as long as max_block_ms; closing refuses it, so it need not be waited for
            self.closes.append(await client.close(CLOSE_S))
            looking.cancel()
            await asyncio.wait(running)

    async def _started_client(self) -> RecordingClient:
        while True:
            client = RecordingClient(self._orders, self._orders.first_client, self._history)
            try:
                await client.producer.start()
            except KafkaError:
                self.failed_starts += 1
            else:
                return client

    async def _look_for_partitions(self, client: RecordingClient) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await client.look_for_partitions()

    async def _stream(self, client: RecordingClient, stream: int) -> None:
        rate, sent, began = self._orders.rate / STREAMS, 0.0, time.monotonic()
        while not self.stop.is_set():
            due = (time.monotonic() - began) * rate
            sent = max(sent, due - CATCH_UP_S * rate)
            while sent < due and not self.stop.is_set():
                sent += 1
                if stream == STREAMS - 1:
                    client.send(stream)
                else:
                    await client.enqueue(stream)
            await asyncio.sleep(TICK_S)

    # Many that come and go

    async def _short(self) -> None:
        client, rng = self._orders.first_client, random.Random(self._orders.seed)
        room = asyncio.Semaphore(SHORT_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            while not self.stop.is_set():
                await room.acquire()
                life = tasks.create_task(self._short_life(client, random.Random(rng.random())))
                life.add_done_callback(lambda _: room.release())
                client += 1
                await asyncio.sleep(rng.expovariate(self._orders.rate))

    async def _short_life(self, number: int, rng: random.Random) -> None:
        client = RecordingClient(self._orders, number, self._history)
        try:
            await client.producer.start()
        except KafkaError:
            self.failed_starts += 1
            return
        try:
            if rng.random() < 0.5:  # else its records wait for the topic's metadata
                await client.look_for_partitions()
            for _ in range(rng.randrange(1, SHORT_RECORDS)):
                client.send(0)
        finally:
            self.closes.append(await client.close(rng.choice(SHORT_CLOSES_S)))


class ErrorLog(logging.Handler):
    """Keeps everything that is logged at ERROR in the process."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.with_cause: list[str] = []
        self.without_cause: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it; asyncio logs only unretrieved exceptions, which never count as having a cause."""
        text = f"{record.name}: {record.getMessage()}"
        is_explained = record.name == "aioproducer" and ("error=" in text or record.exc_info is not None)
        (self.with_cause if is_explained else self.without_cause).append(self.format(record))


async def produce(orders: Orders, errors: ErrorLog) -> None:
    """Run the workload until SIGTERM, then write how it ended."""
    history = HistoryWriter(orders.history_file)
    workload = Workload(orders, history)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, workload.stop.set)
    try:
        await workload.run()
    finally:
        history.close()
    end = End(
        clients=[orders.first_client, orders.first_client + CLIENTS_OF_A_PROCESS],
        closes=workload.closes,
        errors=errors.with_cause,
        errors_without_cause=errors.without_cause,
        failed_starts=workload.failed_starts,
        lags=workload.lags,
    )
    orders.end_file.write_text(json.dumps(end), "utf-8")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    orders = Orders(**json.loads(sys.argv[1]))
    errors = ErrorLog()
    events = logging.FileHandler(Path(orders.folder, f"events-{orders.name}.log"))
    events.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[errors, events])
    asyncio.run(produce(orders, errors))


if __name__ == "__main__":
    main()
