"""What the brokers want done: the only way they reach the network.

`ModelCluster` collects them in order; whoever drives it takes them after each call and carries them out.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Send(NamedTuple):
    """Write these bytes to a connection, all of them, in this order."""

    connection_id: int
    buffers: Sequence[Buffer]


class Close(NamedTuple):
    """Close a connection after what was sent before has left."""

    connection_id: int
    reason: str
    is_abrupt: bool = False
    """Close it now, whatever has not left: the broker died."""


class PauseReading(NamedTuple):
    """Read no more from a connection for now: its requests wait in line already."""

    connection_id: int


class ResumeReading(NamedTuple):
    """Read again."""

    connection_id: int


Effect: TypeAlias = Send | Close | PauseReading | ResumeReading
