"""Chunks that several batches hold, which a batch was taken apart into: what of them is exchanged, and when."""

from aioproducer._accumulator.buffer_pool import BufferPool
from aioproducer._native.memory import Chunk

BATCH = 16 * 1024


def pool_of(total: int) -> BufferPool:
    return BufferPool(total, BATCH, on_return=lambda: None)


def lend(pool: BufferPool, size: int) -> Chunk:
    chunk = pool.try_lend(size, None)
    assert chunk is not None
    return chunk


def test_shared_chunk_is_exchanged_for_one_holder_alone() -> None:
    """The shared chunk stays for the other parts, and both count; without room for both nothing happens."""
    pool = BufferPool(4096, 2048, on_return=lambda: None)
    chunk = pool.try_lend(2048, None)
    assert chunk is not None
    pool.share(chunk, 2)

    own = pool.replace(chunk, bytes(500))
    assert own is not None
    assert (pool.lent_bytes, own.capacity) == (2548, 500)
    pool.give_back(own)
    pool.give_back(chunk)
    assert pool.lent_bytes == 0


def test_shared_chunk_is_not_exchanged_without_room() -> None:
    pool = BufferPool(2048, 2048, on_return=lambda: None)
    chunk = pool.try_lend(2048, None)
    assert chunk is not None
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
