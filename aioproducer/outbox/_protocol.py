"""The protocol by which a row is in Kafka exactly once. docs/explanation/outbox.md has the proof.

    claim     one database transaction: the relay's epoch is still the last; the next number, and the ids of its rows
    commit    one transaction of Kafka: the rows, and the number with the relay's token as the group's offset
    confirm   one database transaction, that of the next claim: the rows are deleted

    start     S1  raise the epoch in the database: an older relay can claim and confirm no more
              S2  initialise the transactional id: an older relay can commit no more
              S3  read the group's offset, which no one changes any more
              S4  confirm what it says, and note the relay's own token
              S5  commit what is claimed and not confirmed, in order

No database transaction is open while Kafka is asked. Tokens are random: an offset with a token that the database does
not know was written by a copy of the database, and what it says about numbers is about other rows.

`Session` awaits nothing but the methods of `Store` and `Log`: tests run it against a model of both, stop it anywhere,
lose answers, and let two sessions take turns.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple, Protocol

from aioproducer.errors import KafkaError
from aioproducer.outbox._errors import (
    NAME,
    NEW_IDENTITY,
    RETRY_BATCH,
    SKIP_BATCH,
    ForeignPositionError,
    InDoubtError,
    RefusedRowError,
    options_of,
)

Run = tuple[int, int]
"""First and last of ids without a gap."""


class Batch(NamedTuple):
    """Rows that were claimed together."""

    number: int
    runs: tuple[Run, ...]


class StoredRow(NamedTuple):
    """A row as the relay reads it."""

    id: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: str | None
    partition: int | None
    timestamp: int


class Waiting(NamedTuple):
    """A row that is not claimed, or the same part of one that is."""

    id: int
    topic: str


class Position(NamedTuple):
    """The group's offset: the last batch that was committed, and the token of the relay that committed it."""

    number: int
    token: str


class Claimed(NamedTuple):
    """A new batch with its rows; whether more may wait."""

    batch: Batch
    rows: Sequence[StoredRow]
    is_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The row of a shard in the relay's table."""

    identity: str
    epoch: int
    shard: int = 0
    shards: int = 1
    number: int = 0
    """Number of the last batch that was claimed."""
    claimed: tuple[Batch, ...] = ()
    """Batches that are not confirmed."""
    topic: str | None = None
    """The topic whose partition 0 has the group's offset; None before there is an offset."""
    token: str = ""
    former_token: str = ""

    @property
    def confirmed(self) -> int:
        """Number of the last batch whose rows were deleted."""
        return self.claimed[0].number - 1 if self.claimed else self.number


class Store(Protocol):
    """The database. Methods with a state raise RelayFencedError if its epoch is not the last one."""

    async def settle(self, state: State) -> None:
        """Write a state whose first batches may be missing, and delete the rows of those."""

    async def forget_topic(self, state: State, committed: Collection[int]) -> None:
        """Delete the rows of the batches of these numbers, and note that no other one is committed, in no topic."""

    async def claim(self, state: State, confirmed: Sequence[Batch]) -> Claimed | None:
        """Delete the rows of confirmed batches, and claim the next rows; None if there are none."""

    async def read(self, batch: Batch) -> Sequence[StoredRow]:
        """Read the rows of a claimed batch that still exist, in order."""

    async def first_rows(self) -> Sequence[Waiting]:
        """Return some of the oldest rows, none only if there is none."""

    async def park(self, state: State, refused: Mapping[int, str]) -> None:
        """Move rows, by id, to the parked ones, each with its error, and write the state, which claims them no more."""

    async def parked_keys(self, rows: Sequence[StoredRow]) -> Mapping[tuple[str, bytes], int]:
        """Return topic and key of the parked rows that have those of one of these, with the first id of each."""


class Log(Protocol):
    """Kafka."""

    async def open(self, identity: str) -> None:
        """Take the transactional id: from now on no older relay commits."""

    async def position(self, topic: str) -> Position | None:
        """Return the group's offset; waits while a transaction may still change it."""

    async def topic_that_is_there(self, topics: Collection[str]) -> tuple[str | None, Mapping[str, str]]:
        """Return the first topic that is there; None with, by topic, why each is refused for good."""

    async def commit(self, rows: Sequence[StoredRow], topic: str, position: Position) -> None:
        """Commit rows and position in one transaction.

        Raises:
            RowsRefusedError: rows are refused for good; nothing is committed.
            PositionRefusedError: no broker has the topic of the position; nothing is committed, nor will be.
            KafkaError: it may be committed.
        """


class PositionRefusedError(KafkaError):
    """The topic of the position is gone; its transaction was never to be committed."""


class RowsRefusedError(KafkaError):
    """Rows that will be refused again, with their errors; their transaction was aborted.

    Args:
        errors: by id.
    """

    def __init__(self, errors: Mapping[int, str]) -> None:
        super().__init__(f"{len(errors)} rows are refused")
        self.errors = errors


class Policy(NamedTuple):
    """Choices for a row that is refused for good."""

    parks: bool = False
    parks_key: bool = False
    """Whether later rows of its topic and key are parked too."""


STOP: Final = Policy()


def settled(state: State, position: Position | None, outbox: str = NAME) -> State:
    """Return the state without the batches that were committed; `outbox` is its name, for messages.

    Raises:
        InDoubtError: the offset is gone, and a batch may have been committed with it.
        ForeignPositionError: the offset is not one that this database can have written.
    """
    if state.topic is None:
        return state
    if position is None:
        if state.claimed:
            raise _in_doubt(state, outbox)
        return replace(state, topic=None)
    if position.token not in {state.token, state.former_token}:
        what = f"the token {position.token!r} at batch {position.number} is not of this database"
        raise _foreign(state, what, outbox)
    if not state.confirmed <= position.number <= state.number:
        what = f"Kafka has batch {position.number}, the database {state.confirmed} to {state.number}"
        raise _foreign(state, what, outbox)
    left = tuple(batch for batch in state.claimed if batch.number > position.number)
    return replace(state, claimed=left, former_token=position.token)


def _in_doubt(state: State, outbox: str) -> InDoubtError:
    numbers = ", ".join(str(batch.number) for batch in state.claimed)
    ids = shown_runs(runs_in(state.claimed))
    place = f"URL{options_of(outbox)}"
    option = "" if state.shards == 1 else f" --shard {state.shard}"
    return InDoubtError(
        f"the offset of the outbox's group in topic {state.topic!r} is gone (deleted with the topic, expired after "
        "offsets.retention.minutes, or this is another cluster, or the relay has another id_prefix), so Kafka does not "
        f"say whether batch {numbers} with the rows {ids} was committed. Look for these rows in Kafka, then run "
        f"`{SKIP_BATCH}{option} {place}` if they are there, or `{RETRY_BATCH}{option} {place}` to send them again; "
        f"where only some are there, run `aioproducer outbox skip {place} ID...` for those first"
    )


def _foreign(state: State, what: str, outbox: str) -> ForeignPositionError:
    command = f"{NEW_IDENTITY} URL{options_of(outbox)}"
    return ForeignPositionError(
        f"{what}: the database is a copy, was restored from a backup, or has lost commits (by a failover to a replica "
        "that was behind), and another one has used the same identity "
        f"{state.identity!r} on this cluster; or this relay has the id_prefix of an earlier one, and others have had "
        "another one since. To send from this database from now on, run "
        f"`{command}`; the rows that it holds are then sent, also those that the other one has sent"
    )


class Session:
    """Work of one relay, from the rise of its epoch until an error; any error ends it.

    Args:
        state: that of the rise (S1).
        outbox: its name, for messages.
        token: random.
        policy: what to do with a refused row.
        is_exact: False for clusters without transactions: what is claimed at a start is sent again, certainly or not.
        on_claim: called before each claim.
        on_sent: called with the number of rows of each batch that was committed.
    """

    def __init__(  # noqa: PLR0913  # its two sides, and what its owner chooses
        self,
        store: Store,
        log: Log,
        state: State,
        *,
        outbox: str = NAME,
        token: str,
        policy: Policy = STOP,
        is_exact: bool = True,
        on_claim: Callable[[], None] = lambda: None,
        on_sent: Callable[[int], None] = lambda _rows: None,
    ) -> None:
        self._store = store
        self._log = log
        self.state = state
        self._outbox = outbox
        self._token = token
        self._policy = policy
        self._is_exact = is_exact
        self._on_claim = on_claim
        self._on_sent = on_sent
        self._sent: set[int] = set()  # numbers of batches that are committed, and whose rows are not deleted yet
        self._turn = asyncio.Lock()  # of the state: the next batch is claimed while rows of one may be parked

    async def begin(self) -> None:
        """Fence older relays, and commit what they have claimed and not committed (S2 to S5)."""
        await self._log.open(self.state.identity)
        if self._is_exact:
            position = None if self.state.topic is None else await self._log.position(self.state.topic)
            self.state = replace(settled(self.state, position, self._outbox), token=self._token)
        else:
            self.state = replace(self.state, topic=None, token=self._token)
        await self._store.settle(self.state)
        await self.refresh()
        for batch in self.state.claimed:
            await self._commit(batch, await self._store.read(batch))

    async def finish(self) -> None:
        """Have nothing claimed: begin, and confirm what that has committed."""
        await self.begin()
        self.state = replace(self.state, claimed=())
        await self._store.settle(self.state)

    async def refresh(self) -> None:
        """Commit the position again, so that neither it nor the transactional id expires."""
        if self.state.topic is not None and not self._sent:
            await self._commit_at((), self.state.topic, Position(self.state.confirmed, self._token))

    async def send_waiting(self) -> bool:
        """Send all rows that wait; returns whether there were any."""
        while self._is_exact and self.state.topic is None:
            waiting = await self._store.first_rows()
            if not waiting:
                return False
            # The next claim confirms batches of which nothing was left to send: the position must not be below them.
            await self._anchor(waiting, max(self._sent, default=self.state.confirmed))
        claimed = await self._claim()
        has_sent = claimed is not None
        while claimed is not None:
            claimed = await self._commit_and_claim(claimed)
        return has_sent

    async def _commit_and_claim(self, claimed: Claimed) -> Claimed | None:
        """Commit a batch and return the next one; where more wait, it is claimed meanwhile."""
        if not claimed.is_full:
            await self._commit(claimed.batch, claimed.rows)
            return await self._claim()
        ahead = asyncio.create_task(self._claim())
        try:
            await self._commit(claimed.batch, claimed.rows)
            return await ahead
        finally:
            ahead.cancel()
            with suppress(asyncio.CancelledError, Exception):  # what ended the commit is raised
                await ahead

    async def _anchor(self, rows: Sequence[Waiting | StoredRow], number: int) -> None:
        """Write the first position, without which a missing one would say nothing, to the first topic that is there.

        Raises:
            RefusedRowError: none is, and rows are not parked; else the rows are parked.
        """
        there, faults = await self._log.topic_that_is_there(dict.fromkeys(row.topic for row in rows))
        if there is None:
            await self._park({row.id: faults[row.topic] for row in rows})
            return
        await self._log.commit((), there, Position(number, self._token))
        self.state = replace(self.state, topic=there)
        await self._store.settle(self.state)

    async def _claim(self) -> Claimed | None:
        self._on_claim()
        async with self._turn:
            state, sent = self.state, frozenset(self._sent)
            confirmed = [batch for batch in state.claimed if batch.number in sent]
            left = tuple(batch for batch in state.claimed if batch.number not in sent)
            claimed = await self._store.claim(replace(state, claimed=left), confirmed)
            self._sent -= sent
            self.state = replace(state, claimed=left)
            if claimed is not None:
                self.state = replace(state, number=claimed.batch.number, claimed=(*left, claimed.batch))
            return claimed

    async def _commit(self, batch: Batch, rows: Sequence[StoredRow]) -> None:
        if self._is_exact and self.state.topic is None:  # a person has said that the batch is to be sent again
            await self._anchor(rows, batch.number - 1)
            rows = await self._store.read(batch)
        if self._is_exact and self.state.topic is None:  # nothing is left of it
            self._sent.add(batch.number)
            return
        position = Position(batch.number, self._token)
        rows = await self._without_parked_keys(rows)
        while True:
            try:
                await self._commit_at(rows, self.state.topic or "", position)
                break
            except RowsRefusedError as refused:
                rows = await self._refused(rows, refused.errors)
        self._sent.add(batch.number)
        self._on_sent(len(rows))

    async def _commit_at(self, rows: Sequence[StoredRow], topic: str, position: Position) -> None:
        """Commit rows and position; where the topic of that is gone, the next start is to choose another one.

        That start cannot ask Kafka what is committed, and this session knows: the batches whose commits have
        succeeded. It has asked for no other commit that it claims still, and never asks for this one.
        """
        try:
            await self._log.commit(rows, topic, position)
        except PositionRefusedError:
            await self._store.forget_topic(self.state, frozenset(self._sent))
            raise

    async def _without_parked_keys(self, rows: Sequence[StoredRow]) -> Sequence[StoredRow]:
        if not self._policy.parks_key:
            return rows
        first = await self._store.parked_keys(rows)
        behind = {
            row.id: "an earlier row of its key is parked"
            for row in rows
            if row.key is not None and row.id > first.get((row.topic, row.key), row.id)
        }
        if behind:
            await self._move_to_parked(behind)
        return [row for row in rows if row.id not in behind]

    async def _refused(self, rows: Sequence[StoredRow], errors: Mapping[int, str]) -> Sequence[StoredRow]:
        await self._park(errors)
        rows = [row for row in rows if row.id not in errors]
        return await self._without_parked_keys(rows)

    async def _park(self, errors: Mapping[int, str]) -> None:
        if errors and not self._policy.parks:
            first = min(errors)
            raise RefusedRowError(
                f"row {first} is refused: {errors[first]}. Neither its batch nor anything behind it is sent before: "
                f"repair the cause, or run `aioproducer outbox skip URL {first}{options_of(self._outbox)}`"
            )
        await self._move_to_parked(errors)

    async def _move_to_parked(self, errors: Mapping[int, str]) -> None:
        """Park rows; no batch has them any more, for a person may move them back before it is confirmed."""
        async with self._turn:
            state = replace(self.state, claimed=tuple(_without(batch, errors) for batch in self.state.claimed))
            await self._store.park(state, errors)
            self.state = state


def _without(batch: Batch, ids: Container[int]) -> Batch:
    left = [each for first, last in batch.runs for each in range(first, last + 1) if each not in ids]
    return Batch(batch.number, runs_of(left))


def runs_of(ids: Sequence[int]) -> tuple[Run, ...]:
    """Return ascending ids as runs."""
    if ids and ids[-1] - ids[0] == len(ids) - 1:  # most batches
        return ((ids[0], ids[-1]),)
    runs: list[Run] = []
    for each in ids:
        if runs and runs[-1][1] == each - 1:
            runs[-1] = runs[-1][0], each
        else:
            runs.append((each, each))
    return tuple(runs)


def runs_in(batches: Iterable[Batch]) -> list[Run]:
    """Return the runs of all of them."""
    return [run for batch in batches for run in batch.runs]


def encode_claimed(claimed: Sequence[Batch]) -> str:
    """Return batches as the text that the database keeps."""
    return json.dumps([[batch.number, *chain.from_iterable(batch.runs)] for batch in claimed], separators=(",", ":"))


def decode_claimed(text: str) -> tuple[Batch, ...]:
    """Return the batches of such a text."""
    return tuple(
        Batch(number, tuple(zip(bounds[::2], bounds[1::2], strict=True))) for number, *bounds in json.loads(text)
    )


def shown_runs(runs: Iterable[Run]) -> str:
    """Return runs for a message; those after twenty are left out."""
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    return ", ".join(texts[:20]) + (", ..." if len(texts) > 20 else "")  # noqa: PLR2004  # as the docstring says
