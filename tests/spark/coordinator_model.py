"""A model of the transaction coordinator and of Spark around it, for the commit of `aioproducer.spark`.

Every request is a step: before it another driver may go on, its answer may be lost so that the client asks again, it
may arrive when the client has given up, its process may die. What the model keeps is what a broker keeps: identities,
open transactions with their rows, offsets.
"""

from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from types import coroutine
from typing import Final, TypeVar

from aioproducer._transactions.prepared import PreparedTransaction
from aioproducer.errors import BrokerError, KafkaError, ProducerFencedError
from aioproducer.records import OffsetAndMetadata
from aioproducer.spark._commit import OpenedTransaction

ResultT = TypeVar("ResultT")

INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
PATIENCE: Final = 1_000
"""Steps until the time for a request that is refused for the time being is over."""

Row = tuple[int, int]
"""Batch and number in it."""


@coroutine
def step() -> Generator[None, None, None]:
    """Let the scheduler choose who goes on."""
    yield


@dataclass
class Identity:
    """State of a transactional id."""

    producer_id: int
    epoch: int = -1
    is_ongoing: bool = False
    last_end: tuple[int, bool] | None = None
    """Epoch and outcome of the last EndTxn."""
    rows: list[Row] = field(default_factory=list)
    offsets: dict[int, OffsetAndMetadata] = field(default_factory=dict)


class CoordinatorModel:
    """All coordinators of a cluster: what requests change.

    Args:
        random: of the history.
        version: `transaction.version`, 1 or 2.
    """

    def __init__(self, random: Random, version: int) -> None:
        self.random = random
        self.version = version
        self.identities: dict[str, Identity] = {}
        self.offsets: dict[int, OffsetAndMetadata] = {}
        self.visible: list[Row] = []
        """Rows that a reader of what is committed sees."""
        self.torn: set[Row] = set()
        """Rows that a time-out or another user of the id aborted after the commit had seen their transaction open."""
        self.seen_open: set[tuple[int, int]] = set()
        """Producer ids and epochs that `describe` called ongoing."""
        self.late: list[Callable[[], object]] = []
        """Requests that arrive when their sender has given up."""
        self._producer_ids = count(1)

    def initialise(self, transactional_id: str) -> PreparedTransaction:
        """Abort what is open, and bump the epoch."""
        identity = self.identities.setdefault(transactional_id, Identity(next(self._producer_ids)))
        self._note_torn(identity)
        self._end(identity, commit=False)
        identity.epoch += 1
        identity.last_end = None
        return PreparedTransaction(transactional_id, identity.producer_id, identity.epoch, self.version)

    def initialise_as(self, held: PreparedTransaction) -> None:
        """Bump the epoch for the one who holds the id."""
        identity = self._known(held)
        if identity.epoch != held.epoch and identity.is_ongoing:  # Kafka ends what is open before it compares epochs
            self._end(identity, commit=False)
            identity.epoch += self.version == 1
            identity.last_end = None
        if identity.epoch != held.epoch:
            if identity.last_end == (held.epoch, True):
                return  # KIP-360: as if it had been asked before
            raise ProducerFencedError(held.transactional_id)
        self._end(identity, commit=False)
        identity.epoch += 1
        identity.last_end = None

    def add_rows(self, transaction: PreparedTransaction, rows: Sequence[Row]) -> None:
        """Write rows in an open transaction, or refuse them."""
        identity = self._current(transaction)
        identity.is_ongoing = True
        identity.rows += rows

    def add_offsets(self, transaction: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]) -> None:
        """Commit offsets with an open transaction, or refuse them."""
        identity = self._current(transaction)
        identity.is_ongoing = True
        identity.offsets.update(offsets)

    def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        """End a transaction; once more is no error."""
        identity = self._known(transaction)
        if identity.last_end is not None and identity.last_end[0] == transaction.epoch and not identity.is_ongoing:
            if identity.last_end[1] == commit:
                return
            raise BrokerError.of(INVALID_TXN_STATE, "ended otherwise", retriable=False)
        if identity.epoch != transaction.epoch:
            raise ProducerFencedError(transaction.transactional_id)
        if not identity.is_ongoing:
            raise BrokerError.of(INVALID_TXN_STATE, "nothing is open", retriable=False)
        self._end(identity, commit=commit)

    def time_out(self, transactional_id: str) -> None:
        """Abort an open transaction, as its time-out does."""
        identity = self.identities[transactional_id]
        if identity.is_ongoing:
            self._note_torn(identity)
            self._end(identity, commit=False)
            identity.epoch += 1
            identity.last_end = None

    def ongoing(self, prefix: str) -> list[str]:
        """Return ids with an open transaction."""
        return [name for name, each in self.identities.items() if each.is_ongoing and name.startswith(prefix)]

    def expire(self, transactional_id: str) -> None:
        """Forget an id that has no open transaction, as after `transactional.id.expiration.ms`."""
        if not self.identities[transactional_id].is_ongoing:
            del self.identities[transactional_id]

    def stable_offsets(self) -> dict[int, OffsetAndMetadata]:
        """Return the offsets, unless a transaction may still change them."""
        if any(each.offsets for each in self.identities.values()):
            raise UnstableError
        return dict(self.offsets)

    def _known(self, transaction: PreparedTransaction) -> Identity:
        identity = self.identities.get(transaction.transactional_id)
        if identity is None or identity.producer_id != transaction.producer_id:
            raise BrokerError.of(INVALID_PRODUCER_ID_MAPPING, "the id is not known", retriable=False)
        return identity

    def _current(self, transaction: PreparedTransaction) -> Identity:
        try:
            identity = self._known(transaction)
        except BrokerError as error:
            raise ProducerFencedError(transaction.transactional_id) from error
        if identity.epoch != transaction.epoch:
            raise ProducerFencedError(transaction.transactional_id)
        return identity

    def _note_torn(self, identity: Identity) -> None:
        if (identity.producer_id, identity.epoch) in self.seen_open:
            self.torn.update(identity.rows)

    def _end(self, identity: Identity, *, commit: bool) -> None:
        if not identity.is_ongoing:
            return
        if commit:
            self.visible += identity.rows
            self.offsets.update(identity.offsets)
        identity.last_end = (identity.epoch, commit)
        identity.epoch += self.version == 2
        identity.is_ongoing = False
        identity.rows, identity.offsets = [], {}


class NoAnswerError(KafkaError, TimeoutError):
    """The time for a request is over."""


class UnstableError(KafkaError):
    """A broker asks to come again."""


class ModelCluster:
    """One driver's connections to the model: what `TransactionCluster` asks for.

    Args:
        model: of the cluster.
        impatience: chance that a request's time is over while it is retried.
    """

    def __init__(self, model: CoordinatorModel, impatience: float) -> None:
        self._model = model
        self._impatience = impatience

    async def init_producer_id(self, transactional_id: str) -> PreparedTransaction:
        return await self._asked(lambda: self._model.initialise(transactional_id))

    async def abort_all(self, transactions: Mapping[str, OpenedTransaction]) -> None:
        for name, each in transactions.items():
            held = PreparedTransaction(name, each.producer_id, each.epoch, self._model.version)
            with suppress(ProducerFencedError, BrokerError):
                await self._asked(partial(self._model.initialise_as, held))

    async def fence(self, coordinator: PreparedTransaction) -> None:
        await step()
        try:
            self._model.initialise_as(coordinator)
        except BrokerError as error:
            raise ProducerFencedError(str(error)) from error

    async def fetch_decision(self) -> Mapping[int, OffsetAndMetadata]:
        for _ in range(PATIENCE):
            with suppress(UnstableError):
                return await self._asked(self._model.stable_offsets)
        raise NoAnswerError("the offsets are not stable")

    async def forget_decisions(self, coordinator: PreparedTransaction) -> None:
        await self.write_decision(coordinator, {0: OffsetAndMetadata(0, "")})

    async def write_decision(
        self, coordinator: PreparedTransaction, offsets: Mapping[int, OffsetAndMetadata]
    ) -> PreparedTransaction:
        await self._asked(lambda: self._model.add_offsets(coordinator, offsets))
        try:
            await self._asked(lambda: self._model.end(coordinator, commit=True))
        except BrokerError as error:
            if error.code in {INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING}:
                raise ProducerFencedError(str(error)) from error
            raise
        return coordinator._replace(epoch=coordinator.epoch + (self._model.version == 2))

    async def end_transactions(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[KafkaError | None]:
        results: list[KafkaError | None] = []
        for each in transactions:
            try:
                await self._asked(partial(self._model.end, each, commit=commit))
                results.append(None)
            except KafkaError as error:
                results.append(error)
        return results

    async def ongoing_ids(self, prefix: str) -> Collection[str]:
        return await self._asked(lambda: self._model.ongoing(prefix))

    async def describe(self, transactional_ids: Collection[str]) -> Mapping[str, OpenedTransaction]:
        def described() -> dict[str, OpenedTransaction]:
            found = {name: self._model.identities.get(name) for name in transactional_ids}
            self._model.seen_open.update((each.producer_id, each.epoch) for each in found.values() if each is not None)
            return {
                name: OpenedTransaction(each.producer_id, each.epoch, each.is_ongoing)
                for name, each in found.items()
                if each is not None
            }

        return await self._asked(described)

    async def _asked(self, request: Callable[[], ResultT]) -> ResultT:
        await step()
        random = self._model.random
        while True:
            if random.random() < self._impatience:
                if random.random() < 0.5:
                    self._model.late.append(request)
                raise NoAnswerError
            answer = request()
            if random.random() >= 0.1:
                return answer
            await step()  # the answer was lost


def run(coroutine: Coroutine[None, None, ResultT]) -> ResultT:
    """Run to the end; return what it returns."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as end:
            result: ResultT = end.value
            return result


def finished(coroutine: Coroutine[None, None, object]) -> bool:
    """Take one step; True if it was the last. What it raises comes out."""
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    return False
