"""One worker as a process, which may kill itself: `python -m tests.integrations.worker_program ORDERS`.

It copies TOPIC to TOPIC-out until the group has processed all. In its second batch it dies in the phase it was told.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from aiokafka import ConsumerRecord
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from aioproducer import ConsumerGroupMetadata, Producer, TopicPartition, TransactionTimeoutError
from aioproducer.integrations.aiokafka import BatchTransaction, ExactlyOnce, exactly_once
from tests.integrations.workers import GROUP, consuming

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
PHASES = ("before begin", "after sends", "after offsets", "in commit 0", "in commit 1", "in commit 3")
"""The number is milliseconds after the body's end; an answer takes one to three."""

LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class WorkerOrders:
    servers: str
    topic: str
    worker: str
    total: int
    phase: str = ""  # in which it kills itself; empty for none
    assignor: str = "roundrobin"
    is_static: bool = True
    batch: int = 20
    pause_s: float = 0.0  # after each batch

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.integrations.worker_program", json.dumps(asdict(self))]


def die() -> None:
    """End at once, as after a loss of memory or power."""
    os.kill(os.getpid(), signal.SIGKILL)


def print_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack()


async def work(orders: WorkerOrders) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print_tasks)
    options: dict[str, object] = {"partition_assignment_strategy": (ASSIGNORS[orders.assignor],)}
    if orders.is_static:
        options["group_instance_id"] = orders.worker
    async with (
        consuming(orders.servers, orders.topic, **options) as consumer,
        Producer(orders.servers, transactional_id=f"{orders.topic}-{orders.worker}") as producer,
        exactly_once(consumer, producer, max_records=orders.batch) as batches,
    ):
        print("started", flush=True)
        group, number = ConsumerGroupMetadata.of(consumer), 0
        async with asyncio.TaskGroup() as tasks:  # a look that fails ends the work too, loudly
            tasks.create_task(stop_at_the_end(batches, producer, orders))
            async for records, txn in batches:
                number += 1
                await handle(records, txn, orders, group=group, is_last=number == 2)


async def handle(
    records: Sequence[ConsumerRecord],
    txn: BatchTransaction,
    orders: WorkerOrders,
    *,
    group: ConsumerGroupMetadata,
    is_last: bool,
) -> None:
    phase = orders.phase if is_last else ""
    if phase == "before begin":
        die()
    sent = [await txn.enqueue(f"{orders.topic}-out", each.value, partition=each.partition) for each in records]
    if phase in {"after sends", "after offsets"}:
        await asyncio.gather(*sent)  # all of it is in the log
    if phase == "after sends":
        die()
    if phase == "after offsets":
        await txn.send_offsets({(each.topic, each.partition): each.offset + 1 for each in records}, group)
        die()
    if phase.startswith("in commit"):
        asyncio.get_running_loop().call_later(int(phase.split()[-1]) / 1000, die)
    await asyncio.sleep(orders.pause_s)


async def stop_at_the_end(batches: ExactlyOnce, producer: Producer, orders: WorkerOrders) -> None:
    places = [TopicPartition(orders.topic, number) for number in range(4)]
    processed = 0
    while processed < orders.total:
        await asyncio.sleep(LOOK_EVERY_S)
        try:
            found = await producer.committed_offsets(f"{GROUP}-{orders.topic}", places)
        except TransactionTimeoutError as error:
            print(error, flush=True)
        else:
            processed = sum(offset.offset for offset in found.values() if offset)
    batches.stop()


if __name__ == "__main__":
    asyncio.run(work(WorkerOrders(**json.loads(sys.argv[1]))))
