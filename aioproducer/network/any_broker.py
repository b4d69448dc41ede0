"""Asks what any broker can answer, and does not wait for one that stands still while another could.

A broker may be stopped, or busy for half a minute with what is before the question on its connection; nothing tells
that from an answer that is just about to come. So after a second without an answer the next broker is asked as well,
and the first answer counts.

Source: Kafka's clients know a stalled connection only by `request.timeout.ms`, and then ask elsewhere; KIP-899 and
KIP-1102 begin anew where no broker can be reached at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aioproducer.network.environment import NetworkEnvironment
from aioproducer.network.node_choice import NodeChoice
from aioproducer.network.node_link import NodeLink

AnswerT = TypeVar("AnswerT")

PATIENCE_S: Final = 1.0


class AnyBroker:
    """Asks one broker after another, the least loaded first, until the first answer.

    Args:
        choice: finds brokers, and connects.
        environment: for the loop.
    """

    def __init__(self, choice: NodeChoice, environment: NetworkEnvironment) -> None:
        self._choice = choice
        self._environment = environment

    async def first_answer(self, ask: Callable[[NodeLink], Awaitable[AnswerT]]) -> AnswerT:
        """Return the first answer to a question that may be put to several brokers.

        Args:
            ask: puts it to one.

        Raises:
            KafkaError: when all who were asked have failed, of the one that failed first.
        """
        asked: list[NodeLink] = []
        asking = [self._begin(ask, asked)]
        ended: list[asyncio.Task[AnswerT]] = []
        try:
            while len(ended) < len(asking):
                waiting = [task for task in asking if task not in ended]
                await asyncio.wait(waiting, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
                ended += (just_ended := [task for task in waiting if task.done()])
                answered = next((task for task in just_ended if task.exception() is None), None)
                if answered is not None:
                    return answered.result()
                if not just_ended and len(asked) == len(asking) and self._choice.has_another(asked):
                    asking.append(self._begin(ask, asked))
            return ended[0].result()  # raises what it failed with
        finally:
            await _end(asking)

    def _begin(self, ask: Callable[[NodeLink], Awaitable[AnswerT]], asked: list[NodeLink]) -> asyncio.Task[AnswerT]:
        name = f"aioproducer-ask | {self._environment.client_id}"
        return self._environment.loop.create_task(self._ask(ask, asked), name=name)

    async def _ask(self, ask: Callable[[NodeLink], Awaitable[AnswerT]], asked: list[NodeLink]) -> AnswerT:
        link = await self._choice.reach(None, besides=asked)
        asked.append(link)
        return await ask(link)


async def _end(asking: list[asyncio.Task[AnswerT]]) -> None:
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
