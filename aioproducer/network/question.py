"""A request whose answer a coroutine waits for, with a future; Produce does without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from aioproducer.errors import KafkaError
from aioproducer.network.environment import NetworkEnvironment
from aioproducer.network.outgoing_request import OutgoingRequest
from aioproducer.protocol.messages import Api

AnswerT = TypeVar("AnswerT")


class Answer(NamedTuple):
    """What came back, and from whom."""

    node_id: int
    """Negative for a node known only by its bootstrap address."""
    version: int
    payload: memoryview


class Question(Generic[AnswerT]):
    """Turns the callbacks of one request into a future.

    Args:
        environment: for the loop, and to wake the sender: an answered request leaves room for another.
        decode: reads the answer; what it raises closes the connection, as the connection says.
    """

    def __init__(self, environment: NetworkEnvironment, decode: Callable[[Answer], AnswerT]) -> None:
        self.answer: asyncio.Future[AnswerT] = environment.loop.create_future()
        self._wake = environment.wake
        self._decode = decode

    def outgoing(self, api: Api, version: int, *, node_id: Callable[[], int], body: bytes) -> OutgoingRequest:
        """Return the request to be sent.

        Args:
            api: which request.
            version: agreed on.
            node_id: tells who answers, by the time it does: a bootstrap address becomes a node when metadata says so.
            body: of the request, in that version.
        """

        def on_response(payload: memoryview, _now: float) -> None:
            answer = self._decode(Answer(node_id(), version, payload))
            if not self.answer.done():
                self.answer.set_result(answer)
            self._wake()

        return OutgoingRequest(
            api_key=api.key,
            version=version,
            flexible=api.is_flexible(version),
            buffers=[body],
            on_response=on_response,
            on_lost=self._fail,
        )

    def _fail(self, error: KafkaError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error.fresh())
