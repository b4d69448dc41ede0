"""Every example runs, against the embedded cluster."""

import asyncio
import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from aioproducer.testing import ApiKey, FakeCluster, Where

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

pytestmark = [pytest.mark.slow, pytest.mark.timing]


async def started(name: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / name), *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


async def output_of(process: asyncio.subprocess.Process) -> tuple[int | None, list[str], str]:
    output, errors = await process.communicate()
    return process.returncode, output.decode().splitlines(), errors.decode()


def values_in(cluster: FakeCluster, topic: str) -> list[bytes | None]:
    count = len(cluster.model.topics.named(topic).partitions)  # type: ignore[union-attr]
    return [record.value for number in range(count) for record in cluster.records(topic, number)]


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        *("fastapi_outbox.py", "fastapi_service.py", "one_screen.py", "worker.py")
    }


async def test_one_screen(cluster: FakeCluster) -> None:
    ended = await output_of(await started("one_screen.py", cluster.bootstrap_servers))

    assert ended == (0, ["delivered to partition 3 at offset 0", "1001 records delivered"], "")
    assert len(values_in(cluster, "orders")) == 1001


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_worker_delivers_everything_on_sigterm(cluster: FakeCluster, number: signal.Signals) -> None:
    process = await started("worker.py", cluster.bootstrap_servers)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"working\n"
    await asyncio.sleep(0.2)

    process.send_signal(number)
    code, lines, errors = await output_of(process)

    assert (code, lines[0], errors) == (0, "stopping", "")
    assert lines[1] == f"{len(values_in(cluster, 'measurements'))} records delivered"


@pytest.mark.timing
async def test_worker_without_a_broker_ends_before_it_is_killed() -> None:
    """Kubernetes gives 30 s from SIGTERM on, also to a worker that is still starting."""
    process = await started("worker.py", "127.0.0.1:1")
    await asyncio.sleep(3)  # of its 8 s: until it imports and handles the signal

    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        code, lines, errors = await output_of(process)

    assert (code, lines) == (1, [])
    assert "no broker has answered within 8 s" in errors


# --------------------------------------------------------------------------------------------------- FastAPI


def service(bootstrap_servers: str, **options: int) -> FastAPI:
    spec = importlib.util.spec_from_file_location("fastapi_service", EXAMPLES / "fastapi_service.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app: FastAPI = module.create_app(bootstrap_servers, **options)
    return app


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def test_service_answers_when_the_record_is_delivered(cluster: FakeCluster) -> None:
    app = service(cluster.bootstrap_servers)
    async with app.router.lifespan_context(app), client_of(app) as client:
        placed = await client.post("/orders/customer-7", content=b"tea")
        ready = await client.get("/ready")
        page = await client.get("/producer/")

    assert (placed.status_code, placed.json()) == (201, {"partition": 3, "offset": 0})
    assert [record.value for record in cluster.records("orders", 3)] == [b"tea"]
    assert (ready.status_code, ready.json()["producers"][0]["connections"] > 0) == (200, True)
    assert "<title>Producers</title>" in page.text


async def test_service_keeps_to_the_time_of_a_request(cluster: FakeCluster) -> None:
    app = service(cluster.bootstrap_servers)
    async with app.router.lifespan_context(app), client_of(app) as client:
        invalid = await client.post("/orders/a", headers={"x-request-timeout": "soon"})
        cluster.faults.stall(Where(api=ApiKey.PRODUCE))
        late = await client.post("/orders/a", headers={"x-request-timeout": "0.2"})
        cluster.faults.clear()

    assert invalid.status_code == 400
    assert invalid.json()["detail"] == "header x-request-timeout must be a number above 0 (seconds), not 'soon'"
    assert (late.status_code, late.json()["outcome"]) == (504, "UNKNOWN")


async def test_idle_service_is_ready_without_connections(cluster: FakeCluster) -> None:
    app = service(cluster.bootstrap_servers, connections_max_idle_ms=1)
    async with app.router.lifespan_context(app), client_of(app) as client:
        await client.post("/orders/customer-7", content=b"tea")
        for _ in range(1000):
            ready = await client.get("/ready")
            if not ready.json()["producers"][0]["connections"]:
                break
            await asyncio.sleep(0.01)

    assert (ready.status_code, ready.json()["producers"][0]["connections"]) == (200, 0)


async def test_service_says_come_back_later_when_the_buffer_is_full(cluster: FakeCluster) -> None:
    cluster.create_topic("orders", 1, configs={"min.insync.replicas": "2"})
    app = service(cluster.bootstrap_servers, buffer_memory=65_536, batch_size=16_384, max_block_ms=200)
    async with app.router.lifespan_context(app), client_of(app) as client:
        assert (await client.post("/orders/a", content=b"first")).status_code == 201
        hold_followers(cluster, held=True)
        sending = [asyncio.create_task(client.post("/orders/a", content=b"x" * 10_000)) for _ in range(20)]
        done, _ = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)  # refused: nothing is acknowledged
        refused = [task.result() for task in done]
        hold_followers(cluster, held=False)
        answers = await asyncio.gather(*sending)

    assert refused
    assert {(answer.status_code, answer.headers["Retry-After"]) for answer in refused} == {(503, "1")}
    assert len(values_in(cluster, "orders")) == 1 + sum(answer.status_code == 201 for answer in answers)


def hold_followers(cluster: FakeCluster, *, held: bool) -> None:
    """Let those that do not lead stop copying, so that nothing is acknowledged, or go on."""
    leader = cluster.leader_of("orders", 0)
    for node_id in {1, 2, 3} - {leader}:
        cluster.hold_replication(node_id, held=held)


async def test_service_refuses_what_is_too_large(cluster: FakeCluster) -> None:
    app = service(cluster.bootstrap_servers)
    async with app.router.lifespan_context(app), client_of(app) as client:
        answer = await client.post("/orders/a", content=b"x" * 2_000_000)

    assert answer.status_code == 413
    assert "max_request_size" in answer.json()["detail"]


async def test_service_without_brokers_is_up_and_not_ready() -> None:
    app = service("127.0.0.1:1", max_block_ms=200)
    async with app.router.lifespan_context(app), client_of(app) as client:
        ready = await client.get("/ready")
        order = await client.post("/orders/a", content=b"tea")

    assert ready.status_code == 503
    assert (order.status_code, order.json()["outcome"]) == (502, "NOT_WRITTEN")
