"""Every decoder of foreign bytes in the package, with whole messages to damage.

A response that the package reads has one row with its reader, which a test holds complete. Messages have something in
every field, and are written by the encoder that is generated from Kafka's schemas.
"""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import functools
import io
import ssl
import struct
import sys
import typing
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import NamedTuple

from aioproducer._native.memory import Chunk
from aioproducer._native.record_check import check_records
from aioproducer._native.renumber import record_starts, renumber_records
from aioproducer._network.proxy import Proxy, ProxyError, ask
from aioproducer._protocol.api_versions import ApiVersions, handshake
from aioproducer._protocol.compression import CompressionType, compress, decompress
from aioproducer._protocol.messages import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Api,
    decode_api_versions_response,
    decode_init_producer_id_response,
    decode_metadata_response,
)
from aioproducer._protocol.produce import decode_produce_response
from aioproducer._protocol.sasl_exchange import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Bearer,
    BearerWanted,
    Mechanism,
    Message,
    PasswordWanted,
    RefusedError,
    SaltedPasswordWanted,
    decode_sasl_authenticate_response,
    decode_sasl_handshake_response,
    exchange,
)
from aioproducer._protocol.sasl_mechanisms import OAuthBearer, Plain, Scram
from aioproducer._protocol.telemetry_messages import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    decode_get_telemetry_subscriptions_response,
    decode_push_telemetry_response,
)
from aioproducer._protocol.topic_admin_messages import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    decode_create_topics_response,
    decode_delete_topics_response,
    decode_describe_configs_response,
    decode_topics_response,
)
from aioproducer._protocol.transaction_admin_messages import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
    decode_all_descriptions,
    decode_describe_producers_response,
    decode_describe_transactions_response,
    decode_list_transactions_response,
    decode_write_txn_markers_response,
)
from aioproducer._protocol.transaction_messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    decode_add_offsets_response,
    decode_add_partitions_response,
    decode_end_txn_response,
    decode_find_coordinator_response,
    decode_find_coordinators_response,
    decode_offset_fetch_response,
    decode_txn_offset_commit_response,
)
from aioproducer.errors import (
    AuthenticationError,
    BrokerError,
    ProtocolError,
    SerializationError,
    TlsError,
    UnsupportedVersionError,
)
from aioproducer.testing import ApiKey
from aioproducer.testing.fake_broker.apis.produce import decode_produce
from aioproducer.testing.fake_broker.exchange import read_payload, read_request_header
from aioproducer.testing.fake_broker.log import record_batch
from aioproducer.testing.fake_broker.log.batch_checks import BatchRefusedError, accepted_batch, single_batch
from aioproducer.testing.fake_broker.log.record_batch import HEADER_SIZE, checksum, decode_records
from aioproducer.testing.fake_broker.topic_configs import TOPIC_CONFIG_DEFAULTS, TopicConfig
from aioproducer.testing.fake_broker.version_profiles import PROFILES
from aioproducer.testing.fake_broker.wire.messages import decode_request, message_class
from aioproducer.testing.fake_broker.wire.primitives import MalformedRequestError, Reader
from tests.fakes.sasl_broker import verdict
from tests.fakes.scripted_broker import SPOKEN, api_versions_body
from tests.fakes.tls_peer import Scene, TlsPeer, server_context
from tests.reference.record_batch import Batch, Record, encode_batch
from tests.reference.scram_server import ScramServer


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


@functools.cache
def decoders() -> dict[str, Decoder]:
    every = [*_answers(), *_handshake(), *_conversations(), *_compression(), *_records(), *_requests()]
    return {decoder.name: decoder for decoder in every}


# Whole messages with something in every field

ELEMENTS = 2  # of every array

BATCH = encode_batch(
    Batch(
        (Record(b"key", b"value", 1_700_000_000_000, (("name", b"x"), ("null", None))),) * 2,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
)

ANY_TEXT = "text"

_VALUES: dict[str, object] = {
    "string": ANY_TEXT,
    "bytes": b"bytes",
    "records": BATCH,
    "bool": True,
    "timedelta_i32": dt.timedelta(milliseconds=5),
    "timedelta_i64": dt.timedelta(milliseconds=5),
    "datetime_i64": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    "uuid": uuid.UUID(int=7),
    "float64": 0.5,
}
"""Sample values by Kafka's name of the type; other numbers are 1."""


@functools.cache
def sample(message: str, version: int, kind: str) -> bytes:
    """A message in one version; `message` as kio spells it ("api_versions"), `kind` "request" or "response"."""
    (api,) = (each for each in ApiKey if each.schema_name == message)
    kind_of_message = message_class(api, version, kind)
    buffer = io.BytesIO()
    import_module("kio.serial").entity_writer(kind_of_message)(buffer, _filled(kind_of_message))
    return buffer.getvalue()


def _filled(kind: type) -> object:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return kind(**{field.name: _value(field, hints[field.name]) for field in fields})


def _value(field: "dataclasses.Field[object]", hint: object) -> object:
    one = _one(str(field.metadata.get("kafka_type", "")), hint)
    return (one,) * ELEMENTS if "tuple" in str(hint) else one


def _one(kafka_type: str, hint: object) -> object:
    nested = next(_dataclasses_in(hint), None)
    if nested is not None:
        return _filled(nested)
    if kafka_type == "error_code":
        return import_module("kio.schema.errors").ErrorCode(0)
    return _VALUES.get(kafka_type, 1)


def _dataclasses_in(hint: object) -> "typing.Iterator[type]":
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for argument in getattr(hint, "__args__", ()):
        yield from _dataclasses_in(argument)


# Responses that the package reads: one row each with its reader, which a test holds complete

ANSWERS: dict[Api, Callable[..., object]] = {
    PRODUCE: decode_produce_response,
    METADATA: functools.partial(decode_metadata_response, from_node=1),
    API_VERSIONS: decode_api_versions_response,
    INIT_PRODUCER_ID: decode_init_producer_id_response,
    FIND_COORDINATOR: functools.partial(decode_find_coordinator_response, key=ANY_TEXT),
    ADD_PARTITIONS_TO_TXN: decode_add_partitions_response,
    ADD_OFFSETS_TO_TXN: decode_add_offsets_response,
    TXN_OFFSET_COMMIT: decode_txn_offset_commit_response,
    END_TXN: decode_end_txn_response,
    LIST_TRANSACTIONS: decode_list_transactions_response,
    CREATE_TOPICS: decode_create_topics_response,
    DELETE_TOPICS: decode_delete_topics_response,
    DESCRIBE_CONFIGS: decode_describe_configs_response,
    SASL_AUTHENTICATE: decode_sasl_authenticate_response,
}
"""Called with version and payload."""

OF_ONE_VERSION: dict[Api, Callable[[bytes], object]] = {
    OFFSET_FETCH: decode_offset_fetch_response,
    DESCRIBE_TRANSACTIONS: functools.partial(decode_describe_transactions_response, transactional_id=ANY_TEXT),
    DESCRIBE_PRODUCERS: decode_describe_producers_response,
    WRITE_TXN_MARKERS: decode_write_txn_markers_response,
    SASL_HANDSHAKE: decode_sasl_handshake_response,
    GET_TELEMETRY_SUBSCRIPTIONS: functools.partial(decode_get_telemetry_subscriptions_response, from_node=1),
    PUSH_TELEMETRY: decode_push_telemetry_response,
}
"""Called with the payload."""

READ_OTHERWISE: dict[str, tuple[Api, Callable[[bytes], object]]] = {
    "all coordinators": (FIND_COORDINATOR, decode_find_coordinators_response),
    "topics with replicas": (METADATA, functools.partial(decode_topics_response, METADATA.max_version)),
    "all transactions": (DESCRIBE_TRANSACTIONS, decode_all_descriptions),
}
"""A second decoder of the same responses: what it reads -> api, and the decoder; called with the payload."""


def _answers() -> Iterator[Decoder]:
    for api, decode in ANSWERS.items():
        for version in range(api.min_version, api.max_version + 1):
            yield _answer(api, version, functools.partial(decode, version))
    for api, decode in OF_ONE_VERSION.items():
        yield _answer(api, api.max_version, decode)
    for what, (api, decode) in READ_OTHERWISE.items():
        answer = _answer(api, api.max_version, decode)
        yield answer._replace(name=f"{what} of {answer.name}")


def _answer(api: Api, version: int, decode: Callable[[bytes], object]) -> Decoder:
    name = ApiKey(api.key).schema_name
    return Decoder(f"{name} v{version}", sample(name, version, "response"), decode, (ProtocolError,))


# Handshakes, record batches and requests

CRC_AT = 17
TOPIC = TopicConfig({}, TOPIC_CONFIG_DEFAULTS)
ANY_TIME = {"base_timestamp": 0, "low": -(2**63), "high": 2**63 - 1}
PACKED = b"a record, " * 50
SPOKEN_V0 = bytes.fromhex("0000 00000002 0000 0003 000d 0003 0000 000c")
ANSWER_35 = bytes.fromhex("0023 00000001 0012 0000 0002")
"""ApiVersions 0, of a broker that does not know the version it was asked in."""


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
    versions = PROFILES["4.4.0"].versions
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


# Conversations before the first request: one decoder for each state in which a hostile peer can answer. Everything
# before that state is right. An answer of TLS depends on the client's random numbers, so what is damaged there is a
# mask: zeros, which a step of damage changes, laid over what a real server says.

VERSIONS = ApiVersions({17: (0, 1), 36: (0, 2)})
PASSWORD = "canary-pencil"
NONCE = "own-nonce"
HELLO = b"\x00\x00\x00\x00\x00\x01\x00\x05PLAIN"
ITERATIONS = 4096
REFUSES = (RefusedError, AuthenticationError, ProtocolError)
OF_TLS_1_2 = "ECDHE-RSA-AES128-GCM-SHA256"
FLIGHT_BYTES = 1200


def _conversations() -> Iterator[Decoder]:
    yield from _sasl_states("PLAIN", lambda: Plain("alice"), [HELLO, verdict(0, None, lifetime_ms=10_000)])
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        make = functools.partial(Scram, name, "alice", nonce=NONCE)
        yield from _sasl_states(name, make, [HELLO, *_scram_answers(name)])
    refusal = verdict(0, None, b'{"status":"invalid_token"}')
    yield from _sasl_states("OAUTHBEARER", OAuthBearer, [HELLO, refusal])
    yield from _proxy_states()
    yield from _tls_states()


def _sasl_states(name: str, make: Callable[[], Mechanism], answers: list[bytes]) -> Iterator[Decoder]:
    for position, whole in enumerate(answers):
        decode = functools.partial(_authenticate, make, answers[:position])
        yield Decoder(f"{name}, answer {position}", whole, decode, REFUSES)


def _authenticate(make: Callable[[], Mechanism], before: list[bytes], payload: bytes) -> None:
    run, answers = exchange(make(), VERSIONS), [*before, payload]
    result: object = None
    while True:
        try:
            step = run.send(result)
        except StopIteration:
            return
        result = _result_of(step)
        if result is None:
            if not answers:
                return
            result = answers.pop(0)


def _result_of(step: object) -> object:
    """Return what a step wants, or None if it waits for an answer of the broker."""
    match step:
        case PasswordWanted():
            return PASSWORD
        case BearerWanted():
            return Bearer("token", {}, 0.0)
        case SaltedPasswordWanted():
            return _salted(step)
        case _:
            return None


@functools.cache
def _salted(wish: SaltedPasswordWanted) -> bytes:
    """Compute what a right challenge asks for; for invalid ones, which are refused, the result does not matter."""
    if wish.iterations != ITERATIONS:
        return bytes(32)
    return wish.compute(wish.hash_name, wish.password.encode(), wish.salt, wish.iterations)


def _scram_answers(name: str) -> list[bytes]:
    server, run = ScramServer(name, PASSWORD), Scram(name, "alice", nonce=NONCE).converse()
    tokens: list[bytes] = []
    result: object = None
    while len(tokens) < 2:
        step = run.send(result)
        result = _result_of(step)
        if isinstance(step, Message):
            tokens.append(server.verdict(step.token) if tokens else server.challenge(step.token))
            result = tokens[-1]
    return [verdict(0, None, token) for token in tokens]


def _proxy_states() -> Iterator[Decoder]:
    refuses = (ProxyError, AuthenticationError)
    socks = [b"\x05\x00", b"\x05\x00\x00\x01", b"\x7f\x00\x00\x01\x1f\x90"]
    for position, whole in enumerate(socks):
        decode = functools.partial(_ask_proxy, "socks5h", socks[:position])
        yield Decoder(f"SOCKS5, answer {position}", whole, decode, refuses)
    whole = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n"
    yield Decoder("CONNECT", whole, functools.partial(_ask_proxy, "http", []), refuses)


def _ask_proxy(scheme: str, before: list[bytes], payload: bytes) -> None:
    run = ask(Proxy(scheme, "proxy", 1080), "kafka-1", 9092)
    step = next(run)
    try:
        for answer in before:
            step = run.send(answer)
        size = len(payload) if step.size is None else step.size
        run.send(payload[:size].ljust(size, b"\x00"))
    except StopIteration:
        return


# TLS


def _tls_states() -> Iterator[Decoder]:
    mask = bytes(FLIGHT_BYTES)
    for version, ciphers in (("1.3", ""), ("1.2", OF_TLS_1_2)):
        context = functools.cache(functools.partial(server_context, ciphers=ciphers))
        for state, reach in (("first flight", _first_flight), ("end of the handshake", _end), ("open", _open)):
            yield Decoder(f"TLS {version}, {state}", mask, functools.partial(_meet, context, reach), (TlsError,))


def _first_flight(made: Scene) -> bytes:
    return made.peer.feed(made.raw.take())


def _end(made: Scene) -> bytes:
    made.answer(made.peer.feed(made.raw.take()))
    return made.peer.feed(made.raw.take())


def _open(made: Scene) -> bytes:
    made.shake_hands()
    return made.peer.write(b"x" * 300)


def _meet(context: Callable[[], ssl.SSLContext], reach: Callable[[Scene], bytes], mask: bytes) -> None:
    asyncio.run(_met(context(), reach, mask))


async def _met(context: ssl.SSLContext, reach: Callable[[Scene], bytes], mask: bytes) -> None:
    made = Scene(TlsPeer(context))
    right = reach(made)
    flight = _spoiled(right, mask)
    made.answer(flight)
    if flight == right:
        assert not made.raw.is_closing()
        return
    if not made.raw.is_closing():
        made.protocol.eof_received()
    failure = made.end()
    if failure is not None:
        raise failure


def _spoiled(flight: bytes, mask: bytes) -> bytes:
    """Lay a mask over a flight; a shorter or longer mask takes or adds bytes at the end."""
    more = len(mask) - FLIGHT_BYTES
    changed = bytes(byte ^ over for byte, over in zip(flight, mask, strict=False)) + flight[len(mask) :]
    return changed[:more] if more < 0 else changed + mask[:more]
