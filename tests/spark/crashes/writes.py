"""A program with many queries at once: `python -m tests.spark.crashes.writes FOLDER CELLS SERVERS`.

CELLS is a list of `Cell` as JSON. Each query runs until it ends, or stands still at the point of its cell. A line of
JSON says what became of each, and the last line is "done". The test kills the program then, with all that stands still;
or it writes a line, and the queries go on until they end, of which lines and "done" tell again.

A row is a number: row r of a batch gives the rows `r * 10 + n`, n being the number of the write.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from aioproducer.spark import activate
from tests.spark.crashes.faulty_source import NAME, OPTION, Faults, FaultySource, Point
from tests.spark.crashes.query import CONF

ROWS = 12
"""Of a write."""
CRASH_BATCH = 1
AT_ONCE = 5
"""Queries."""
GO_ON = "go on"
"""Name of a file in the program's folder: what stands still in Python goes on."""

How = Literal["in turn", "threads", "again after a row", "again after a round", "stream", "files", "jobs"]


@dataclass(frozen=True)
class Cell:
    """One query.

    Attributes:
        writes: how many each batch has.
        topics: over which they are spread in turn.
        sinks: one sinkId for all writes, or one for each.
        point: where the first run stands still in its second batch: `before`, `after N` writes, `AT N`, AT being a
            point of `faulty_source` in the commit of write N, or `nowhere`.
        how: a function that writes one after the other, or each in a thread, or one after the other, and again where
            it fails: at a row that cannot be sent, or in the round; or a stream without a function, of numbers or of
            files; or one job after the other, each tried again until it is done.
        batches: that are run, and whose rows are looked for.
        test: in its name, where two tests on one cluster have the same cell.
    """

    writes: int
    topics: int = 1
    sinks: Literal["one", "each"] = "one"
    point: str = "before"
    how: How = "in turn"
    batches: int = 3
    test: str = "all"

    @property
    def name(self) -> str:
        """Of its topics, sinks and folder."""
        parts = (self.test, f"w{self.writes}", f"t{self.topics}", self.sinks, self.point, self.how)
        return "-".join(parts).replace(" ", "_").replace(".", "_")

    @property
    def all_topics(self) -> list[str]:
        return sorted({self.topic(write) for write in range(self.writes)})

    def topic(self, write: int) -> str:
        return f"{self.name}.{write % self.topics}"

    def sink(self, write: int) -> str:
        return f"{self.name}.{write}" if self.sinks == "each" else self.name

    def rows(self, topic: str) -> set[int]:
        """Return what a topic must have of the batches that are looked at."""
        writes = [write for write in range(self.writes) if self.topic(write) == topic]
        return {row * 10 + write for write in writes for row in range(self.batches * ROWS)}


class HaltedError(Exception):
    """The query has come to the end of its batches."""


@dataclass(frozen=True)
class Query:
    """Runs the query of a cell."""

    cell: Cell
    folder: Path
    servers: str

    def start(self, spark: SparkSession, tasks: int) -> "StreamingQuery | Jobs":
        """Start the query, with so many tasks in each write of a stream of numbers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.cell.how == "jobs":
            return Jobs(spark, self)
        if self.cell.how == "files":
            files = spark.readStream.schema("value BIGINT").option("maxFilesPerTrigger", 1)
            rows = files.parquet(str(self.folder / "rows")).repartition(2)
        else:
            source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, startTimestamp=0)
            rows = source.option("numPartitions", tasks).load()
        if self.cell.how in {"stream", "files"}:
            writer = self.rows(rows, 0).writeStream.format(NAME).options(**self.options(0, self.points(0)))
        else:
            writer = rows.writeStream.foreachBatch(self.write_all)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def write_all(self, batch: DataFrame, number: int) -> None:
        """Be the function of `foreachBatch`."""
        if number == self.cell.batches:
            raise HaltedError
        self.stand_still("before", number)
        if self.cell.how == "threads":
            self.write_in_threads(batch)
            self.stand_still(f"after {self.cell.writes}", number)
            return
        for write in range(self.cell.writes):
            self.write_or_again(batch, number, write)
            self.stand_still(f"after {write + 1}", number)

    def write_or_again(self, batch: DataFrame, number: int, write: int) -> None:
        is_again = self.cell.how.startswith("again") and number == CRASH_BATCH and write == self.cell.writes - 1
        if is_again and self.is_first("failed"):
            try:
                self.write(batch, write, fails=self.cell.how)
            except Exception as error:  # noqa: BLE001  # as a user's function does
                print(json.dumps(["failed", self.cell.name, str(error)[:200]]), flush=True)
        self.write(batch, write)

    def write_in_threads(self, batch: DataFrame) -> None:
        failed: list[Exception] = []

        def write(number: int) -> None:
            activate(batch.sparkSession)
            try:
                self.write(batch, number)
            except Exception as error:  # noqa: BLE001  # of another thread
                failed.append(error)

        threads = [
            threading.Thread(target=inheritable_thread_target(write), args=(number,))
            for number in range(self.cell.writes)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if failed:
            raise failed[0]

    def write(self, batch: DataFrame, write: int, *, fails: str = "") -> None:
        points = [Point("round.half", CRASH_BATCH, action="fail")] if fails == "again after a round" else None
        rows = self.rows(batch, write, is_wrong=fails == "again after a row")
        writer = rows.write.format(NAME).mode("append")
        writer.options(**self.options(write, self.points(write) if points is None else points)).save()

    def rows(self, batch: DataFrame, write: int, *, is_wrong: bool = False) -> DataFrame:
        partition = "IF(value % 12 = 11, 99, 0)" if is_wrong else "CAST(value % 2 AS INT)"
        return batch.selectExpr(f"CAST(value * 10 + {write} AS STRING) AS value", f"{partition} AS partition")

    def options(self, write: int, points: Sequence[Point]) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.cell.topic(write),
            "exactlyOnce": "true",
            "sinkId": self.cell.sink(write),
            "transactionTimeout": "15m",
            OPTION: Faults(str(self.folder), tuple(points)).text(),
        }

    def points(self, write: int) -> list[Point]:
        at, _, number = self.cell.point.partition(" ")
        if number != str(write + 1) or at == "after":
            return []
        return [Point(at, CRASH_BATCH, task=0 if at.startswith("task.") else None)]

    def stand_still(self, point: str, batch: int) -> None:
        """Stop here, if it is the point of the first run, until the program is killed or told to go on."""
        if (point, batch) == (self.cell.point, CRASH_BATCH) and self.is_first("stands"):
            while not (self.folder.parent / GO_ON).exists():
                time.sleep(0.05)

    def stands_still(self) -> bool:
        """Tell whether a thread or a process of it has stopped."""
        return any(self.folder.glob("stands")) or any(self.folder.glob(f"{self.cell.point.split()[0]}-*"))

    def is_first(self, what: str) -> bool:
        try:
            (self.folder / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def is_over(self, started: "StreamingQuery | Jobs") -> bool:
        """Tell whether the query has ended; a stream without a function has to be stopped."""
        if self.cell.how in {"stream", "files"} and self.committed() >= self.cell.batches:
            started.stop()
        return not started.isActive

    def committed(self) -> int:
        """Return how many batches, or jobs, are done."""
        commits = (self.folder / ("done" if self.cell.how == "jobs" else "checkpoint/commits")).glob("[0-9]*")
        return 1 + max((int(each.name) for each in commits if each.name.isdecimal()), default=-1)


class Jobs(threading.Thread):
    """Runs one job after the other, as a scheduler that tries each until it is done; has the face of a query."""

    def __init__(self, spark: SparkSession, query: Query) -> None:
        super().__init__(daemon=True)
        self._spark = spark
        self._query = query
        self._error: Exception | None = None
        (query.folder / "done").mkdir(exist_ok=True)
        self.start()

    def run(self) -> None:
        activate(self._spark)
        query = self._query
        try:
            while (number := query.committed()) < query.cell.batches:
                rows = query.rows(self._spark.range(number * ROWS, (number + 1) * ROWS, 1, 2).toDF("value"), 0)
                writer = rows.write.format(NAME).mode("append").options(**query.options(0, []))
                writer.option("runId", str(number)).save()
                (query.folder / "done" / str(number)).touch()
        except Exception as error:  # noqa: BLE001  # whatever it is, the test reads it
            self._error = error

    @property
    def isActive(self) -> bool:  # noqa: N802  # as of a query
        return self.is_alive()

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        """Do nothing: it ends by itself."""


def wait_for(running: Mapping[Query, StreamingQuery | Jobs], *, may_stand: bool) -> None:
    """Print what became of queries once they have ended, or stand still."""
    left = dict(running)
    while left:
        for query, started in tuple(left.items()):
            stands = may_stand and query.stands_still()
            if stands or query.is_over(started):
                said = None if stands else told(started.exception())
                print(json.dumps(["cell", query.cell.name, said]), flush=True)
                del left[query]
        time.sleep(0.1)


def told(error: Exception | None) -> str | None:
    """Return what is told of the error that ended a query; None if it came to its end."""
    text = str(error)
    return None if error is None or "HaltedError" in text else text[:8_000]


def main(folder: Path, cells: Sequence[Cell], servers: str) -> None:
    spark = session()
    is_first_run = not (folder / "again").exists()
    (folder / "again").touch()
    queries = [Query(cell, folder / cell.name, servers) for cell in cells]
    running: dict[Query, StreamingQuery | Jobs] = {}
    for first in range(0, len(queries), AT_ONCE):
        some = {query: query.start(spark, 2 if is_first_run else 3) for query in queries[first : first + AT_ONCE]}
        wait_for(some, may_stand=is_first_run)
        running |= some
    print("done", flush=True)
    if not sys.stdin.readline():
        os._exit(2)  # the test is gone
    wait_for(running, may_stand=False)
    print("done", flush=True)
    sys.stdin.readline()


def as_arguments(folder: Path, cells: Sequence[Cell], servers: str) -> list[str]:
    """Return the arguments of Python that run the program."""
    return ["-m", "tests.spark.crashes.writes", str(folder), json.dumps([asdict(each) for each in cells]), servers]


def session() -> SparkSession:
    conf = {**CONF, "spark.driver.memory": "1500m", "spark.sql.execution.arrow.maxRecordsPerBatch": "2"}
    made = SparkSession.builder.master("local[6,4]").config(map=conf).getOrCreate()  # tasks that stand still have cores
    made.sparkContext.setLogLevel("OFF")
    made.dataSource.register(FaultySource)
    return made


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Cell(**each) for each in json.loads(sys.argv[2])], sys.argv[3])
    os._exit(0)
