"""A `repr` ends up in logs and debuggers: it never shows what a record says."""

from collections.abc import Callable

import pytest

from aioproducer.interceptors import ProducerRecord
from tests.fakes.core_parts import CoreParts

SECRET = b"hunter2"


def parts() -> CoreParts:
    """Return a core with a record in an open batch, one waiting for its topic, and one on the wire."""
    core = CoreParts(leaders=(1, 1))
    core.send(SECRET, key=SECRET)
    core.flush()
    core.drain()
    core.send(SECRET, partition=1)
    core.wait_in_queue(SECRET, topic="nowhere")
    return core


def delivery(core: CoreParts) -> object:
    return core.send(SECRET)


def batch(core: CoreParts) -> object:
    core.flush()
    return core.drain()


HOLDERS: dict[str, Callable[[CoreParts], object]] = {
    "record": lambda _: ProducerRecord("t", SECRET, key=SECRET.decode(), headers=(("h", SECRET),)),
    "delivery": delivery,
    "batch": batch,
    "accumulator": lambda core: core.accumulator,
    "open batches": lambda core: core.open_batches,
    "partition": lambda core: core.queue(),
    "wait queues": lambda core: core.wait_queues,
    "buffer pool": lambda core: core.pool,
}


@pytest.mark.parametrize("holder", list(HOLDERS))
def test_repr_shows_no_payload(holder: str) -> None:
    shown = repr(HOLDERS[holder](parts()))

    assert shown
    assert "hunter2" not in shown
