"""The buffer pool lends chunks of memory, and gets them back from every holder."""

import gc
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from aioproducer._accumulator.buffer_pool import SMALLEST_CHUNK, Account, BufferPool
from aioproducer._native.memory import Chunk

TOTAL = 64 * 1024
BATCH = 8 * 1024


def pool_of(total: int = TOTAL, *, reserves: Sequence[Account] = (), batch_size: int = BATCH) -> BufferPool:
    pool = BufferPool(total, batch_size, on_return=lambda: None)
    pool.divide_reserves(reserves)
    return pool


def awaited_pool() -> tuple[BufferPool, list[str]]:
    """A pool for which records wait, and a note for each time that memory came back."""
    returns: list[str] = []
    pool = BufferPool(TOTAL, BATCH, on_return=lambda: returns.append("memory"))
    pool.is_awaited = True
    return pool, returns


def lend(pool: BufferPool, size: int, reserve: Account | None = None) -> Chunk:
    chunk = pool.try_lend(size, reserve)
    assert chunk is not None
    return chunk


def take_all(pool: BufferPool, reserve: Account | None, *, may_use_common: bool = True) -> int:
    """Lend to one node until nothing is left for it; the bytes it got."""
    taken = 0
    while pool.try_lend(SMALLEST_CHUNK, reserve, may_use_common=may_use_common) is not None:
        taken += SMALLEST_CHUNK
    return taken


@pytest.mark.parametrize(
    "size, capacity", [(1, 1024), (1024, 1024), (1025, 2048), (8192, 8192), (8193, 8193), (50_000, 50_000)]
)
def test_loan_is_the_next_power_of_two_and_a_large_one_is_exact(size: int, capacity: int) -> None:
    pool = pool_of()

    assert lend(pool, size).capacity == capacity
    assert (pool.lent_bytes, pool.capacity_for(size)) == (capacity, capacity)


def test_batch_size_not_a_power_of_two_has_its_own_free_list() -> None:
    pool = pool_of(batch_size=5000)

    pool.give_back(lend(pool, 4097))

    assert pool.free_bytes == 5000


def test_nothing_is_lent_beyond_the_total() -> None:
    pool = pool_of(3 * SMALLEST_CHUNK + 1)

    assert take_all(pool, 1) == 3 * SMALLEST_CHUNK
    assert (pool.try_lend(1, None), pool.available_bytes) == (None, 1)


def test_record_larger_than_the_whole_memory_is_never_lent() -> None:
    assert pool_of().try_lend(TOTAL + 1, None) is None


def test_chunk_given_back_is_used_again() -> None:
    pool = pool_of()
    first = lend(pool, 2048)
    pool.give_back(first)

    assert (pool.lent_bytes, pool.free_bytes) == (0, 2048)
    assert lend(pool, 2000) is first
    assert pool.free_bytes == 0


def test_chunk_that_a_transport_still_reads_is_not_lent_again() -> None:
    """The chunk's bytes count until its last view is gone; then the pool is notified."""
    pool, returns = awaited_pool()
    chunk = lend(pool, 2048)
    view = memoryview(chunk)[10:20]

    pool.give_back(chunk)
    assert (pool.lent_bytes, len(returns)) == (2048, 0)
    assert lend(pool, 2048) is not chunk
    view.release()

    assert (pool.lent_bytes, len(returns)) == (2048, 1)
    assert lend(pool, 2048) is chunk


def test_memory_is_lent_again_when_the_transport_lets_go() -> None:
    pool = pool_of(SMALLEST_CHUNK)
    chunk = lend(pool, 1)
    view = memoryview(chunk)
    pool.give_back(chunk)

    assert pool.try_lend(1, None) is None
    view.release()
    assert pool.try_lend(1, None) is chunk


def test_large_chunk_is_freed_at_once() -> None:
    pool = pool_of()

    pool.give_back(lend(pool, BATCH + 1))

    assert (pool.free_bytes, pool.unallocated_bytes) == (0, TOTAL)


@pytest.mark.parametrize("size", [TOTAL, BATCH])
def test_free_chunks_of_other_sizes_make_way(size: int) -> None:
    """No more of them than must."""
    pool = pool_of()
    for chunk in [lend(pool, SMALLEST_CHUNK) for _ in range(TOTAL // SMALLEST_CHUNK)]:
        pool.give_back(chunk)
    assert pool.free_bytes == TOTAL

    lend(pool, size)

    assert (pool.free_bytes, pool.lent_bytes, pool.unallocated_bytes) == (TOTAL - size, size, 0)


def test_shared_chunk_is_back_when_every_part_gave_it_back() -> None:
    pool = pool_of()
    chunk = lend(pool, 2048)
    pool.share(chunk, 2)
    pool.share(chunk, 3)

    for _ in range(3):
        pool.give_back(chunk)
        assert pool.lent_bytes == 2048
    pool.give_back(chunk)

    assert pool.lent_bytes == 0


def test_compressed_batch_gives_back_what_it_no_longer_needs() -> None:
    pool, returns = awaited_pool()
    chunk = lend(pool, BATCH)

    smaller = pool.replace(chunk, b"compressed")

    assert (bytes(smaller), pool.lent_bytes, pool.free_bytes, len(returns)) == (b"compressed", 10, BATCH, 1)
    pool.give_back(smaller)
    assert (pool.lent_bytes, pool.free_bytes) == (0, BATCH)


def test_replaced_chunk_that_is_still_read_is_not_kept() -> None:
    pool = pool_of()
    chunk = lend(pool, BATCH)

    with memoryview(chunk):
        pool.replace(chunk, b"c")

    assert pool.free_bytes == 0


def test_silent_node_leaves_other_nodes_their_reserve() -> None:
    """A silent node gets the common three quarters and its own part of the last."""
    silent, other = reserves = [Account(), Account()]
    pool = pool_of(reserves=reserves)

    assert take_all(pool, silent) == TOTAL * 3 // 4 + TOTAL // 8
    assert take_all(pool, other) == TOTAL // 8
    assert pool.available_bytes == 0


def test_single_node_may_take_everything() -> None:
    pool = pool_of(reserves=[only := Account()])

    assert take_all(pool, only) == TOTAL


@pytest.mark.parametrize("reserve", [None, Account()], ids=["no leader", "leads nothing in use"])
def test_partition_of_no_known_leader_lives_on_the_common_memory(reserve: Account | None) -> None:
    """A reserve belongs to a node that leads topics in use."""
    assert take_all(pool_of(reserves=[Account(), Account()]), reserve) == TOTAL * 3 // 4


def test_claimed_common_memory_leaves_a_node_its_reserve() -> None:
    pool = pool_of(reserves=[own := Account(), Account()])

    assert take_all(pool, own, may_use_common=False) == TOTAL // 8
    assert pool.try_lend(SMALLEST_CHUNK, None, may_use_common=False) is None


def test_reserve_of_many_nodes_is_at_least_a_chunk() -> None:
    reserves = [Account() for _ in range(1000)]
    pool = pool_of(reserves=reserves)
    take_all(pool, reserves[0])

    assert pool.try_lend(SMALLEST_CHUNK, reserves[1]) is not None


def test_node_that_leads_nothing_gives_its_reserve_back() -> None:
    """Memory lent to the node stays lent, and is free for all when it is returned."""
    former, left = reserves = [Account(), Account()]
    pool = pool_of(reserves=reserves)
    held = [lend(pool, BATCH, former) for _ in range(7)]
    pool.divide_reserves([left])

    assert take_all(pool, left) == TOTAL - 7 * BATCH
    pool.give_back(held[-1])

    assert take_all(pool, left) == BATCH


class Owner:
    """A producer in short: its pool notifies it of returns, and its transport holds bytes and refers to itself."""

    def __init__(self) -> None:
        self.pool = BufferPool(TOTAL, BATCH, on_return=self.note)
        self.pool.is_awaited = True
        self.transport: list[object] = []
        chunk = lend(self.pool, 1)
        self.transport += (self.transport, memoryview(chunk))
        self.pool.give_back(chunk)

    def note(self) -> None:
        """Bytes came back."""


def test_pool_collected_before_its_readers_raises_nothing() -> None:
    """The parts of an unclosed producer are freed in any order; pytest fails on what is raised then."""
    owners = [Owner() for _ in range(3)]

    owners.clear()

    assert gc.collect() > 0


class AnyUse(RuleBasedStateMachine):
    """Batches come and go in any order, some of them split, compressed, or read for long."""

    chunks = Bundle("chunks")

    def __init__(self) -> None:
        super().__init__()
        self.reserves = [Account() for _ in range(4)]
        self.pool = pool_of(reserves=self.reserves[:3])
        self.held: dict[Chunk, int] = {}
        self.shared: set[Chunk] = set()
        self.views: list[tuple[Chunk, memoryview]] = []

    @rule(target=chunks, size=st.integers(1, TOTAL // 2), node=st.sampled_from((None, 0, 1, 2, 3)))
    def lend(self, size: int, node: int | None) -> Chunk | None:
        """Return a chunk without other holders or readers, or None."""
        chunk = self.pool.try_lend(size, None if node is None else self.reserves[node])
        if chunk is not None:
            assert chunk not in self.held
            assert chunk.exports == 0
            self.held[chunk] = 1
        return chunk

    @rule(chunk=chunks, holders=st.integers(2, 3))
    def share(self, chunk: Chunk | None, holders: int) -> None:
        if chunk in self.held:
            self.pool.share(chunk, holders)
            self.held[chunk] += holders - 1
            self.shared.add(chunk)

    @rule(chunk=chunks)
    def give_back(self, chunk: Chunk | None) -> None:
        if chunk in self.held:
            self.pool.give_back(chunk)
            self.held[chunk] -= 1
            if not self.held[chunk]:
                del self.held[chunk]
                self.shared.discard(chunk)

    @rule(target=chunks, chunk=consumes(chunks), size=st.integers(0, SMALLEST_CHUNK))
    def replace(self, chunk: Chunk | None, size: int) -> Chunk | None:
        """A batch is compressed; the parts of one that was split never are."""
        if chunk is None or chunk not in self.held or chunk in self.shared or chunk.exports:
            return chunk
        del self.held[chunk]
        smaller = self.pool.replace(chunk, bytes(size))
        self.held[smaller] = 1
        return smaller

    @rule(chunk=chunks)
    def read(self, chunk: Chunk | None) -> None:
        if chunk in self.held:
            self.views.append((chunk, memoryview(chunk)))

    @rule()
    def let_go(self) -> None:
        if self.views:
            self.views.pop(0)[1].release()

    @rule(nodes=st.frozensets(st.integers(0, 3)))
    def follow(self, nodes: frozenset[int]) -> None:
        self.pool.divide_reserves(self.reserves[node] for node in nodes)

    @invariant()
    def bound_holds(self) -> None:
        """Lent bytes are those of the chunks that are held or read, and never more than the total."""
        chunks = {*self.held, *(chunk for chunk, _ in self.views)}
        assert self.pool.lent_bytes == sum(chunk.capacity for chunk in chunks) <= TOTAL
        assert self.pool.lent_bytes + self.pool.free_bytes + self.pool.unallocated_bytes == TOTAL
        assert min(self.pool.free_bytes, self.pool.unallocated_bytes) >= 0

    def teardown(self) -> None:
        for chunk, holders in self.held.items():
            for _ in range(holders):
                self.pool.give_back(chunk)
        for _, view in self.views:
            view.release()
        assert self.pool.available_bytes == TOTAL


AnyUse.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestBoundHoldsInAnyOrderOfUse = AnyUse.TestCase


# Chunks that several batches hold, which a batch was taken apart into: what of them is exchanged, and when


def test_shared_chunk_is_exchanged_for_one_holder_alone() -> None:
    """The shared chunk stays for the other parts, and both count; without room for both nothing happens."""
    pool = pool_of(4096, batch_size=2048)
    chunk = lend(pool, 2048)
    pool.share(chunk, 2)

    own = pool.replace(chunk, bytes(500))
    assert own is not None
    assert (pool.lent_bytes, own.capacity) == (2548, 500)
    pool.give_back(own)
    pool.give_back(chunk)
    assert pool.lent_bytes == 0


def test_shared_chunk_is_not_exchanged_without_room() -> None:
    pool = pool_of(2048, batch_size=2048)
    chunk = lend(pool, 2048)
    pool.share(chunk, 2)

    assert pool.replace(chunk, bytes(500)) is None
    assert pool.lent_bytes == 2048


def test_last_holder_of_a_shared_chunk_exchanges_it_as_its_own() -> None:
    pool = pool_of(BATCH)
    chunk = lend(pool, BATCH)
    pool.share(chunk, 2)
    pool.give_back(chunk)

    smaller = pool.replace(chunk, b"compressed")

    assert smaller is not None
    assert pool.lent_bytes == 10
    pool.give_back(smaller)
    assert pool.lent_bytes == 0


def test_chunk_read_by_a_transport_stays_lent() -> None:
    """The bytes count until the transport lets go, so a full memory has no room for others."""
    pool = pool_of(BATCH)
    chunk = lend(pool, BATCH)
    pool.share(chunk, 2)
    view = memoryview(chunk)
    pool.give_back(chunk)

    assert pool.replace(chunk, b"compressed") is None
    view.release()
    assert pool.replace(chunk, b"compressed") is not None


def test_copy_of_a_shared_chunk_takes_no_memory_beyond_the_bound() -> None:
    pool = pool_of(4 * BATCH)
    chunks = [lend(pool, BATCH) for _ in range(4)]
    pool.share(chunks[0], 2)
    for chunk in chunks[1:]:
        pool.give_back(chunk)

    assert pool.replace(chunks[0], bytes(BATCH // 2)) is not None

    assert pool.lent_bytes + pool.free_bytes <= pool.total_bytes


def test_part_unpacked_beside_full_memory_is_compressed_there() -> None:
    """Uncompressed, the part would be too large for the broker again."""
    pool = pool_of(4 * BATCH)
    while pool.try_lend(BATCH, None) is not None:
        pass
    unpacked = pool.lend_for_unpacking(BATCH, None)
    assert unpacked is not None
    pool.share(unpacked, 2)

    assert pool.replace(unpacked, b"compressed") is not None
