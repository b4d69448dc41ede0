"""Memory of unsent and unanswered records, within a hard bound.

Bytes count from the moment a chunk is lent until it is given back *and* no transport holds a view of it; only then is
the chunk lent again (the bug class of KAFKA-19012). Sizes are powers of two up to `batch_size`, each with a list of
free chunks; larger ones are allocated individually and freed at once.

A quarter of the memory is divided into reserves, one for each node that leads topics in use: a node that does not
respond can take the common three quarters and its own reserve, never the others'. A stalled partition is lent nothing
from its node's reserve, which is left to the node's other partitions. A loan is never revoked.

    total = common (3/4) + reserve of node 1 + reserve of node 2 + ...        no leader known yet: all is common

Source: BufferPool in Apache Kafka, without its lock; records wait for memory in `wait_queues.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from aioproducer._native.memory import Chunk

SMALLEST_CHUNK: Final = 1024
_BATCHES_IN_ROOMY_MEMORY: Final = 16
UNPACKED_BATCHES: Final = 2  # batches of the largest size that may be unpacked beyond `buffer.memory` while it is full


class Account:
    """Bytes that are lent of one part of the memory, and how many may be."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.used = 0

    def has_room(self, size: int) -> bool:
        return self.used + size <= self.limit


class BufferPool:
    """Lends chunks within a bound.

    Args:
        batch_size: bytes of the largest chunk that is kept for the next use.
        on_return: called when bytes come back while `is_awaited`; must be cheap, since a transport may be letting go.
    """

    def __init__(self, total_bytes: int, batch_size: int, *, on_return: Callable[[], None]) -> None:
        self.total_bytes = total_bytes
        self.is_roomy = total_bytes >= _BATCHES_IN_ROOMY_MEMORY * batch_size
        """A batch is a small part of the memory, so a partition may wait for a large chunk."""
        self.lent_bytes = 0
        self.is_awaited = False  # records wait for memory
        self._on_return = on_return
        self._sizes = _chunk_sizes(batch_size)
        self._free: dict[int, list[Chunk]] = {size: [] for size in self._sizes}
        self.free_bytes = 0
        self._lent: dict[Chunk, Account] = {}
        self._holders: dict[Chunk, int] = {}
        self._common = Account(total_bytes)
        self._reserves: frozenset[Account] = frozenset()
        self._unpacking = Account(UNPACKED_BATCHES * batch_size)  # beyond `buffer.memory`

    # The bound

    def divide_reserves(self, reserves: Iterable[Account]) -> None:
        """Divide a quarter among the nodes that lead topics in use; loans stay as they are."""
        before, self._reserves = self._reserves, frozenset(reserves)
        if self._reserves == before:
            return
        for reserve in before:
            reserve.limit = 0
        quarter = self.total_bytes // 4 if self._reserves else 0
        self._common.limit = self.total_bytes - quarter
        for reserve in self._reserves:
            reserve.limit = max(quarter // len(self._reserves), SMALLEST_CHUNK)

    # Lending

    def try_lend(self, size: int, reserve: Account | None, *, may_use_common: bool = True) -> Chunk | None:
        """Lend a chunk of at least `size` bytes; None if there is no room now.

        Args:
            reserve: of the partition's leader, used after the common memory; None without a leader.
        """
        # Nearly every batch begins with the smallest chunk: that one is not searched for.
        capacity = SMALLEST_CHUNK if size <= SMALLEST_CHUNK else self.capacity_for(size)
        if self.lent_bytes + capacity > self.total_bytes:
            return None
        common = self._common
        if may_use_common and common.used + capacity <= common.limit:
            payer = common
        elif reserve is not None and reserve.has_room(capacity):
            payer = reserve
        else:
            return None
        # With glibc the free lists spare a fifth for small chunks; with an allocator that maps each large block, half.
        if free := self._free.get(capacity):
            self.free_bytes -= capacity
            chunk = free.pop()
        else:
            self._shrink_free_lists(self.unallocated_bytes - capacity)
            chunk = Chunk(capacity)
        self._lent[chunk] = payer
        payer.used += capacity
        self.lent_bytes += capacity
        return chunk

    def lend_for_unpacking(self, size: int, reserve: Account | None) -> Chunk | None:
        """Lend memory to unpack a compressed batch, beyond the bound if memory is full; None if that is used up.

        Chunks in use are given back only after the batch is sent, so waiting for memory could be a deadlock.
        """
        chunk = self.try_lend(size, reserve)
        if chunk is None and self._unpacking.has_room(size):
            chunk = Chunk(size)
            self._lent[chunk] = self._unpacking
            self._count(self._unpacking, size)
        return chunk

    def share(self, chunk: Chunk, holders: int) -> None:
        """Let `holders` batches hold the chunk; each of them must give it back."""
        self._holders[chunk] = self._holders.get(chunk, 1) + holders - 1

    def give_back(self, chunk: Chunk) -> None:
        """Take the chunk back once no memoryview of it is alive; until then its bytes count."""
        holders = self._holders.pop(chunk, 1)
        if holders > 1:
            self._holders[chunk] = holders - 1
            return
        # Neither the response nor the end of a request frees memory: only the last view does (KAFKA-19012).
        if chunk.exports:
            chunk.when_returned(self._returned)
        else:  # as a rule: small batches are copied into their requests
            self._returned(chunk)

    def replace(self, chunk: Chunk, data: bytes) -> Chunk | None:
        """Exchange a lent chunk for a smaller one that holds `data`; the loan shrinks to its size.

        For compressed batches: while this runs both exist, which is what the sealing reserve outside of
        `buffer_memory` is for. A chunk that others hold too stays until they give it back, so there must be room.

        Returns:
            None: others, or a transport, hold the chunk, and there is no room for a second one now.
        """
        holders = self._holders.get(chunk, 0)
        if holders > 1 or (holders and chunk.exports):  # of those who held it, a transport may still
            return self._copy_out(chunk, data)
        smaller = Chunk(max(len(data), 1))  # before anything else: there may be no memory for it
        smaller.fill(data)
        self._holders.pop(chunk, None)
        self._lent[smaller] = payer = self._lent[chunk]
        del self._lent[chunk]
        self._count(payer, smaller.capacity - chunk.capacity)
        self._keep(chunk)
        if self.is_awaited:
            self._on_return()
        return smaller

    def _copy_out(self, chunk: Chunk, data: bytes) -> Chunk | None:
        payer, size = self._lent[chunk], max(len(data), 1)
        is_full = payer is not self._unpacking and self.lent_bytes + size > self.total_bytes
        if is_full or not payer.has_room(size):
            return None
        if payer is not self._unpacking:
            self._shrink_free_lists(self.unallocated_bytes - size)
        own = Chunk(size)
        own.fill(data)
        self._lent[own] = payer
        self._count(payer, size)
        self.give_back(chunk)
        return own

    def capacity_for(self, size: int) -> int:
        index = bisect_left(self._sizes, size)
        return self._sizes[index] if index < len(self._sizes) else size

    # Sizes

    @property
    def unallocated_bytes(self) -> int:
        return self.total_bytes - self.lent_bytes - self.free_bytes

    @property
    def available_bytes(self) -> int:
        return self.total_bytes - self.lent_bytes

    def __repr__(self) -> str:
        return f"<BufferPool lent={self.lent_bytes} free={self.free_bytes} total={self.total_bytes}>"

    def _count(self, payer: Account, size: int) -> None:
        payer.used += size
        if payer is not self._unpacking:
            self.lent_bytes += size

    def _shrink_free_lists(self, spare: int) -> None:
        """Free chunks, largest first, while `spare`, the bytes that would stay unallocated, is negative."""
        for size in reversed(self._sizes):
            chunks = self._free[size]
            while spare < 0 and chunks:
                chunks.pop()
                self.free_bytes -= size
                spare += size

    def _returned(self, chunk: Chunk) -> None:
        if getattr(self, "_lent", None) is None:
            return  # the producer is being garbage collected, the pool before the chunk
        self._count(self._lent.pop(chunk), -chunk.capacity)
        self._keep(chunk)
        if self.is_awaited:
            self._on_return()

    def _keep(self, chunk: Chunk) -> None:
        free = self._free.get(chunk.capacity)
        free_bytes = self.free_bytes + chunk.capacity
        if free is not None and not chunk.exports and self.lent_bytes + free_bytes <= self.total_bytes:
            free.append(chunk)
            self.free_bytes = free_bytes


def _chunk_sizes(batch_size: int) -> tuple[int, ...]:
    sizes = [SMALLEST_CHUNK]
    while sizes[-1] * 2 <= batch_size:
        sizes.append(sizes[-1] * 2)
    if batch_size > sizes[-1]:
        sizes.append(batch_size)
    return tuple(sizes)
