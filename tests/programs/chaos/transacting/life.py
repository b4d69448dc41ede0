"""Transacting clients: one transaction after the other, three in ten aborted on purpose, each in the history.

A client that is fenced, or does not learn in time how a transaction ended, starts again after a while, and may fence.
A life is what a producer object has between its start and its end; each has a name of its own, also under the same
transactional id.
"""

import asyncio
import contextlib
import json
import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from aioproducer import Delivery, KafkaError, Producer, Transaction, TransactionAbortableError
from aioproducer.errors import TransactionTimeoutError, UndeliveredError

RECORDS = 10

PARTITIONS = 3


class What(StrEnum):
    BEGIN = "begin"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Line(NamedTuple):
    transactional_id: str
    life: str
    number: int
    what: str
    time_us: int


class TransactionHistory:
    """Appends a line of JSON before each transaction begins, and another when its end is known."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._file).st_size:
            os.write(self._file, b"\n")

    def write(self, transactional_id: str, life: str, number: int, *, what: What) -> None:
        """One line, in the file before this returns: the process may be killed at any time."""
        line = Line(transactional_id, life, number, what, time.time_ns() // 1000)
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read_lines(folder: Path) -> Iterator[Line]:
    """The lines of all processes; half a line, or none, is skipped."""
    for file in sorted(folder.glob("transactions-*.jsonl")):
        for text in file.read_text("utf-8").splitlines():
            if text.endswith("]"):
                yield Line(*json.loads(text))


class Value(NamedTuple):
    transactional_id: str
    life: str
    number: int
    index: int

    def encode(self) -> bytes:
        return json.dumps(self).encode()


def decode_value(value: bytes) -> Value:
    return Value(*json.loads(value))


def connection_text(servers: str, options: Mapping[str, str]) -> str:
    """Return one argument: the servers, or a JSON object of options where there are more."""
    return json.dumps({"bootstrap_servers": servers, **options}) if options else servers


def connection_options(text: str) -> dict[str, str]:
    if not text.startswith("{"):
        return {"bootstrap_servers": text}
    options: dict[str, str] = json.loads(text)
    return options


ABORTED_SHARE = 0.3
CLOSE_S = 20.0
BETWEEN_S = 0.01
STAND_ASIDE_S = (1.0, 4.0)
OPTIONS = {
    "request_timeout_ms": 5_000,
    "delivery_timeout_ms": 30_000,
    "max_block_ms": 20_000,
    "linger_ms": 2,
    "transaction_timeout_ms": 9_000,
}
"""A process may be stopped, and the network cut, for longer than a transaction may be open."""


class AbortOnPurposeError(Exception):
    """Raised in the body of a transaction that is to be aborted."""


class Transacting(ABC):
    """One producer at a time of a process, again and again."""

    goes_on_without_knowing = True  # whether the same life begins another transaction after one of unknown end

    def __init__(self, folder: str, bootstrap: str, topic: str, *names: str) -> None:
        self.stop = asyncio.Event()
        self.bootstrap = bootstrap
        self.topic = topic
        self.transactional_id, self._name = names
        self._history = TransactionHistory(Path(folder, f"transactions-{self._name}.jsonl"))
        self.rng = random.Random(f"{self._name}/{os.getpid()}")
        self._lives = 0

    async def run(self) -> None:
        while not self.stop.is_set():
            self._lives += 1
            life = f"{self._name}.{os.getpid()}.{self._lives}"
            try:
                await self._live(life)
            except KafkaError as error:
                print(f"life {life} ended: {type(error).__name__}: {error}", flush=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stop.wait(), self.rng.uniform(*STAND_ASIDE_S))

    async def _live(self, life: str) -> None:
        """One producer, until it is of no use any more."""
        options = {**connection_options(self.bootstrap), **OPTIONS}
        producer = Producer(transactional_id=self.transactional_id, **options)  # type: ignore[arg-type]
        number = 0
        try:
            await producer.start()
            await self.begin_life()
            while not self.stop.is_set():
                number += 1
                await self._transact(producer, life, number)
                await asyncio.sleep(self.rng.expovariate(1 / BETWEEN_S))
        finally:
            with contextlib.suppress(UndeliveredError):
                await producer.close(CLOSE_S)

    @abstractmethod
    async def begin_life(self) -> None:
        """Get ready, once the transactional id is this life's."""

    @abstractmethod
    async def fill(self, txn: Transaction, life: str, number: int) -> Delivery:
        """Send the records of a transaction; returns the delivery of one of them."""

    @abstractmethod
    def note_end(self, *, is_committed: bool) -> None:
        """Hear how the last transaction ended, where that is known."""

    async def _transact(self, producer: Producer, life: str, number: int) -> None:
        what = What.UNKNOWN
        try:
            await self._run_one(producer, life, number)
            what = What.COMMITTED
        except (AbortOnPurposeError, TransactionAbortableError):
            what = What.ABORTED
        except TransactionTimeoutError as error:  # not known to be over; the next one waits for it
            if not self.goes_on_without_knowing:
                raise
            print(f"{life}/{number}: {type(error).__name__}: {error}", flush=True)
        finally:
            self._history.write(self.transactional_id, life, number, what=what)
        self.note_end(is_committed=what is What.COMMITTED)

    async def _run_one(self, producer: Producer, life: str, number: int) -> None:
        """Begin, send, and end; an abort comes when records are in a log, while others are on their way."""
        async with producer.transaction() as txn:
            self._history.write(self.transactional_id, life, number, what=What.BEGIN)
            delivery = await self.fill(txn, life, number)
            if self.rng.random() < ABORTED_SHARE:
                with contextlib.suppress(KafkaError):
                    await delivery
                raise AbortOnPurposeError


class TenRecords(Transacting):
    async def begin_life(self) -> None:
        """Nothing is needed."""

    def note_end(self, *, is_committed: bool) -> None:
        """Nothing depends on it."""

    async def fill(self, txn: Transaction, life: str, number: int) -> Delivery:
        values = [Value(self.transactional_id, life, number, index).encode() for index in range(RECORDS)]
        sent = [
            await txn.enqueue(self.topic, value, partition=index % PARTITIONS) for index, value in enumerate(values)
        ]
        return self.rng.choice(sent)
