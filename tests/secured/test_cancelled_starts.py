"""Starts that are cancelled or closed at every turn of connecting with TLS and SASL, and in stages that hang."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest

from aioproducer import AuthenticationError, Producer
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.testing import ApiKey, ClusterSecurity, FakeCluster, Where, unsecured_token
from tests.fakes.virtual_loop import ClusterLoop
from tests.lifecycle.test_nothing_is_left_behind import count
from tests.nightly import rounds

SECURITY = ClusterSecurity()
MOST_TURNS = 400
CONNECT_S = 0.001  # of the virtual loop
Options = dict[str, object]


class Tokens:
    """Takes three turns of the loop for each token."""

    async def token(self) -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return unsecured_token("alice", issued_ago_s=60.0)


async def password() -> str:
    for _ in range(3):
        await asyncio.sleep(0)
    return "alice-secret"


WAYS: dict[str, tuple[tuple[str, str], Options]] = {
    "password": (("SASL_SSL", "PLAIN"), {"sasl_password": password}),
    "SCRAM": (("SASL_SSL", "SCRAM-SHA-512"), {}),
    "token": (("SASL_SSL", "OAUTHBEARER"), {"sasl_token_provider": Tokens()}),
}


def producer_of(options: Options) -> Producer:
    rest = dict(options)
    return Producer(cast("str", rest.pop("bootstrap_servers")), **cast("ProducerOptions", rest))


def memory_options(cluster: FakeCluster, way: str) -> Options:
    where, more = WAYS[way]
    options = cluster.client_options(*where) | more
    del options["ssl_truststore_location"]  # files are read in threads, which virtual time does not await
    return options | {"ssl_context": ssl.create_default_context(cadata=SECURITY.authority.certificate)}


async def stopped_after(turns: int, cluster: FakeCluster, way: str, *, by_close: bool) -> bool:
    """Stop a start after some turns of the loop; returns whether it was still on its way."""
    producer = producer_of(memory_options(cluster, way))
    starting = asyncio.create_task(producer.start())
    await asyncio.sleep(CONNECT_S)  # the clock stands still in the turns that follow
    for _ in range(turns):
        await asyncio.sleep(0)
    if starting.done():
        await producer.close()
        return False
    if by_close:
        await producer.close(0)
    else:
        starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await producer.close(0)
    return True


async def sweep(way: str, *, by_close: bool) -> int:
    async with FakeCluster(1, topics={"orders": 1}, security=SECURITY) as cluster:
        async with producer_of(memory_options(cluster, way)) as producer:  # what is made once is there by now
            await producer.send_and_wait("orders", b"first")
        await asyncio.sleep(1)
        before = count()
        turns = 0
        while turns < MOST_TURNS and await stopped_after(turns, cluster, way, by_close=by_close):
            turns += 1
        await asyncio.sleep(1)  # the cluster notices what is closed
        after = count()
        assert (after.tasks, after.timers, after.files) == (before.tasks, before.timers, before.files)
        async with producer_of(memory_options(cluster, way)) as producer:
            await producer.send_and_wait("orders", b"last")
        return turns


@pytest.mark.slow
@pytest.mark.parametrize("way, by_close", [("password", False), ("SCRAM", False), ("token", False), ("SCRAM", True)])
def test_start_may_be_stopped_at_every_turn(way: str, *, by_close: bool) -> None:
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        turns = runner.run(sweep(way, by_close=by_close))
    assert 10 < turns < MOST_TURNS


async def wrong_password() -> str:
    await asyncio.sleep(0)
    return "canary-wrong"


class WrongTokens:
    async def token(self) -> str:
        return unsecured_token("alice", issued_ago_s=-7_200.0)


WRONG: dict[str, Options] = {
    "password": {"sasl_password": wrong_password},
    "SCRAM": {"sasl_password": wrong_password},
    "token": {"sasl_token_provider": WrongTokens()},
}


async def refused_start(options: Options) -> None:
    producer = producer_of(options)
    with pytest.raises(AuthenticationError):
        await producer.start()
    await producer.close()


async def refused_starts(way: str, number: int) -> None:
    async with FakeCluster(1, security=SECURITY) as cluster:
        options = memory_options(cluster, way) | WRONG[way]
        await refused_start(options)  # what is made once is there by now
        before = count()
        for _ in range(number):
            await refused_start(options)
        await asyncio.sleep(1)  # the cluster notices what is closed
        after = count()
        assert (after.tasks, after.timers, after.files) == (before.tasks, before.timers, before.files)
        assert after.threads <= before.threads
        assert after.objects < before.objects + number // 2, "objects are left of each start"


@pytest.mark.slow
@pytest.mark.parametrize("way", WRONG)
def test_many_refused_starts_leave_nothing(way: str) -> None:
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        runner.run(refused_starts(way, rounds(80, nightly=334)))


# Stages that may hang, on real sockets and with real threads


@contextlib.asynccontextmanager
async def token_that_hangs() -> AsyncIterator[tuple[Options, Callable[[], bool]]]:
    asked = asyncio.Event()

    class Hangs:
        async def token(self) -> str:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with FakeCluster(1, security=SECURITY) as cluster:
        yield cluster.client_options("SASL_SSL", "OAUTHBEARER") | {"sasl_token_provider": Hangs()}, asked.is_set


@contextlib.asynccontextmanager
async def password_that_hangs() -> AsyncIterator[tuple[Options, Callable[[], bool]]]:
    asked = asyncio.Event()

    async def hangs() -> str:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with FakeCluster(1, security=SECURITY) as cluster:
        yield cluster.client_options("SASL_SSL", "PLAIN") | {"sasl_password": hangs}, asked.is_set


@contextlib.asynccontextmanager
async def many_iterations() -> AsyncIterator[tuple[Options, Callable[[], bool]]]:
    async with FakeCluster(1, security=ClusterSecurity(scram_iterations=400_000)) as cluster:
        yield cluster.client_options("SASL_SSL", "SCRAM-SHA-512"), lambda: "aioproducer-sasl" in names_of_threads()


@contextlib.asynccontextmanager
async def answer_that_does_not_come(api: ApiKey) -> AsyncIterator[tuple[Options, Callable[[], bool]]]:
    async with FakeCluster(1, security=SECURITY) as cluster:
        cluster.faults.stall(Where(api=api))
        yield (
            cluster.client_options("SASL_SSL", "SCRAM-SHA-256"),
            lambda: any(seen.api is api for seen in cluster.requests),
        )


@contextlib.asynccontextmanager
async def handshake_of_tls() -> AsyncIterator[tuple[Options, Callable[[], bool]]]:
    async with silent_server() as (port, is_reached):
        yield {"bootstrap_servers": f"localhost:{port}", "security_protocol": "SSL"}, is_reached


@contextlib.asynccontextmanager
async def silent_proxy() -> AsyncIterator[tuple[Options, Callable[[], bool]]]:
    async with silent_server() as (port, is_reached):
        yield {"bootstrap_servers": "kafka-1:9092", "proxy_url": f"socks5h://127.0.0.1:{port}"}, is_reached


@contextlib.asynccontextmanager
async def silent_server() -> AsyncIterator[tuple[int, Callable[[], bool]]]:
    reached, over = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        reached.set()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], reached.is_set
    over.set()
    server.close()


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


STAGES: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[tuple[Options, Callable[[], bool]]]]] = {
    "token": token_that_hangs,
    "password": password_that_hangs,
    "PBKDF2": many_iterations,
    "SaslHandshake": lambda: answer_that_does_not_come(ApiKey.SASL_HANDSHAKE),
    "SaslAuthenticate": lambda: answer_that_does_not_come(ApiKey.SASL_AUTHENTICATE),
    "TLS": handshake_of_tls,
    "proxy": silent_proxy,
}


async def cancel(_: Producer, starting: asyncio.Task[Producer]) -> None:
    starting.cancel()


async def close(producer: Producer, _: asyncio.Task[Producer]) -> None:
    await producer.close(0)


@pytest.mark.parametrize("stop", [cancel, close])
@pytest.mark.parametrize("stage", STAGES)
async def test_start_that_hangs_in_a_stage_may_be_stopped(
    stage: str, stop: Callable[[Producer, asyncio.Task[Producer]], Awaitable[None]]
) -> None:
    async with STAGES[stage]() as (options, is_reached):
        tasks = asyncio.all_tasks()
        producer = producer_of(options)
        starting = asyncio.create_task(producer.start())
        async with asyncio.timeout(20):
            while not is_reached():  # noqa: ASYNC110  # in a thread, or in the cluster
                await asyncio.sleep(0.005)
            await stop(producer, starting)
            await asyncio.gather(starting, return_exceptions=True)
            await producer.close(0)
            while "aioproducer-sasl" in names_of_threads():  # noqa: ASYNC110  # PBKDF2 ends by itself
                await asyncio.sleep(0.005)
        assert starting.cancelled() or starting.exception() is not None
        ours = {task for task in asyncio.all_tasks() - tasks if "aioproducer" in task.get_name()}
        assert ours == set()
