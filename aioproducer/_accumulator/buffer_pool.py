"""The memory of unsent and unanswered records, and its hard bound.

Bytes count from the moment a chunk is lent until it is given back *and* no transport holds a view of it; a chunk
is lent again only after that (the bug class of KAFKA-19012). Sizes are powers of two up to `batch_size`, each with
a list of free chunks; larger ones are allocated alone and freed at once.

A quarter of the memory is divided into reserves, one for each node that leads topics in use: a node that answers
nothing can take the common three quarters and its own reserve, never the others'. A partition that makes no progress
is lent nothing from its node's reserve, which is for the node's other partitions. Nothing that was lent is ever
revoked.

    total = common (3/4) + reserve of node 1 + reserve of node 2 + ...        no leader known yet: all is common

Source: BufferPool in Apache Kafka, without its lock; waiting is the business of `waiting_lines.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Final

from aioproducer._native.memory import Chunk

SMALLEST_CHUNK: Final = 1024
_COMMON: Final = None  # where a loan counts that no reserve carries
_UNPACKING: Final = -(2**40)  # and one beside `buffer.memory`; no node has this id
_BATCHES_IN_ROOMY_MEMORY: Final = 16
UNPACKED_BATCHES: Final = 2
"""Of the largest size, beside `buffer.memory`: compressed batches that must be taken apart while it is full."""


class BufferPool:
    """Lends chunks within a bound.

    Args:
        total_bytes: `buffer.memory`.
        batch_size: bytes of the largest chunk that is kept for the next use.
        on_return: called each time bytes come back; must only note it, since it may run while a transport lets go.
    """

    def __init__(self, total_bytes: int, batch_size: int, *, on_return: Callable[[], None]) -> None:
        """Start with everything unallocated and common: no node has a reserve."""
        self.total_bytes = total_bytes
        self.is_roomy = total_bytes >= _BATCHES_IN_ROOMY_MEMORY * batch_size
        """Whether one batch is a small part of it: then memory may be kept together for one."""
        self.lent_bytes = 0
        """In batches that are not answered yet."""
        self._on_return = on_return
        self._sizes = _chunk_sizes(batch_size)
        self._free: dict[int, list[Chunk]] = {size: [] for size in self._sizes}
        self._free_bytes = 0
        self._lent: dict[Chunk, int | None] = {}
        self._holders: dict[Chunk, int] = {}
        self._used: dict[int | None, int] = {_COMMON: 0, _UNPACKING: 0}
        self._unpacking_limit = UNPACKED_BATCHES * batch_size
        self._common_limit = total_bytes
        self._reserve_limit = 0
        self._nodes: frozenset[int] = frozenset()

    # The bound

    def set_nodes(self, node_ids: Collection[int]) -> None:
        """Divide the reserves among the nodes that lead topics in use; what is lent stays lent."""
        nodes = frozenset(node_ids)
        if nodes == self._nodes:
            return
        self._nodes = nodes
        divided = bool(nodes)
        self._common_limit = self.total_bytes - self.total_bytes // 4 if divided else self.total_bytes
        reserve = (self.total_bytes - self._common_limit) // len(nodes) if divided else 0
        self._reserve_limit = max(reserve, SMALLEST_CHUNK) if divided else 0
        for node_id in nodes:
            self._used.setdefault(node_id, 0)

    # Lending

    def try_lend(self, size: int, node_id: int | None, *, may_use_common: bool = True) -> Chunk | None:
        """Lend a chunk of at least `size` bytes.

        Args:
            size: bytes.
            node_id: leads the partition it is for; its reserve is asked after the common memory.
            may_use_common: whether to ask the common memory at all.

        Returns:
            None: no room now.
        """
        capacity = self.capacity_for(size)
        if self.lent_bytes + capacity > self.total_bytes:
            return None
        if may_use_common and self._used[_COMMON] + capacity <= self._common_limit:
            payer = _COMMON
        elif node_id is not _COMMON and self._used.get(node_id, 0) + capacity <= self._limit_of(node_id):
            payer = node_id
        else:
            return None
        chunk = self._chunk(capacity)
        self._lent[chunk] = payer
        self._count(payer, capacity)
        return chunk

    def lend_for_unpacking(self, size: int, node_id: int | None) -> Chunk | None:
        """Lend what a compressed batch is unpacked into; where the memory is full, beside it.

        What is lent gives nothing back before the batch is sent, so waiting for memory might be waiting for itself.

        Returns:
            None: no room there either, now.
        """
        chunk = self.try_lend(size, node_id)
        if chunk is None and self._used[_UNPACKING] + size <= self._unpacking_limit:
            chunk = Chunk(size)
            self._lent[chunk] = _UNPACKING
            self._count(_UNPACKING, size)
        return chunk

    def share(self, chunk: Chunk, holders: int) -> None:
        """Let `holders` batches hold the chunk: it is back when each of them has given it back."""
        self._holders[chunk] = self._holders.get(chunk, 1) + holders - 1

    def give_back(self, chunk: Chunk) -> None:
        """Take the chunk back as soon as no memoryview of it is alive; until then its bytes count."""
        holders = self._holders.pop(chunk, 1)
        if holders > 1:
            self._holders[chunk] = holders - 1
            return
        # Neither the response nor the end of a request frees memory: only the last view does (KAFKA-19012).
        chunk.when_returned(self._returned)

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
        self._on_return()
        return smaller

    def _copy_out(self, chunk: Chunk, data: bytes) -> Chunk | None:
        payer, size = self._lent[chunk], max(len(data), 1)
        is_full = payer != _UNPACKING and self.lent_bytes + size > self.total_bytes
        if is_full or self._used[payer] + size > self._limit_of(payer):
            return None
        if payer != _UNPACKING:
            self._shrink_free_lists(self.unallocated_bytes - size)
        own = Chunk(size)
        own.fill(data)
        self._lent[own] = payer
        self._count(payer, size)
        self.give_back(chunk)
        return own

    def capacity_for(self, size: int) -> int:
        """The bytes that a loan of `size` bytes takes from the bound."""
        index = bisect_left(self._sizes, size)
        return self._sizes[index] if index < len(self._sizes) else size

    # What there is

    @property
    def free_bytes(self) -> int:
        """Bytes in chunks that wait for their next use."""
        return self._free_bytes

    @property
    def unallocated_bytes(self) -> int:
        """Bytes that no chunk was made of yet."""
        return self.total_bytes - self.lent_bytes - self._free_bytes

    @property
    def available_bytes(self) -> int:
        """Bytes that are not lent: free and unallocated ones."""
        return self.total_bytes - self.lent_bytes

    def __repr__(self) -> str:
        return f"<BufferPool lent={self.lent_bytes} free={self._free_bytes} total={self.total_bytes}>"

    # Inside

    def _limit_of(self, payer: int | None) -> int:
        if payer is _COMMON:
            return self._common_limit
        if payer == _UNPACKING:
            return self._unpacking_limit
        return self._reserve_limit if payer in self._nodes else 0

    def _count(self, payer: int | None, size: int) -> None:
        self._used[payer] += size
        if payer != _UNPACKING:
            self.lent_bytes += size

    def _chunk(self, capacity: int) -> Chunk:
        # With glibc the free lists spare a fifth for small chunks; with an allocator that maps each large block, half.
        free = self._free.get(capacity)
        if free:
            self._free_bytes -= capacity
            return free.pop()
        self._shrink_free_lists(self.unallocated_bytes - capacity)
        return Chunk(capacity)

    def _shrink_free_lists(self, spare: int) -> None:
        """Free chunks of other sizes while `spare`, what would be left unallocated, is negative; largest first."""
        for size in reversed(self._sizes):
            chunks = self._free[size]
            while spare < 0 and chunks:
                chunks.pop()
                self._free_bytes -= size
                spare += size

    def _returned(self, chunk: Chunk) -> None:
        if getattr(self, "_lent", None) is None:
            return  # the whole producer is being collected, and the pool was before the chunk
        payer = self._lent.pop(chunk)
        self._count(payer, -chunk.capacity)
        self._keep(chunk)
        self._on_return()

    def _keep(self, chunk: Chunk) -> None:
        free = self._free.get(chunk.capacity)
        if free is not None and not chunk.exports and self.unallocated_bytes >= chunk.capacity:
            free.append(chunk)
            self._free_bytes += chunk.capacity


def _chunk_sizes(batch_size: int) -> tuple[int, ...]:
    sizes = [SMALLEST_CHUNK]
    while sizes[-1] * 2 <= batch_size:
        sizes.append(sizes[-1] * 2)
    if batch_size > sizes[-1]:
        sizes.append(batch_size)
    return tuple(sizes)
