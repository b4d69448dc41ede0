"""Every decoder of foreign bytes in the package, with whole messages to damage."""

import contextlib
import functools
import struct
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aioproducer._native.memory import Chunk
from aioproducer._native.record_check import check_records
from aioproducer._native.renumber import record_starts, renumber_records
from aioproducer._protocol.compression import CompressionType, compress, decompress
from aioproducer._protocol.handshake import handshake
from aioproducer.errors import BrokerError, ProtocolError, SerializationError, UnsupportedVersionError
from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.exchange import read_payload, read_request_header
from aioproducer.testing.fake_broker.log import record_batch
from aioproducer.testing.fake_broker.log.batch_checks import BatchRefusedError, accepted_batch, single_batch
from aioproducer.testing.fake_broker.log.record_batch import HEADER_SIZE, checksum, decode_records
from aioproducer.testing.fake_broker.topics.config_values import TOPIC_CONFIG_DEFAULTS
from aioproducer.testing.fake_broker.topics.topic_configs import TopicConfig
from aioproducer.testing.fake_broker.version_profiles import PROFILES
from aioproducer.testing.fake_broker.wire.messages import decode_request
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError, Reader
from aioproducer.testing.fake_broker.wire.produce_wire import decode_produce
from tests.fakes.scripted_broker import SPOKEN, api_versions_body
from tests.programs.fuzz.answers import answers
from tests.programs.fuzz.conversations import states
from tests.programs.fuzz.message_samples import BATCH, sample

CRC_AT = 17
TOPIC = TopicConfig({}, TOPIC_CONFIG_DEFAULTS)
ANY_TIME = {"base_timestamp": 0, "low": -(2**63), "high": 2**63 - 1}
PACKED = b"a record, " * 50
SPOKEN_V0 = bytes.fromhex("0000 00000002 0000 0003 000d 0003 0000 000c")
ANSWER_35 = bytes.fromhex("0023 00000001 0012 0000 0002")
"""ApiVersions 0, of a broker that does not know the version it was asked in."""


class Decoder(NamedTuple):
    name: str
    whole: bytes
    decode: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...]  # exceptions that it may raise; any other is a defect

    def check(self, payload: bytes) -> None:
        """Decode; say which bytes it were, if anything else than a promised error comes out."""
        try:
            with contextlib.suppress(*self.refuses):
                self.decode(payload)
        except BaseException:
            print(f"{self.name} does not refuse {payload.hex()}", file=sys.stderr)
            raise


def _answers() -> Iterator[Decoder]:
    for answer in answers():
        yield Decoder(answer.name, answer.whole, answer.decode, (ProtocolError,))


def _shake_hands(payload: bytes) -> None:
    steps = handshake("1.0")
    next(steps)
    try:
        steps.send(memoryview(payload))
        steps.send(memoryview(SPOKEN_V0))
    except StopIteration:
        return


def _handshake() -> Iterator[Decoder]:
    refuses = (ProtocolError, BrokerError, UnsupportedVersionError)
    yield Decoder("handshake", api_versions_body(SPOKEN), _shake_hands, refuses)
    yield Decoder("handshake of an old broker", ANSWER_35, _shake_hands, refuses)


def _compression() -> Iterator[Decoder]:
    for codec in CompressionType:
        whole = compress(codec, None, PACKED)
        yield Decoder(f"decompress {codec.name}", whole, functools.partial(decompress, codec), (SerializationError,))
        broker = functools.partial(record_batch.decompress, codec.value)
        yield Decoder(f"decompress {codec.name} as a broker", whole, broker, (ValueError,))


def _records() -> Iterator[Decoder]:
    section = BATCH[HEADER_SIZE:]
    yield Decoder("check_records", section, lambda data: check_records(data, 2, **ANY_TIME), (ValueError,))
    yield Decoder("record_starts", section, lambda data: record_starts(data, 2), (ValueError,))
    yield Decoder("renumber_records", section, _renumber, (ValueError,))
    yield Decoder("accepted_batch", BATCH, _accept, (BatchRefusedError,))


def _renumber(data: bytes) -> object:
    chunk = Chunk(max(len(data), 1))  # its end is the end of what may be touched
    chunk.fill(data)
    return renumber_records(chunk, 0, 0, 2)


def _accept(data: bytes) -> object:
    repaired = bytearray(data)
    if len(repaired) >= HEADER_SIZE:  # or the checksum would keep all damage from what comes behind it
        struct.pack_into(">I", repaired, CRC_AT, checksum(repaired))
    batch = single_batch(memoryview(repaired), 13)
    kept = accepted_batch(batch, TOPIC, wall_clock_ms=1_700_000_000_000, partition_name="t-0")
    return decode_records(kept)


def _requests() -> Iterator[Decoder]:
    versions = PROFILES["4.3.1"].versions
    for api, (lowest, highest) in versions.items():
        for version in range(3 if api is ApiKey.PRODUCE else lowest, highest + 1):
            whole = sample(api.schema_name, version, "request")
            decode = functools.partial(_read_request, api, version)
            yield Decoder(f"{api.schema_name} request v{version}", whole, decode, (MalformedRequestError,))
    header = b"\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x02me\x00"
    yield Decoder("request header", header, _read_header, (MalformedRequestError,))


def _read_request(api: ApiKey, version: int, data: bytes) -> object:
    payload = memoryview(data)
    if api is ApiKey.PRODUCE:
        return decode_produce(Reader(payload, flexible=api.is_flexible(version)), version)
    return decode_request(api, version, payload)


def _read_header(data: bytes) -> object:
    header, reader = read_request_header(memoryview(data))
    return bytes(read_payload(ApiKey.METADATA, header, reader))


def _conversations() -> Iterator[Decoder]:
    for state in states():
        yield Decoder(*state)


@functools.cache
def decoders() -> dict[str, Decoder]:
    every = [*_answers(), *_handshake(), *_conversations(), *_compression(), *_records(), *_requests()]
    return {decoder.name: decoder for decoder in every}
