"""When a worker looks for rows before it claims, which writes."""

from collections.abc import Sequence
from time import monotonic
from typing import cast

import pytest

from aioproducer.outbox._kafka import ProducerLog
from aioproducer.outbox._leases import Leases
from aioproducer.outbox._protocol import STOP, Waiting
from aioproducer.outbox._store import SqlStore
from aioproducer.outbox._wake import Waker
from aioproducer.outbox._worker import Choices, ShardWorker, Sides

pytestmark = pytest.mark.timing


class Rows:
    """One row, and how often it was looked for."""

    def __init__(self) -> None:
        self.looks = 0

    async def first_rows(self) -> Sequence[Waiting]:
        self.looks += 1
        return [Waiting(1, "orders")]


@pytest.mark.parametrize(
    "is_woken, trusts, looks", [(True, True, 0), (True, False, 1), (False, True, 1)], ids=["trusted", "woken", "polled"]
)
async def test_wake_up_that_is_trusted_needs_no_look(*, is_woken: bool, trusts: bool, looks: int) -> None:
    rows, waker = Rows(), Waker("orders")
    sides = Sides(cast("Leases", None), cast("SqlStore", rows), cast("ProducerLog", None))
    choices = Choices(STOP, is_exact=True, lease_s=10.0)
    worker = ShardWorker("orders", 0, 1, label="outbox orders", sides=sides, choices=choices, on_work=lambda: None)
    if is_woken:
        waker.wake()

    worker._refreshed_at = monotonic()  # noqa: SLF001  # else it returns to refresh the position
    await worker._until_rows(waker, 0.01, trusts=trusts)  # noqa: SLF001  # the one decision

    assert rows.looks == looks
