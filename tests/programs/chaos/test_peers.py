"""Every client of a comparison is driven alike: each record is told once, in order, and its outcome is true."""

from collections import Counter
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster
from tests.programs.chaos.checker.history_file import HistoryWriter, Kind, Row, read_history
from tests.programs.chaos.plans import Scale, compared
from tests.programs.chaos.producing.orders import Orders
from tests.programs.chaos.producing.peers import CLIENTS
from tests.programs.chaos.producing.recording_client import RecordingClient

RECORDS = 20

pytestmark = pytest.mark.parametrize("client", CLIENTS)


def orders_of(client: str, bootstrap: str, folder: Path) -> Orders:
    plan = compared(1, Scale(1, 1, 100, 0), "4.3.1", client=client)
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


async def given_records(recording: RecordingClient) -> None:
    for number in range(RECORDS):
        if number % 2:
            recording.send(0)
        else:
            await recording.enqueue(0)


def outcomes(rows: list[Row]) -> Counter[int]:
    return Counter(row.kind for row in rows if row.kind != Kind.INVOKE)


async def test_records_of_a_client_are_acknowledged_in_order(client: str, tmp_path: Path) -> None:
    async with FakeCluster(1, topics={"chaos": 1}) as cluster:
        orders = orders_of(client, cluster.bootstrap_servers, tmp_path)
        history = HistoryWriter(orders.history_file)
        recording = RecordingClient(orders, 0, history)
        await recording.producer.start()
        await recording.look_for_partitions()
        await given_records(recording)
        await recording.close(5)
        history.close()

    rows = list(read_history(orders.history_file))
    told = [(row.n, row.offset, row.partition) for row in rows if row.kind == Kind.OK]
    assert told == [(n, n, 0) for n in range(RECORDS)]
    assert outcomes(rows) == Counter({Kind.OK: RECORDS})


async def test_records_of_a_client_end_once_when_brokers_are_gone(client: str, tmp_path: Path) -> None:
    async with FakeCluster(1, topics={"chaos": 1}) as cluster:
        orders = orders_of(client, cluster.bootstrap_servers, tmp_path)
        history = HistoryWriter(orders.history_file)
        recording = RecordingClient(orders, 0, history)
        await recording.producer.start()
        await recording.look_for_partitions()
        await cluster.kill(1)
        await given_records(recording)
        await recording.close(0.1)
        history.close()

    rows = list(read_history(orders.history_file))
    ended = Counter(row.n for row in rows if row.kind != Kind.INVOKE)
    assert ended == Counter(range(RECORDS))
    assert Kind.OK not in outcomes(rows)
