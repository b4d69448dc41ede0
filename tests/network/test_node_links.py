"""The set of all links, on a virtual loop."""

import asyncio

import pytest

from aioproducer.core.cluster import Node
from aioproducer.network.node_links import NodeLinks
from tests.fakes.network import environment
from tests.fakes.virtual_loop import run


@pytest.mark.parametrize("is_change_first", [True, False])
def test_waiting_for_a_change_ends_when_change_and_timeout_come_together(*, is_change_first: bool) -> None:
    """As they do when the loop was blocked for longer than the wait: whoever comes second finds nothing to do."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        links = NodeLinks((Node(-1, "seed", 9092),), environment(), on_failed=lambda: None)
        when = loop.time() + 0.5
        if is_change_first:
            loop.call_at(when, links.forget_known)
        waiting = asyncio.ensure_future(links.wait_for_change(0.5))
        await asyncio.sleep(0)
        if not is_change_first:
            loop.call_at(when, links.forget_known)

        assert await waiting is None

    run(story())
