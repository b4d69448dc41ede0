"""Codecs, read by other readers than our own."""

import random

import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._protocol.compression import CompressionType, compress, decompress
from aioproducer.errors import SerializationError

CODECS = list(CompressionType)
READERS = {
    CompressionType.GZIP: aiokafka_codec.gzip_decode,
    CompressionType.SNAPPY: aiokafka_codec.snappy_decode,
    CompressionType.LZ4: aiokafka_codec.lz4_decode,
    CompressionType.ZSTD: aiokafka_codec.zstd_decode,
}
LEVELS = {CompressionType.GZIP: (-1, 1, 9), CompressionType.LZ4: (1, 9, 17), CompressionType.ZSTD: (-131_072, 3, 22)}
LONG = b"hello kafka " * 20_000


@given(st.sampled_from(CODECS), st.sampled_from([None, 1, 9]), st.binary(max_size=500))
def test_compressed_bytes_are_decompressed(codec: CompressionType, level: int | None, data: bytes) -> None:
    assert decompress(codec, compress(codec, level, memoryview(data))) == data


@pytest.mark.parametrize("codec", READERS)
@pytest.mark.parametrize("size", [1, 32 * 1024, 32 * 1024 + 1, len(LONG)])
def test_other_readers_understand_it(codec: CompressionType, size: int) -> None:
    assert READERS[codec](compress(codec, None, LONG[:size])) == LONG[:size]


def test_batch_that_is_not_packed_is_the_same_bytes() -> None:
    assert decompress(CompressionType.NONE, compress(CompressionType.NONE, None, memoryview(LONG))) == LONG


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses linked ones: bit 5 of the frame's flags."""
    packed = compress(CompressionType.LZ4, None, LONG)

    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20


def test_levels_matter_where_there_are_some() -> None:
    """A higher one is smaller or equal; Kafka's 17 for lz4 is more than the library's scale has."""
    words = random.Random(1).choices([b"alpha ", b"beta ", b"gamma ", b"delta ", b"epsilon "], k=20_000)
    data = b"".join(words)

    assert len(compress(CompressionType.GZIP, 9, data)) < len(compress(CompressionType.GZIP, 1, data))
    assert len(compress(CompressionType.LZ4, 17, data)) < len(compress(CompressionType.LZ4, None, data))
    assert len(compress(CompressionType.ZSTD, 19, data)) < len(compress(CompressionType.ZSTD, -50, data))


@pytest.mark.parametrize("codec, level", [(codec, level) for codec, levels in LEVELS.items() for level in levels])
def test_first_and_last_level_of_kafkas_scale_are_taken(codec: CompressionType, level: int) -> None:
    """Also the number of the default level: a codec that refused it would silently not compress."""
    assert READERS[codec](compress(codec, level, LONG[:2000])) == LONG[:2000]


@pytest.mark.parametrize("codec", READERS)
def test_garbage_is_refused(codec: CompressionType) -> None:
    with pytest.raises(SerializationError, match=codec.name.lower()):
        decompress(codec, b"garbage" * 10)


def test_codecs_have_kafkas_names_and_numbers() -> None:
    assert [CompressionType[name] for name in ("NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD")] == [0, 1, 2, 3, 4]
