"""Effects: the only way in which brokers reach the network.

`ModelCluster` collects them in order; its driver takes them after each call and carries them out.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Send(NamedTuple):
    """Write these bytes to a connection, in this order."""

    connection_id: int
    buffers: Sequence[Buffer]


class Close(NamedTuple):
    """Close a connection after its pending bytes are sent."""

    connection_id: int
    reason: str
    is_abrupt: bool = False  # close it now, and drop pending bytes: the broker died


class PauseReading(NamedTuple):
    """Stop reading from a connection: enough of its requests are waiting."""

    connection_id: int


class ResumeReading(NamedTuple):
    connection_id: int


Effect: TypeAlias = Send | Close | PauseReading | ResumeReading
