"""Memory of batches: one block, lent out read-only."""

from collections.abc import Callable

from typing_extensions import Buffer

class Chunk(Buffer):
    """A block of memory that a batch writes and a transport reads.

    `memoryview(chunk)` is read-only and covers the whole block; its slices count as the same loan.

    Raises:
        ValueError: `capacity` is below 1.
        MemoryError: the block could not be allocated.
    """

    capacity: int  # bytes in the block
    exports: int  # memoryviews of the block that are still alive

    def __init__(self, capacity: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def fill(self, data: Buffer) -> None:
        """Copy `data` to the start of the block.

        Raises:
            ValueError: it does not fit.
        """
    def when_returned(self, callback: Callable[[Chunk], None]) -> None:
        """Call `callback(self)` once, now or as soon as no memoryview of the block is alive."""
