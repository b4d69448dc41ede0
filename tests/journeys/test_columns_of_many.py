"""What `send_many` takes as values and keys, and what it refuses at the call."""

import asyncio
from collections.abc import Iterable

import pytest

from aioproducer import BlockingProducer, Producer
from aioproducer.testing import FakeCluster
from tests.produced import values


@pytest.mark.parametrize("column", ["values", b"keys", None, 5], ids=str)
@pytest.mark.parametrize("name", ["values", "keys"])
async def test_what_is_no_column_is_refused_at_the_call(producer: Producer, name: str, column: object) -> None:
    """Else a str would be a column of letters, each of them refused."""
    if name == "keys" and column is None:
        return
    columns: dict[str, object] = {"values": [b"v"], name: column}
    with pytest.raises(TypeError, match=f"{name} must be an iterable of {name}, one for each record, got"):
        await producer.send_many("orders", **columns)  # type: ignore[arg-type]

    await producer.flush()


@pytest.mark.parametrize("column", [{b"a": 1}, {}, {b"a"}, frozenset()], ids=str)
@pytest.mark.parametrize("name", ["values", "keys"])
async def test_mapping_or_set_is_no_column(one_broker: FakeCluster, name: str, column: Iterable[bytes]) -> None:
    """Only the keys of a dict would be sent, and a set has no positions for results; on every producer class."""
    given, keys = (column, None) if name == "values" else ([b"v"], column)
    text = rf"^{name} must be .*, not a {type(column).__name__}: pass"
    async with Producer(one_broker.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match=text):
            await producer.send_many("orders", given, keys=keys)
        with pytest.raises(TypeError, match=text):
            await producer.topic("orders", value=bytes).send_many(given, keys=keys)

    def send_blocking() -> None:
        with BlockingProducer(one_broker.bootstrap_servers) as blocking:
            with pytest.raises(TypeError, match=text):
                blocking.send_many("orders", given, keys=keys)
            with pytest.raises(TypeError, match=text):
                blocking.topic("orders", value=bytes).send_many(given, keys=keys)

    await asyncio.to_thread(send_blocking)
    assert values(one_broker, "orders") == []


async def test_views_of_a_dict_are_columns(producer: Producer, one_broker: FakeCluster) -> None:
    table = {b"k1": b"v1", b"k2": b"v2"}
    await (await producer.send_many("orders", table.values(), keys=table.keys(), partition=0))

    assert [(record.key, record.value) for record in one_broker.records("orders", 0)] == list(table.items())
