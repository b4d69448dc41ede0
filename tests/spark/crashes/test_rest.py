"""A sink rests for longer than brokers remember its transactional ids, its group's offsets, or both."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._admin.transactions import Transactions
from aioproducer.spark._commit import ForgottenTransactionsError, SinkCommit
from aioproducer.testing.kafka import KafkaCluster
from tests.conftest import running_kafka
from tests.spark.crashes.case import ROWS, Case, MakeCase
from tests.spark.crashes.driver import wait_until
from tests.spark.crashes.faulty_source import Point
from tests.spark.crashes.query import Job
from tests.spark.crashes.test_jobs import run_to_end

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

IDS = {
    "transactional.id.expiration.ms": "15000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
OFFSETS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
FORGET = {"ids": IDS, "offsets": OFFSETS, "both": {**IDS, **OFFSETS}}


class Forgetful:
    """A broker, and what it forgets soon."""

    def __init__(self, kafka: KafkaCluster, forgets: str) -> None:
        self.kafka = kafka
        self.forgets_offsets = forgets in {"offsets", "both"}
        self._forgets_ids = forgets in {"ids", "both"}

    def rest(self, case: Case) -> None:
        """Wait until the broker has forgotten what is known of the case's sink."""
        if self._forgets_ids:
            wait_until(lambda: not self._ids(case.name), lambda: f"still known: {self._ids(case.name)}")
        if self.forgets_offsets:
            wait_until(lambda: not self._offsets(case.name), lambda: f"still there: {self._offsets(case.name)}")

    def _ids(self, sink_id: str) -> list[str]:
        async def listed() -> list[str]:
            host, _, port = self.kafka.bootstrap_servers.partition(":")
            async with ClusterRequests([(host, int(port))], 60) as requests:
                await requests.refresh()
                found, _ = await Transactions(requests).listed(prefix=f"{sink_id}.")
            return [each.transaction.transactional_id for each in found]

        return asyncio.run(listed())

    def _offsets(self, sink_id: str) -> list[object]:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        group = ConsumerGroupTopicPartitions(f"aioproducer.{sink_id}")
        [answer] = admin.list_consumer_group_offsets([group]).values()
        return [each for each in answer.result(60).topic_partitions or [] if each.offset >= 0]


@pytest.fixture(scope="module", params=[f"{each} {release}" for release in ("4.4.0", "3.9.1") for each in FORGET])
def forgetful(request: pytest.FixtureRequest, kafka_thread: ThreadPoolExecutor) -> Iterator[Forgetful]:
    forgets, _, release = request.param.partition(" ")
    for kafka in running_kafka(release, kafka_thread, properties=FORGET[forgets]):
        yield Forgetful(kafka, forgets)


def test_stream_goes_on_after_a_rest(make_case: MakeCase, forgetful: Forgetful) -> None:
    """Nothing is called missing, nothing is there twice."""
    case = make_case(forgetful.kafka)
    with case.driver() as first:
        first.wait_for_batch(1)
        first.halt()
    forgetful.rest(case)
    with case.driver(cores=3) as second:
        second.wait_for_batch(2)
        case.finish("stream after a rest", second, 0.0)


def test_stream_killed_after_its_round_says_what_it_knows(make_case: MakeCase, forgetful: Forgetful) -> None:
    """Spark has not noted the batch: it is skipped, or cannot be told; without offsets it is there twice."""
    case, point = make_case(forgetful.kafka), Point("round", 1)
    with case.driver(point) as first:
        first.wait_for_point(point)
        first.kill()
    forgetful.rest(case)
    with case.driver(cores=3) as second:
        second.wait_for_batch(2)
        rows = (second.halt() + 1) * ROWS
    found = case.topic.read()
    assert found.missing(rows) == 0
    twice = sum(found.counts.values()) - len(found.counts)
    assert twice == (ROWS if forgetful.forgets_offsets else 0)


def test_round_that_is_not_noted_cannot_be_told(make_case: MakeCase, forgetful: Forgetful) -> None:
    """All its transactions are committed, and the ids are forgotten before that is noted."""
    case, point = make_case(forgetful.kafka), Point("round.end", 1)
    with case.driver(point) as first:
        first.wait_for_point(point)
        first.kill()
    forgetful.rest(case)
    if not forgetful.forgets_offsets:
        with pytest.raises(ForgottenTransactionsError, match="cannot be told any more"):
            case.ask(SinkCommit.prepare)
        case.ask(SinkCommit.accept_loss)
    with case.driver(cores=3) as second:
        second.wait_for_batch(2)
        rows = (second.halt() + 1) * ROWS
    found = case.topic.read()
    assert found.missing(rows) == 0
    assert sum(found.counts.values()) - len(found.counts) == (ROWS if forgetful.forgets_offsets else 0)


def test_job_is_done_once_over_a_rest(make_case: MakeCase, forgetful: Forgetful) -> None:
    """As long as the offsets of its sink live; they keep its last run."""
    case = make_case(forgetful.kafka, options={"runId": "2026-11-25"})
    change = of_a_file(case)
    run_to_end(case.driver(change=change))
    forgetful.rest(case)
    run_to_end(case.driver(cores=3, change=change))
    found = case.topic.read()
    assert found.missing(ROWS) == 0
    assert sum(found.counts.values()) == (2 * ROWS if forgetful.forgets_offsets else ROWS)


def of_a_file(case: Case) -> Callable[[Job], Job]:
    """Return what makes a job of rows in a file out of a stream's."""
    file = case.folder / "rows.parquet"
    pq.write_table(pa.table({"value": list(range(ROWS))}), file)
    return lambda job: replace(job, source="parquet", source_options={"path": str(file)})
