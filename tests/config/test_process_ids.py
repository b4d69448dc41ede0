"""Ids with the process, or a variable of its environment, in them: completed by the process that starts."""

import os
import warnings

import pytest

from aioproducer import BlockingProducer, ConfigurationError, Producer
from aioproducer.testing import FakeCluster


async def test_client_id_has_the_process_that_starts_the_producer() -> None:
    async with FakeCluster(1) as cluster:
        producer = Producer(cluster.bootstrap_servers, client_id="orders-{pid}")
        async with producer:
            assert producer.statistics().client_id == producer.config.client_id == f"orders-{os.getpid()}"
        assert cluster.requests[-1].client_id == f"orders-{os.getpid()}"


async def test_transactional_id_has_the_workers_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is set after the producer was made."""
    async with FakeCluster(1, topics={"t": 1}) as cluster:
        producer = Producer(cluster.bootstrap_servers, transactional_id="orders-{WORKER}")
        monkeypatch.setenv("WORKER", "3")
        async with producer, producer.transaction() as txn:
            await txn.send("t", b"v")

        assert "orders-3" in repr(cluster.model.transactions.__dict__)


@pytest.mark.parametrize("value", [None, ""])
async def test_variable_that_is_not_set_is_the_error_of_start(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("WORKER", raising=False)
    if value is not None:
        monkeypatch.setenv("WORKER", value)
    with pytest.raises(ConfigurationError, match=r"client_id='orders-\{WORKER\}': the environment variable 'WORKER'"):
        await Producer("h:1", client_id="orders-{WORKER}").start()


@pytest.mark.parametrize("option", ["client_id", "transactional_id"])
async def test_variable_that_is_not_utf_8_is_the_error_of_start(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setenv("WORKER", "caf\udce9")
    with pytest.raises(ConfigurationError, match=option):
        await Producer("h:1", **{option: "orders-{WORKER}"}).start()  # type: ignore[arg-type]


@pytest.mark.parametrize("plain", ["orders-1", "a{}b", "{0}", "{"])
async def test_other_braces_stay(plain: str) -> None:
    async with FakeCluster(1) as cluster, Producer(cluster.bootstrap_servers, client_id=plain) as producer:
        assert producer.statistics().client_id == plain


def send_in_a_child(producer: BlockingProducer) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: threads and fork
        child = os.fork()
    if child == 0:  # pragma: no cover  # counted in the parent
        try:
            producer.send("t", b"v")
            producer.close()
        finally:
            os._exit(0)
    return child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_each_worker_of_a_preloading_server_has_an_id_of_its_own() -> None:
    with FakeCluster.in_thread(1, topics={"t": 1}) as cluster:
        producer = BlockingProducer(cluster.bootstrap_servers, client_id="orders-{pid}")
        children = [send_in_a_child(producer) for _ in range(2)]
        for child in children:
            os.waitpid(child, 0)
        ids = {seen.client_id for seen in cluster.requests}

    assert ids == {f"orders-{child}" for child in children}
