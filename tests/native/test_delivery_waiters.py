"""Waiters for a delivery: those that gave up are forgotten, and the others run in their own context."""

import asyncio
import weakref
from contextvars import ContextVar, copy_context

from aioproducer._native.delivery import Delivery
from tests.native.test_delivery import awaited, result_of

NAME = ContextVar("NAME", default="unset")


def look_and_give_up(delivery: Delivery) -> "weakref.ref[asyncio.Future[None]]":
    """Begin to await a delivery, and return what was waited for."""
    waiter = next(iter(delivery.__await__()))
    waiter.cancel()
    return weakref.ref(waiter)


async def test_waiters_that_gave_up_are_not_kept() -> None:
    """Polling with timeouts would otherwise keep a waiter per look until the record ends."""
    delivery = awaited().delivery(0, 0)
    given_up = [look_and_give_up(delivery) for _ in range(100)]

    assert sum(waiter() is not None for waiter in given_up) == 1


async def test_callback_added_to_a_done_delivery_has_its_context() -> None:
    result, told = awaited(), list[str]()
    delivery = result.delivery(0, 0)
    result.complete(0, -1, 0, 1)
    context = copy_context()
    context.run(NAME.set, "given")

    delivery.add_done_callback(lambda _: told.append(NAME.get()), context=context)
    await asyncio.sleep(0)

    assert told == ["given"]


def test_delivery_without_callbacks_has_no_waiter() -> None:
    """A waiter would end the linger of the batch that its record gets a place in."""
    delivery = result_of().delivery(0, 0)
    delivery.add_done_callback(print)

    assert (delivery.remove_done_callback(print), delivery._has_waiters()) == (1, False)
