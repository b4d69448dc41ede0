"""Workers that die by `kill -9` in each phase of a transaction, and start again: nothing twice, nothing missing."""

import asyncio
import secrets
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import replace

import pytest

from tests.integrations.worker_program import PHASES, WorkerOrders
from tests.integrations.workers import fill, make_topics, read_committed
from tests.kafka_releases import RELEASES, fake_and_real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.timing]


def one_fake_and_real(*nightly: str) -> list[object]:
    return [*fake_and_real(["4.4.0"])[:1], *fake_and_real(nightly=nightly)[len(RELEASES) :]]


MEMBERS = ("range dynamic", "range static", "roundrobin static", "sticky dynamic")
"""Assignors and kinds of membership: all on the embedded cluster, and on each real broker one."""

PLACES = [
    pytest.param(*each.values, members, marks=each.marks, id=f"{each.id}-{members}")
    for number, each in enumerate(one_fake_and_real("4.4.0-tv0"))
    for members in (MEMBERS if number == 0 else MEMBERS[number : number + 1])
]
TOTAL = 120
WORKER_S = 60  # a worker that takes longer hangs: the session time-out is 6 s, an answer milliseconds


async def begun(orders: WorkerOrders) -> Process:
    return await asyncio.create_subprocess_exec(*orders.command(), stdin=DEVNULL, stdout=PIPE)


async def ended(orders: WorkerOrders) -> int:
    process = await begun(orders)
    try:
        await asyncio.wait_for(process.communicate(), WORKER_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode


async def input_of(bootstrap_servers: str, topic: str) -> None:
    await make_topics(bootstrap_servers, topic, f"{topic}-out")
    await fill(bootstrap_servers, topic, range(TOTAL))


def topic_of(topic: str) -> str:
    """A name of which a broker that is shared has heard nothing: the group's offsets live as long as it does."""
    return f"{topic[:80]}-{secrets.token_hex(4)}"


@pytest.mark.parametrize("broker_of_release", one_fake_and_real("3.9.1", "4.4.0-tv0"), indirect=True)
@pytest.mark.parametrize("phase", PHASES)
async def test_worker_dies_and_starts_again(broker_of_release: tuple[str, str], topic: str, phase: str) -> None:
    """With the same id, the transaction of its first life is aborted at once, not after its time-out."""
    _, servers = broker_of_release
    name = topic_of(topic)
    await input_of(servers, name)

    first = await ended(WorkerOrders(servers, name, "w", TOTAL, phase=phase))
    second = await ended(WorkerOrders(servers, name, "w", TOTAL))

    assert (first, second) == (-signal.SIGKILL, 0)
    assert await read_committed(servers, f"{name}-out", count=TOTAL) == list(range(TOTAL))


@pytest.mark.parametrize("broker_of_release, members", PLACES, indirect=["broker_of_release"])
async def test_another_worker_takes_over(broker_of_release: tuple[str, str], topic: str, members: str) -> None:
    _, servers = broker_of_release
    name = topic_of(topic)
    await input_of(servers, name)
    assignor, kind = members.split()
    survives = WorkerOrders(
        servers, name, "a", TOTAL, assignor=assignor, is_static=kind == "static", batch=5, pause_s=0.05
    )
    dies = replace(survives, worker="b", phase="after offsets")

    survivor = await begun(survives)
    assert survivor.stdout is not None
    await survivor.stdout.readline()
    died = await ended(dies)
    again = await ended(replace(dies, phase=""))
    await asyncio.wait_for(survivor.communicate(), WORKER_S)

    assert died in {-signal.SIGKILL, 0}  # the survivor may have left it nothing to do
    assert (again, survivor.returncode) == (0, 0)
    assert await read_committed(servers, f"{name}-out", count=TOTAL) == list(range(TOTAL))
