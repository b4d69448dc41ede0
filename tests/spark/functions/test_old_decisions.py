"""What the version before left: a decision of format 1, whose transactions are open, is finished and skipped."""

import asyncio
import base64
import json
import zlib

import pyarrow as pa
from pyspark.sql import SparkSession

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer.records import OffsetAndMetadata
from aioproducer.spark._coordinators import SinkCluster
from aioproducer.spark._decision_record import SinkIds
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._task import TaskSender
from tests.spark.functions.conftest import Topics
from tests.spark.functions.test_write import expected, numbers

TASKS = 2


def test_decision_of_format_1_is_taken_over(spark: SparkSession, topics: Topics) -> None:
    """Its run is done; the next one is written."""
    topic = topics.create_own()
    once = {**topics.options(topic), "exactlyOnce": "true", "sinkId": topic}
    leave_decision_of_format_1(SinkOptions.parse(once), "run monday", batch=1)
    for run in ("monday", "tuesday"):
        writer = numbers(spark, 10, TASKS).write.format("aioproducer").mode("append").options(**once)
        writer.option("runId", run).save()
    assert topics.values(topic) == sorted([*expected(10), *(f"old {task}" for task in range(TASKS))])


def leave_decision_of_format_1(options: SinkOptions, query: str, *, batch: int) -> None:
    """Do as that version up to the decision: each task has one row, and its transaction is prepared.

    Its ids have the parity of the batch.
    """
    assert options.sink_id is not None
    tasks = []
    for task in range(TASKS):
        rows = pa.record_batch({"value": [f"old {task}".encode()]})
        _, left = TaskSender(options, SinkColumns(frozenset({"value"}), has_seconds=False)).send_all(
            iter([rows]), task=task, transactional_id=f"{options.sink_id}.{batch % 2}.{task}.0"
        )
        assert left is not None
        tasks.append([task, 0, left.producer_id, left.epoch, left.version, 1])
    document = json.dumps({"v": 1, "query": query, "tasks": tasks}, separators=(",", ":"))
    manifest = base64.b85encode(zlib.compress(document.encode(), 9)).decode()
    asyncio.run(_decide(options, OffsetAndMetadata(batch + 1, f"1:{manifest}")))


async def _decide(options: SinkOptions, offset: OffsetAndMetadata) -> None:
    assert options.sink_id is not None
    ids = SinkIds(options.sink_id)
    async with ClusterRequests(options.producer_config().bootstrap, 60) as requests:
        await requests.refresh([options.topic or ""])
        cluster = SinkCluster(requests, ids, topic=options.topic or "")
        await cluster.write_decision(await cluster.init_producer_id(ids.coordinator), {0: offset})
