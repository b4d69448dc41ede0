"""Numbered requests of tests of a `SaslConnection`."""

from functools import partial

from aioproducer._network.requests import Answered, Lost, OutgoingRequest, RequestEnd
from tests.fakes.sasl_broker import Secured


class Requests:
    """Sends numbered requests and keeps their ends."""

    def __init__(self, secured: Secured) -> None:
        self._connection = secured.connection
        self.ends: list[tuple[int, RequestEnd]] = []
        self.sent = 0

    def send(self, count: int = 1, *, acks: int = -1) -> list[OutgoingRequest]:
        requests = [self._numbered(number, acks) for number in range(self.sent, self.sent + count)]
        self.sent += count
        for request in requests:
            self._connection.send(request)
        return requests

    def _numbered(self, number: int, acks: int) -> OutgoingRequest:
        return OutgoingRequest(
            api_key=0,
            version=99 if acks == 0 else 13,
            flexible=True,
            buffers=[number.to_bytes(4, "big")],
            expects_response=acks != 0,
            on_end=partial(self._ended, number),
        )

    def _ended(self, number: int, end: RequestEnd) -> None:
        self.ends.append((number, end))

    @property
    def answered(self) -> list[int]:
        return [number for number, end in self.ends if isinstance(end, Answered)]

    def lost(self) -> dict[int, Lost]:
        return {number: end for number, end in self.ends if isinstance(end, Lost)}
