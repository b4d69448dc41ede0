"""Sinks rest for longer than brokers remember their transactional ids, their groups' offsets, or both."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from aioproducer._admin.cluster_requests import ClusterRequests
from aioproducer._admin.transactions import Transactions
from aioproducer.spark._commit import ForgottenTransactionsError, SinkCommit
from aioproducer.spark._coordinators import with_sink
from aioproducer.spark._options import SinkOptions
from aioproducer.testing.kafka import KafkaCluster
from tests.conftest import running_kafka
from tests.spark.conftest import ROW
from tests.spark.crashes.driver import wait_until
from tests.spark.crashes.faulty_source import OPTION
from tests.spark.crashes.matrix import Matrix
from tests.spark.crashes.writes import ROWS, Cell

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2_400)]

IDS = {
    "transactional.id.expiration.ms": "15000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
OFFSETS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
FORGET = {"ids": IDS, "offsets": OFFSETS, "both": {**IDS, **OFFSETS}}

ENDED = Cell(1, 1, "one", "nowhere", "stream", batches=2)
"""Its rounds are noted."""
NOT_IN_SPARKS_LOG = Cell(1, 1, "one", "round 1")
NOT_NOTED = Cell(1, 1, "one", "round.end 1")
"""All transactions of its last round are committed, and the sink's record does not say so yet."""
JOB = Cell(1, 1, "one", "nowhere", "jobs", batches=1)
"""A scheduler runs it again."""
CELLS = [ENDED, NOT_IN_SPARKS_LOG, NOT_NOTED, JOB]


class Forgetful:
    """A broker, and what it forgets soon."""

    def __init__(self, kafka: KafkaCluster, forgets: str) -> None:
        self.kafka = kafka
        self.forgets = forgets
        self.forgets_offsets = forgets != "ids"

    def rest(self, sinks: list[str]) -> None:
        """Wait until the broker has forgotten what is known of the sinks."""
        if self.forgets != "offsets":
            wait_until(lambda: not self._ids(sinks), lambda: f"still known: {self._ids(sinks)}")
        if self.forgets_offsets:
            wait_until(lambda: not self._offsets(sinks), lambda: f"still there: {self._offsets(sinks)}")

    def _ids(self, sinks: list[str]) -> list[str]:
        async def listed() -> list[str]:
            host, _, port = self.kafka.bootstrap_servers.partition(":")
            async with ClusterRequests([(host, int(port))], 60) as requests:
                await requests.refresh()
                found, _ = await Transactions(requests).listed()
            return [each.transaction.transactional_id for each in found]

        return [each for each in asyncio.run(listed()) if each.startswith(tuple(f"{sink}." for sink in sinks))]

    def _offsets(self, sinks: list[str]) -> list[object]:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        found: list[object] = []
        for sink in sinks:
            [answer] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"aioproducer.{sink}")]).values()
            found += [each for each in answer.result(60).topic_partitions or [] if each.offset >= 0]
        return found


@pytest.fixture(params=[f"{each} {release}" for release in ("4.4.0", "3.9.1") for each in FORGET])
def forgetful(request: pytest.FixtureRequest, kafka_thread: ThreadPoolExecutor) -> Iterator[Forgetful]:
    forgets, _, release = request.param.partition(" ")
    for kafka in running_kafka(release, kafka_thread, properties=FORGET[forgets]):
        yield Forgetful(kafka, forgets)


def test_rows_are_not_called_missing_after_a_rest(
    forgetful: Forgetful, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Without offsets nothing is known: what is run again is there twice, as the page says."""
    matrix = Matrix(forgetful.kafka, tmp_path / "cells", lambda row: record_property(ROW, tuple(row)))
    matrix.create_topics(CELLS)
    with matrix.program(CELLS) as program:
        assert set(matrix.said(program).values()) == {None}
    forgetful.rest([cell.sink(0) for cell in CELLS])
    if not forgetful.forgets_offsets:
        options = matrix.query(NOT_NOTED).options(0, [])
        sink = SinkOptions.parse({name: value for name, value in options.items() if name != OPTION})
        with pytest.raises(ForgottenTransactionsError, match="cannot be told any more"):
            with_sink(sink, SinkCommit.prepare)
        with_sink(sink, SinkCommit.accept_loss)
    (matrix.query(JOB).folder / "done" / "0").unlink()
    later = [replace(ENDED, batches=4), NOT_IN_SPARKS_LOG, NOT_NOTED, JOB]
    twice = {cell.name: ROWS for cell in later[1:]} if forgetful.forgets_offsets else {}
    with matrix.program(later) as program:
        said = matrix.said(program)
    matrix.check(later, said, twice=twice, label=lambda cell: f"{forgetful.forgets} forgotten: {cell.name}")
