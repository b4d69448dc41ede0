"""Every client of a comparison is driven alike: each record is told once, in order, and its outcome is true."""

from collections import Counter
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster
from tests.programs.chaos.checker.cell_files import HistoryWriter, Kind, Row, read_history
from tests.programs.chaos.plans import Orders, Scale, compared
from tests.programs.chaos.producing.peers import CLIENTS
from tests.programs.chaos.producing.recording_client import RecordingClient

RECORDS = 20

pytestmark = pytest.mark.parametrize("client", CLIENTS)


def orders_of(client: str, bootstrap: str, folder: Path) -> Orders:
    plan = compared(1, Scale(1, 1, 100, 0), "4.4.0", client=client)
    (workload,) = plan.workloads
    return Orders(
        name="p",
        workload="steady",
        folder=str(folder),
        bootstrap=bootstrap,
        topic="chaos",
        topic_number=1,
        first_client=0,
        rate=1.0,
        seed="1",
        options=plan.options(workload),
        client=plan.client,
    )


async def told_of(client: str, folder: Path, *, is_killed: bool) -> list[Row]:
    """Give records to a client, whose broker may be killed before, and return what it was told of their ends."""
    async with FakeCluster(1, topics={"chaos": 1}) as cluster:
        orders = orders_of(client, cluster.bootstrap_servers, folder)
        history = HistoryWriter(orders.history_file)
        recording = RecordingClient(orders, 0, history)
        await recording.producer.start()
        await recording.look_for_partitions()
        if is_killed:
            await cluster.kill(1)
        for number in range(RECORDS):
            if number % 2:
                recording.send(0)
            else:
                await recording.enqueue(0)
        await recording.close(0.1 if is_killed else 5)
        history.close()
    return [row for row in read_history(orders.history_file) if row.kind != Kind.INVOKE]


async def test_records_of_a_client_are_acknowledged_in_order(client: str, tmp_path: Path) -> None:
    told = await told_of(client, tmp_path, is_killed=False)

    assert [(row.kind, row.n, row.offset, row.partition) for row in told] == [
        (Kind.OK, n, n, 0) for n in range(RECORDS)
    ]


async def test_records_of_a_client_end_once_when_brokers_are_gone(client: str, tmp_path: Path) -> None:
    told = await told_of(client, tmp_path, is_killed=True)

    assert Counter(row.n for row in told) == Counter(range(RECORDS))
    assert Kind.OK not in {row.kind for row in told}
