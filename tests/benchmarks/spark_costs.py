"""Costs of the Spark data source without a JVM: `python -m tests.benchmarks.spark_costs`, on an embedded cluster.

    CPU of an Arrow batch in the sender of a task, beside what its rows cost: batches of 1,000 and of 10,000 rows
    CPU of the imports in the driver's processes, which are forked from one that has imported PySpark alone

Prints one line of JSON for each, with the median of the rounds; there is nothing to pass or fail.
"""

import argparse
import asyncio
import importlib
import json
import os
from itertools import repeat
from statistics import median
from time import process_time
from typing import Final

ROWS: Final = 2_000_000
SMALL, LARGE = 1_000, 10_000
VALUE: Final = bytes(100)
TOPIC: Final = "costs"
PARTITIONS: Final = 2
OF_SPARK: Final = ("pyspark.daemon", "pyspark.sql.worker.write_into_data_source")
PROCESSES: Final = {
    "prepares": ("aioproducer.spark._source", "aioproducer.spark._writer", "pyarrow"),
    "commits": ("aioproducer.spark._writer",),
}
"""What each imports; Spark itself imports pyarrow in the first."""


def cpu_of_task(servers: str, rows: int) -> float:
    """Return the CPU time of a task whose batches have so many rows."""
    import pyarrow as pa  # noqa: PLC0415  # not before the forks

    from aioproducer.spark._options import SinkOptions  # noqa: PLC0415
    from aioproducer.spark._record_parts import SinkColumns  # noqa: PLC0415
    from aioproducer.spark._task import TaskSender  # noqa: PLC0415

    batch = pa.record_batch({"value": pa.array([VALUE] * rows, pa.binary())})
    options = SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": TOPIC})
    sender = TaskSender(options, SinkColumns(frozenset({"value"}), has_seconds=False))
    before = process_time()
    sender.send_all(repeat(batch, ROWS // rows), task=0)
    return process_time() - before


def costs_of_batches(servers: str, rounds: int) -> dict[str, object]:
    taken: dict[int, list[float]] = {SMALL: [], LARGE: []}
    for _ in range(rounds + 1):
        for rows, found in taken.items():
            found.append(cpu_of_task(servers, rows))
    small, large = (median(found[1:]) for found in taken.values())
    more_batches = ROWS // SMALL - ROWS // LARGE
    return {
        "us of a batch": round((small - large) / more_batches * 1e6, 1),
        f"us of {LARGE} rows": round(large / (ROWS // LARGE) * 1e6, 1),
    }


def cpu_of_imports(names: tuple[str, ...]) -> float:
    """Return the CPU time of imports in a process that is forked from this one."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        before = process_time()
        for name in names:
            importlib.import_module(name)
        os.write(write, f"{process_time() - before}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    told = os.read(read, 100)
    os.close(read)
    os.close(write)
    return float(told)


async def measure(rounds: int) -> None:
    from tests.benchmarks.brokers import embedded_broker, fresh_topics  # noqa: PLC0415  # not before the forks

    async with embedded_broker() as broker, fresh_topics(broker.bootstrap_servers, [TOPIC], PARTITIONS):
        print(json.dumps(await asyncio.to_thread(costs_of_batches, broker.bootstrap_servers, rounds)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_costs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    for name in OF_SPARK:
        importlib.import_module(name)
    imports = {name: median(cpu_of_imports(modules) for _ in range(rounds)) for name, modules in PROCESSES.items()}
    print(json.dumps({f"s of imports, {name}": round(seconds, 3) for name, seconds in imports.items()}), flush=True)
    asyncio.run(measure(rounds))


if __name__ == "__main__":
    main()
