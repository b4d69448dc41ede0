"""Compression of record batches, in the framings that Kafka's brokers and consumers read.

    gzip     RFC 1952
    snappy   the blocks of the xerial library: a header, then (size int32, raw snappy) for each 32 KiB
    lz4      the LZ4 frame format with independent blocks: Java's reader refuses linked ones
    zstd     one frame

The producer only unpacks its own batches, to split them.

Source: CompressionType and KafkaLZ4BlockOutputStream in Apache Kafka, SnappyOutputStream of snappy-java, KIP-110,
KIP-390.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import cramjam

from aioproducer.errors import SerializationError

if TYPE_CHECKING:
    from aioproducer._protocol.produce import Buffer

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)  # version, oldest reader that understands it
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32 = struct.Struct(">i")

_KAFKA_LZ4_DEFAULT: Final = 9  # Kafka's number of the fast compressor; not a level of the frame format
_LZ4_FAST: Final = 0
_LZ4_SLOWEST: Final = 12  # Kafka allows 1 to 17; the library's scale ends here
_GZIP_DEFAULT: Final = 6  # Kafka's -1, which the library does not accept
_ZSTD_DEFAULT: Final = 3


class CompressionType(enum.IntEnum):
    """A codec; its number is in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: CompressionType, level: int | None, data: Buffer) -> bytes:
    """Pack the records section of a batch.

    Args:
        level: on Kafka's scale of the codec (gzip 1 to 9 or -1, lz4 1 to 17, zstd -131072 to 22); None for its default.
            Ignored by snappy.
    """
    return _PACK[codec](data, level)


def decompress(codec: CompressionType, data: Buffer) -> bytes:
    """Unpack the output of `compress`."""
    try:
        return _UNPACK[codec](data)
    except (cramjam.DecompressionError, struct.error, ValueError) as error:
        raise SerializationError(f"a batch packed with {codec.name.lower()} cannot be unpacked: {error}") from error


def _pack_gzip(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.gzip.compress(data, _GZIP_DEFAULT if level in {None, -1} else level))


def _pack_snappy(data: Buffer, _level: int | None) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _pack_lz4(data: Buffer, level: int | None) -> bytes:
    speed = _LZ4_FAST if level in (None, _KAFKA_LZ4_DEFAULT) else min(level, _LZ4_SLOWEST)
    compressor = cramjam.lz4.Compressor(level=speed, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # takes no view
    return bytes(compressor.finish())


def _pack_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, _ZSTD_DEFAULT if level is None else level))


def _unpack_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_HEADER)] != _XERIAL_HEADER:
        raise ValueError("no xerial header")
    position = len(_XERIAL_HEADER)
    blocks: list[bytes] = []
    while position < len(view):
        (size,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        blocks.append(bytes(cramjam.snappy.decompress_raw(view[position : position + size])))
        position += size
    return b"".join(blocks)


_PACK: Final[Mapping[CompressionType, Callable[[Buffer, int | None], bytes]]] = {
    CompressionType.NONE: lambda data, _: bytes(data),
    CompressionType.GZIP: _pack_gzip,
    CompressionType.SNAPPY: _pack_snappy,
    CompressionType.LZ4: _pack_lz4,
    CompressionType.ZSTD: _pack_zstd,
}
_UNPACK: Final[Mapping[CompressionType, Callable[[Buffer], bytes]]] = {
    CompressionType.NONE: bytes,
    CompressionType.GZIP: lambda data: bytes(cramjam.gzip.decompress(data)),
    CompressionType.SNAPPY: _unpack_snappy,
    CompressionType.LZ4: lambda data: bytes(cramjam.lz4.decompress(data)),
    CompressionType.ZSTD: lambda data: bytes(cramjam.zstd.decompress(data)),
}
