"""A producer whose every record is in the history: written down before it is given away, and when it ends."""

import contextlib
import random
import time
from functools import partial
from typing import Any

from aioproducer import KafkaError, Outcome, RecordMetadata
from aioproducer.errors import UndeliveredError
from tests.programs.chaos.checker.cell_files import Close, HistoryWriter, Kind, Payload, encode
from tests.programs.chaos.plans import Orders
from tests.programs.chaos.producing.peers import CLIENTS

FILLER = bytes(range(256))
FILLER_MAX_BYTES = 80
OF_OUTCOME = {Outcome.NOT_WRITTEN: Kind.NOT_WRITTEN, Outcome.UNKNOWN: Kind.UNKNOWN}


class RecordingClient:
    """One producer object and its part of the history."""

    def __init__(self, orders: Orders, client: int, history: HistoryWriter) -> None:
        self.producer = CLIENTS[orders.client](orders.bootstrap, client_id=f"chaos-{client}", **orders.options)
        self.client = client
        self.partitions = 1  # spread records evenly, at random, over this many partitions
        self._topic = orders.topic
        self._topic_number = orders.topic_number
        self._history = history
        self._rng = random.Random(f"{orders.seed}/{client}")
        self._next = 0
        self._waiting: set[int] = set()  # records whose `enqueue` has not returned, and whose outcome is not known
        self._raised: set[int] = set()
        """Records whose `enqueue` raised. A waiting one is reported to `on_delivery` too, before or after."""

    async def look_for_partitions(self) -> None:
        """Ask how many there are; without an answer, what was known stays."""
        try:
            self.partitions = max(self.partitions, len(await self.producer.partitions_for(self._topic)))
        except KafkaError:
            return

    async def enqueue(self, stream: int) -> None:
        """Give the producer a record, and wait for as long as it wants us to."""
        n, given = self._invoke(stream)
        self._waiting.add(n)
        try:
            await self.producer.enqueue(self._topic, **given)
        except KafkaError as error:
            if n in self._waiting:
                self._refused(n, error)
                self._raised.add(n)
        finally:
            self._waiting.discard(n)

    def send(self, stream: int) -> None:
        n, given = self._invoke(stream)
        try:
            self.producer.send(self._topic, **given)
        except KafkaError as error:
            self._refused(n, error)

    async def close(self, timeout_s: float) -> Close:
        """Close, and say how long it took; failures are in the history already."""
        began, began_us = time.monotonic(), time.time_ns() // 1000
        with contextlib.suppress(UndeliveredError):
            await self.producer.close(timeout_s)
        seconds = round(time.monotonic() - began, 3)
        return Close(client=self.client, seconds=seconds, timeout_s=timeout_s, began_us=began_us)

    def _invoke(self, stream: int) -> tuple[int, dict[str, Any]]:
        n, self._next = self._next, self._next + 1
        rng = self._rng
        choice = int(rng.random() * (self.partitions + 1)) - 1  # -1: the producer shall choose
        sent_ms = time.time_ns() // 1_000_000
        filler = FILLER[: int(rng.random() * FILLER_MAX_BYTES)]
        value = encode(Payload(self.client, stream, self._topic_number, choice, n, sent_ms), filler)
        self._history.write(Kind.INVOKE, self._topic_number, choice, self.client, n, -1, sent_ms)
        return n, {
            "value": value,
            "partition": None if choice < 0 else choice,
            "timestamp": sent_ms,
            "on_delivery": partial(self._ended, n),
        }

    def _ended(self, n: int, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        self._waiting.discard(n)
        if n in self._raised and getattr(error, "outcome", None) is Outcome.NOT_WRITTEN:
            self._raised.discard(n)
            return
        if metadata is not None:
            place = metadata.partition, self.client, n, metadata.offset, metadata.timestamp
            self._history.write(Kind.OK, self._topic_number, *place)
        else:
            self._failed(n, error)

    def _refused(self, n: int, error: KafkaError) -> None:
        if error.outcome is Outcome.UNKNOWN:
            raise AssertionError(f"a refused record cannot be UNKNOWN: {error!r}") from error
        self._history.write(Kind.NOT_WRITTEN, self._topic_number, -1, self.client, n, -1, -1)

    def _failed(self, n: int, error: BaseException | None) -> None:
        outcome = error.outcome if isinstance(error, KafkaError) else None
        if outcome is None:
            raise AssertionError(f"a failed record without outcome: {error!r}") from error
        self._history.write(OF_OUTCOME[outcome], self._topic_number, -1, self.client, n, -1, -1)
