"""The requests of one transaction, step by step: the table of the page about transactions, embedded and real."""

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from aioproducer import Producer
from aioproducer.testing import ApiKey
from tests.contracts.clients import RawClient
from tests.fakes.transactional_cluster import Release, cluster_of, on_every_release
from tests.fakes.virtual_loop import in_virtual_time
from tests.programs.late_requests.conftest import Proxied
from tests.programs.late_requests.holding_link import HoldingLink

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "transactions.md"
HEAD = "| what the program does | V1 | V2 |"
NOT_SHOWN = {ApiKey.API_VERSIONS, ApiKey.METADATA}

Request = tuple[ApiKey, int]


def steps_of_page(column: int) -> list[str]:
    _, _, table = PAGE.read_text("utf-8").partition(HEAD)
    rows = [line.split("|") for line in table.splitlines()[2:]]
    return [row[column + 1].strip() for row in rows[: next(n for n, row in enumerate(rows) if len(row) < 4)]]


def in_words(asked: Sequence[Request]) -> str:
    shown = (f"{api.name.lower()} {version}" for api, version in asked if api not in NOT_SHOWN)
    return ", ".join("".join(part.capitalize() for part in name.split("_")) for name in dict.fromkeys(shown))


@pytest.mark.parametrize("column", [1, 2])
def test_recorded_transactions_ask_what_the_table_says(column: int) -> None:
    traces = re.findall(r"^```text\n(FindCoordinator.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    of_v2, of_v1 = (re.findall(r"^(\w+ \d+) ", trace, re.MULTILINE) for trace in traces)
    of_first_transaction = ", ".join(steps_of_page(column)[:6]).split(", ")

    assert list(dict.fromkeys(of_v1 if column == 1 else of_v2)) == list(dict.fromkeys(of_first_transaction))


async def steps(producer: Producer, topics: tuple[str, str], asked: Callable[[], list[Request]]) -> list[str]:
    """Two transactions, and what each step of them asks."""
    topic, read_topic = topics
    found: list[str] = []
    seen = 0

    def note() -> None:
        nonlocal seen
        found.append(in_words(asked()[seen:]))
        seen = len(asked())

    await producer.start()
    note()
    async with producer.transaction() as txn:
        for partition in (0, 0, 1):
            await txn.send(topic, b"v", partition=partition)
            note()
        await txn.send_offsets({(read_topic, 0): 7}, f"readers-of-{topic}")
        note()
    note()
    async with producer.transaction() as txn:
        await txn.send(topic, b"v", partition=0)
        await txn.send_offsets({(read_topic, 0): 8}, f"readers-of-{topic}")
    note()
    return found


@on_every_release
@in_virtual_time
async def test_embedded_cluster_is_asked_what_the_page_says(release: Release) -> None:
    async with cluster_of(release, topics={"t": 2, "orders": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, transactional_id="billing-1")
        found = await steps(producer, ("t", "orders"), lambda: [(it.api, it.version) for it in cluster.requests])
        await producer.close()

    assert found == steps_of_page(2 if release["transaction_version"] == 2 else 1)


@pytest.mark.kafka
@pytest.mark.slow
async def test_real_kafka_is_asked_what_the_page_says(proxied_kafka: Proxied) -> None:
    kafka, port, release = proxied_kafka
    proxied = kafka.node(1).ports.proxied
    assert proxied is not None
    name = f"t-{secrets.token_hex(6)}"
    client = await RawClient.connect(kafka.bootstrap_servers)
    await client.create_topic(f"{name}-read")
    await client.close()
    async with Producer(kafka.bootstrap_servers) as other:
        while len(await other.partitions_for(name)) < 2:  # noqa: ASYNC110 - made by being asked for
            await asyncio.sleep(0.05)
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(HoldingLink(port, proxied.port))
        producer = Producer(f"127.0.0.1:{port}", transactional_id=f"id-{name}")
        stack.push_async_callback(producer.close)
        found = await steps(producer, (name, f"{name}-read"), lambda: link.requests)

    assert found == steps_of_page(2 if release == "4.4.0" else 1)
