"""Requests whose response a task awaits with a future; Produce requests need none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd, Written
from aioproducer._protocol.primitives import Response
from aioproducer._protocol.response_limits import largest_response

if TYPE_CHECKING:
    from aioproducer._network.connection_pool import NodeConnection
    from aioproducer._network.context import NetworkContext
    from aioproducer._protocol.messages import Api

ResponseT = TypeVar("ResponseT", bound=Response)


class RawResponse(NamedTuple):
    """A response that is not decoded yet."""

    node_id: int  # negative for a bootstrap address
    version: int
    payload: memoryview


class PendingRequest(Generic[ResponseT]):
    """One request and the future of its response; an error of `decode` closes the connection."""

    def __init__(
        self, context: NetworkContext, node_connection: NodeConnection, decode: Callable[[RawResponse], ResponseT]
    ) -> None:
        self.response: asyncio.Future[ResponseT] = context.loop.create_future()
        self._wake = context.events.wake
        self._node_connection = node_connection
        self._decode = decode

    def outgoing(self, api: Api, version: int, body: bytes) -> OutgoingRequest:
        def on_end(end: RequestEnd) -> None:
            if not isinstance(end, Answered):
                self._fail(end)
                return
            # The node's id is read now: metadata may have named a bootstrap address since the request was sent.
            response = self._decode(RawResponse(self._node_connection.node.id, version, end.payload))
            self._node_connection.apply_throttle_and_versions(response, api, end.now)
            if not self.response.done():
                self.response.set_result(response)
            self._wake()  # an answered request leaves room for another

        return OutgoingRequest(
            api_key=api.key,
            version=version,
            flexible=api.is_flexible(version),
            buffers=[body],
            on_end=on_end,
            largest_response=largest_response(api.key, len(body)),
        )

    def _fail(self, end: Lost | Written) -> None:
        assert isinstance(end, Lost), "a request with a response"
        if not self.response.done():
            self.response.set_exception(end.error.fresh())
