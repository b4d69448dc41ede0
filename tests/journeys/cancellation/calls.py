"""Everything of the producer that can be awaited, and what repeating it must do."""

import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from aioproducer import UndeliveredError
from tests.journeys.cancellation.scene import Scene

RunCall = Callable[[Scene], Coroutine[object, object, object]]


@dataclass(frozen=True, slots=True)
class Target:
    """One call.

    Attributes:
        run: makes it.
        starts: it is what starts the producer.
        ends: after it the producer is closed, also if it was cancelled, as soon as the closing is done.
        withdraws: cancelled while its record waits in line, it takes the record out.
        keeps: its record is accepted by the call, and no cancelling recalls it.
    """

    run: RunCall
    starts: bool = False
    ends: bool = False
    withdraws: bool = False
    keeps: bool = False


class BodyError(Exception):
    """Failure of the body of an `async with`."""


async def start(scene: Scene) -> None:
    await scene.producer.start()


async def start_without_waiting(scene: Scene) -> None:
    await scene.producer.start(wait=False)


async def send(scene: Scene) -> None:
    await scene.producer.send(scene.topic, **scene.record())


async def send_and_wait(scene: Scene) -> None:
    await scene.producer.send_and_wait(scene.topic, **scene.record())


async def enqueue(scene: Scene) -> None:
    await scene.producer.enqueue(scene.topic, **scene.record())


async def enqueue_and_await(scene: Scene) -> None:
    await (await scene.producer.enqueue(scene.topic, **scene.record()))


async def send_many(scene: Scene) -> None:
    await scene.producer.send_many(scene.topic, scene.values(5))


async def send_many_and_await(scene: Scene) -> None:
    await (await scene.producer.send_many(scene.topic, scene.values(5)))


async def send_arrow(scene: Scene) -> None:
    rows = pa.record_batch({"value": pa.array(scene.values(5), pa.binary())})
    await scene.producer.send_arrow(scene.topic, rows)


async def topic_send_and_wait(scene: Scene) -> None:
    await scene.producer.topic(scene.topic, value=bytes).send_and_wait(**scene.record())


async def topic_send_many(scene: Scene) -> None:
    await (await scene.producer.topic(scene.topic, value=bytes).send_many(scene.values(5)))


async def partitions_for(scene: Scene) -> None:
    await scene.producer.partitions_for("never-seen")


async def flush(scene: Scene) -> None:
    with contextlib.suppress(UndeliveredError):
        await scene.producer.flush()


async def flush_for_a_while(scene: Scene) -> None:
    with contextlib.suppress(UndeliveredError, TimeoutError):
        await scene.producer.flush(2)


async def close(scene: Scene) -> None:
    with contextlib.suppress(UndeliveredError):
        await scene.producer.close()


async def close_soon(scene: Scene) -> None:
    with contextlib.suppress(UndeliveredError):
        await scene.producer.close(1)


async def close_now(scene: Scene) -> None:
    with contextlib.suppress(UndeliveredError):
        await scene.producer.close(0)


async def leave(scene: Scene) -> None:
    """The end of `async with`."""
    with contextlib.suppress(UndeliveredError):
        async with scene.producer:
            pass


async def leave_with_error(scene: Scene) -> None:
    with contextlib.suppress(BodyError):
        async with scene.producer:
            fail()


def fail() -> NoReturn:
    raise BodyError


TARGETS: dict[str, Target] = {
    "start": Target(start, starts=True),
    "start(wait=False)": Target(start_without_waiting, starts=True),
    "send": Target(send, keeps=True),
    "send_and_wait": Target(send_and_wait, withdraws=True),
    "enqueue": Target(enqueue, withdraws=True),
    "enqueue, then the delivery": Target(enqueue_and_await, withdraws=True),
    "send_many": Target(send_many),
    "send_many, then the delivery": Target(send_many_and_await),
    "send_arrow": Target(send_arrow),
    "topic.send_and_wait": Target(topic_send_and_wait, withdraws=True),
    "topic.send_many, then the delivery": Target(topic_send_many),
    "partitions_for": Target(partitions_for),
    "flush": Target(flush),
    "flush(2)": Target(flush_for_a_while),
    "close": Target(close, ends=True),
    "close(1)": Target(close_soon, ends=True),
    "close(0)": Target(close_now, ends=True),
    "async with": Target(leave, ends=True),
    "async with, failing": Target(leave_with_error, ends=True),
}
