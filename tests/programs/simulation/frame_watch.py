"""I28: what cannot be an answer closes the connection it came on, at once, and no other.

A size below that of a correlation id, or above the largest frame, and an answer that nobody asked for leave no doubt:
when they have been read, the connection is closed. Bytes that were changed on their way, and garbage of which nobody
can tell where it ends, excuse any end of their own connection. Nothing excuses that of another.
"""

import struct
from collections.abc import Callable
from typing import Final

from aioproducer import ProtocolError
from aioproducer._protocol.framing import DEFAULT_MAX_FRAME_BYTES
from aioproducer.testing.fake_broker.faults import Fault
from tests.programs.simulation.simulated_transport import SimulatedTransport

_SIZE: Final = struct.Struct(">i")
_SMALLEST: Final = 4
_OMITTED: Final = "answered Produce without"


class FrameWatch:
    """Sees what arrives at the producer.

    Args:
        violated: is told of an invariant that was broken, and how.
    """

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self.omissions: list[Fault] = []
        """Rules by which answers say nothing of a partition."""
        self._violated = violated
        self._omitted = 0

    def is_bad(self, transport: SimulatedTransport, frame: bytes) -> bool:
        """Whether a frame, of which nothing has arrived yet or all but the last piece, must end its connection."""
        if transport.is_spoilt:
            return False  # where a frame begins is not known any more
        (size,) = _SIZE.unpack_from(frame if len(frame) >= _SIZE.size else frame.ljust(_SIZE.size, b"\0"))
        is_whole = len(frame) == _SIZE.size + size
        if is_whole and size >= _SMALLEST and _SIZE.unpack_from(frame, _SIZE.size)[0] in transport.asked:
            return False
        transport.is_spoilt = True
        is_cut = len(frame) < _SIZE.size or _SMALLEST <= size <= DEFAULT_MAX_FRAME_BYTES
        return is_whole or not is_cut

    def taken(self, transport: SimulatedTransport, *, is_bad: bool) -> None:
        """The producer has read a frame."""
        if is_bad and not transport.is_closing():
            self._violated("I28", f"connection {transport.number} goes on after what cannot be an answer")

    def lost(self, transport: SimulatedTransport) -> None:
        """A connection is gone."""
        error = getattr(transport.protocol, "error", None)
        if not isinstance(error, ProtocolError) or transport.is_spoilt:
            return
        self._omitted += _OMITTED in str(error)
        hits = sum(fault.hits for fault in self.omissions)
        if _OMITTED not in str(error) or self._omitted > hits:
            self._violated("I28", f"connection {transport.number} was closed, but what came on it is sound: {error}")
