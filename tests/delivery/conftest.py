"""Every test here runs on asyncio's own loop, on uvloop, and with eager tasks where Python has them."""

import asyncio
from collections.abc import Callable

import pytest

from tests.fakes.event_loops import LOOPS


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001  # the hook's arguments
    item: pytest.Item,  # noqa: ARG001
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return LOOPS
