"""What one transaction says to a real broker, and hears: `python -m tests.programs.strays.trace --kafka 4.3.1`.

Prints each request and its answer, field by field, as they went over the line; the page about transactions shows two.
"""

import argparse
import asyncio
import dataclasses
import struct
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

from aioproducer import Producer
from aioproducer.testing import ApiKey
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.server_properties import free_ports
from tests.contracts.raw_client import RawClient, schema
from tests.kafka_releases import PROPERTIES, RELEASES, version_of_release
from tests.programs.strays.holding_link import HEAD, LOOPBACK, read_frame

BATCH = struct.Struct(">8x4x4xx4xh4x8x8xqhii")
"""Of the head of a batch: attributes, producer id, epoch, first sequence, how many records."""
IS_TRANSACTIONAL = 0x10
TOPIC, READ_TOPIC, GROUP, TRANSACTIONAL_ID = "enriched", "orders", "enrichers", "billing-1"
NOT_SHOWN = {ApiKey.API_VERSIONS, ApiKey.METADATA}
NOTHING = (None, (), "", b"")
OF_NO_INTEREST = {
    *("throttle_time", "timeout", "acks", "log_append_time", "log_start_offset", "host", "port", "ongoing_txn"),
    *("committed_leader_epoch", "committed_metadata", "enable2_pc", "keep_prepared_txn", "transaction_timeout"),
    *("leader_id", "leader_epoch", "generation_id"),
}


class Asked(NamedTuple):
    api: ApiKey
    version: int
    frame: bytes


class Tape:
    """Carries frames between one client and a broker, and keeps what was said."""

    def __init__(self, target_port: int) -> None:
        self.lines: list[str] = []
        self._target_port = target_port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either end hangs up."""
        from_broker, to_broker = await asyncio.open_connection(LOOPBACK, self._target_port)
        asked: dict[int, Asked] = {}
        ways = [self._requests(reader, to_broker, asked), self._answers(from_broker, writer, asked)]
        _, left = await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when="FIRST_COMPLETED")
        for way in left:
            way.cancel()
        await asyncio.wait(left)
        writer.close()
        to_broker.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, Asked]
    ) -> None:
        while frame := await frame_or_end(reader):
            _, key, version, number = HEAD.unpack_from(frame)
            asked[number] = Asked(ApiKey(key), version, frame)
            writer.write(frame)

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, Asked]
    ) -> None:
        while frame := await frame_or_end(reader):
            request = asked.pop(int.from_bytes(frame[4:8], "big"))
            if request.api not in NOT_SHOWN:
                self.lines += told(request, frame)
            writer.write(frame)


async def frame_or_end(reader: asyncio.StreamReader) -> bytes:
    """One frame; nothing when there are no more."""
    try:
        return await read_frame(reader)
    except (OSError, asyncio.IncompleteReadError):
        return b""


def told(asked: Asked, answer: bytes) -> Iterator[str]:
    """A request and its answer, in two lines."""
    api, version, request = asked
    tags = int(api.is_flexible(version))  # none are set, in one byte at the end of each head
    client_id = int.from_bytes(request[HEAD.size : HEAD.size + 2], "big", signed=True)
    name = "".join(part.capitalize() for part in api.name.split("_"))
    yield line(f"{name} {version}", schema(api, version, "request"), request[HEAD.size + 2 + client_id + tags :])
    yield line("->", schema(api, version, "response"), answer[8 + tags :])


def line(head: str, message: type, body: bytes) -> str:
    entity, _ = import_module("kio.serial").entity_reader(message)(body, 0)
    return f"{head:22} {' '.join(fields_of(entity))}"


def fields_of(value: object, name: str = "") -> Iterator[str]:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from fields_of(getattr(value, field.name), field.name)
    elif name == "records" and isinstance(value, bytes):
        attributes, producer_id, epoch, sequence, count = BATCH.unpack_from(value)
        kind = "transactional" if attributes & IS_TRANSACTIONAL else "plain"
        yield f"[{kind} batch: producer_id={producer_id} epoch={epoch} sequence={sequence} records={count}]"
    elif isinstance(value, tuple) and name not in OF_NO_INTEREST:
        for item in value:
            yield from fields_of(item, name)
    elif value not in NOTHING and name not in OF_NO_INTEREST:
        yield f"{name.removeprefix('v3_and_below_')}={getattr(value, 'name', value)}"


async def trace(release: str) -> Sequence[str]:
    """One transaction of two records and an offset, on a node of its own."""
    (port,) = free_ports(1)
    kafka = KafkaCluster(
        version_of_release(release), advertised_ports=[port], properties=PROPERTIES, features=RELEASES[release]
    )
    async with kafka:
        proxied = kafka.node(1).ports.proxied
        assert proxied is not None
        client = await RawClient.connect(kafka.bootstrap_servers)
        for topic in (TOPIC, READ_TOPIC):
            await client.create_topic(topic)
        await client.close()
        await transact(kafka.bootstrap_servers, "warm-up")  # Kafka makes its own topics now
        tape = Tape(proxied.port)
        async with await asyncio.start_server(tape.serve, LOOPBACK, port):
            await transact(f"{LOOPBACK}:{port}", TRANSACTIONAL_ID)
        return tape.lines


async def transact(bootstrap: str, transactional_id: str) -> None:
    async with Producer(bootstrap, transactional_id=transactional_id) as producer, producer.transaction() as txn:
        await txn.send(TOPIC, b"a")
        await txn.send(TOPIC, b"b")
        await txn.send_offsets({(READ_TOPIC, 0): 7}, GROUP)


def main(given: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.strays.trace", description=__doc__)
    parser.add_argument("--kafka", choices=[*RELEASES], default="4.3.1")
    print("\n".join(asyncio.run(trace(parser.parse_args(given).kafka))))


if __name__ == "__main__":
    main(sys.argv[1:])
