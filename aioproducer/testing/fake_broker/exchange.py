"""One request and its single answer, while a broker is busy with it."""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.testing.fake_broker.effects import Buffer
from aioproducer.testing.fake_broker.faults import Fault, FaultKind, Where
from aioproducer.testing.fake_broker.wire.api_keys import API_BY_NUMBER, ApiKey
from aioproducer.testing.fake_broker.wire.messages import Tree, decode_request, encode_response
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError, Reader

if TYPE_CHECKING:
    from aioproducer.testing.fake_broker.broker import Broker

_FIXED = struct.Struct(">hhi")


class RequestHeader(NamedTuple):
    """What every request begins with."""

    api_number: int
    version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: memoryview) -> tuple[RequestHeader, Reader]:
    """Read the fields that all header versions share; the reader stands behind them.

    Raises:
        MalformedRequestError: the frame is too short.
    """
    reader = Reader(frame)
    if len(frame) < _FIXED.size:
        raise MalformedRequestError(f"a request of {len(frame)} bytes")
    reader.position = _FIXED.size
    api_number, version, correlation_id = _FIXED.unpack_from(frame)
    return RequestHeader(api_number, version, correlation_id, reader.string()), reader


def read_payload(api: ApiKey, header: RequestHeader, reader: Reader) -> memoryview:
    """Pass over what is left of the header and return the request's body."""
    reader.flexible = api.is_flexible(header.version)
    reader.skip_tagged_fields()
    return reader.rest()


class Exchange:
    """A request that a broker has begun to serve; exactly one of `reply`, `finish_silently`, `hang_up` ends it.

    Args:
        broker: who serves it.
        connection_id: where it came from.
        header: of the request; `api` is its number as a name.
        payload: the request's body; a slice of the frame.
        now: when it began, in seconds.
    """

    __slots__ = (
        "api",
        "broker",
        "cluster",
        "connection_id",
        "header",
        "incarnation",
        "is_flexible",
        "now",
        "payload",
        "throttle_ms",
        "version",
    )

    def __init__(
        self, broker: "Broker", connection_id: int, header: RequestHeader, *, payload: memoryview, now: float
    ) -> None:
        self.broker = broker
        self.cluster = broker.cluster
        self.connection_id = connection_id
        self.header = header
        self.api = API_BY_NUMBER[header.api_number]
        self.version = header.version
        self.is_flexible = self.api.is_flexible(header.version)
        """Whether request and answer have compact lengths and tagged fields."""
        self.payload = payload
        self.incarnation = broker.incarnation
        self.now = now
        self.throttle_ms = 0

    def request(self) -> object:
        """Decode the request.

        Raises:
            MalformedRequestError: the bytes are not that request.
        """
        return decode_request(self.api, self.version, self.payload)

    def reader(self) -> Reader:
        """A reader over the body, for what is decoded by hand."""
        return Reader(self.payload, flexible=self.is_flexible)

    def reply(self, parts: Sequence[Buffer], now: float) -> None:
        """Answer with the bytes of a body."""
        self.broker.finish(self, parts, now)

    def reply_tree(self, tree: Tree, now: float) -> None:
        """Answer with a message by field names."""
        self.cluster.observe(self, tree, now)
        body = {"throttle_time": self.throttle_ms, **tree}
        self.reply([encode_response(self.api, self.version, body)], now)

    def finish_silently(self, now: float) -> None:
        """End without an answer, as `acks=0` does."""
        self.broker.finish(self, None, now)

    def hang_up(self, reason: str, now: float) -> None:
        """End by closing the connection."""
        self.broker.hang_up(self.connection_id, reason, now)

    # Faults

    def place(self, topic: str | None = None, partition: int | None = None) -> Where:
        """Where this request is, for rules to match."""
        return Where(
            api=self.api,
            node_id=self.broker.node_id,
            client_id=self.header.client_id,
            topic=topic,
            partition=partition,
        )

    def fault(self, kind: FaultKind, topic: str | None = None, partition: int | None = None) -> Fault | None:
        """The rule of this kind that applies here and now, if any."""
        faults = self.cluster.faults
        return faults.take(kind, self.place(topic, partition)) if kind in faults.kinds else None

    def injected_error(self, topic: str | None = None, partition: int | None = None) -> int:
        """The error code to answer on a test's wish; 0: none."""
        fault = self.fault(FaultKind.ERROR, topic, partition)
        return fault.code if fault else 0

    def injected_error_of_partition(self, topic: str, partition: int) -> int:
        """The same, but only of rules that name a topic: the others are for the request as a whole."""
        faults = self.broker.cluster.faults
        if FaultKind.ERROR not in faults.kinds:
            return 0
        fault = faults.take(FaultKind.ERROR, self.place(topic, partition), names_topic=True)
        return fault.code if fault else 0
