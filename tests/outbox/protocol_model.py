"""A model of a database and of Kafka, in which every request of a relay is a step that a scheduler orders.

The oldest request is carried out first, unless the chooser says otherwise: another one comes first, an answer is lost,
a request fails, arrives after the relay has died, or never; a transaction of Kafka times out. The relays take each
other's place at will, as if no lease were kept. Each may have another number of shards.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random
from typing import Protocol

from aioproducer.outbox._errors import InDoubtError, RelayFencedError, ShardsChangedError
from aioproducer.outbox._protocol import (
    Batch,
    Claimed,
    Policy,
    Position,
    PositionRefusedError,
    RowsRefusedError,
    Session,
    State,
    StoredRow,
    Waiting,
    runs_of,
)

LIMIT = 2
"""Rows of a batch."""
MOST_STEPS = 300
"""With which the last relay sends all that is left."""
REST = 25
"""Steps for which a relay that was fenced stands by, unless the chooser hurries it."""
TURNS = 5
"""Of the event loop, until every task waits for a step."""


class LostError(Exception):
    """No answer: the request may have been carried out."""


class FencedError(Exception):
    """Kafka refuses an older epoch."""


KEYS = ("writer x", "writer y")
STAND_BY = (FencedError, RelayFencedError, ShardsChangedError)


class Chooser(Protocol):
    def choose(self, options: int) -> int: ...


class Deviations:
    """Chooses the first option but at some steps."""

    def __init__(self, chosen: Mapping[int, int]) -> None:
        self._chosen = chosen
        self._step = -1
        self.options: list[int] = []

    def choose(self, options: int) -> int:
        self._step += 1
        self.options.append(options)
        return min(self._chosen.get(self._step, 0), options - 1)


class Mostly:
    """Chooses the first option nine times of ten."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def choose(self, options: int) -> int:
        return 0 if self._random.random() < 0.9 else self._random.randrange(options)


@dataclass
class Request:
    actor: "Actor"
    effect: Callable[[], object]
    answer: "asyncio.Future[object]"


@dataclass(eq=False)
class Actor:
    name: str
    run: Callable[["Actor"], Coroutine[object, object, None]]
    rest: int = 0
    """Steps for which it stands by."""
    task: "asyncio.Task[None] | None" = None
    state: State | None = None
    """With which its last session began."""


@dataclass
class Transactions:
    """What Kafka keeps of one transactional id and its group."""

    epoch: int = 0
    staged: tuple[list[StoredRow], Position | None] = field(default_factory=lambda: ([], None))
    staged_topic: str = ""
    position: Position | None = None
    topic: str = ""
    """Of the position."""


@dataclass
class World:
    """What the database and Kafka keep, and what is on its way to them."""

    states: list[State] = field(default_factory=lambda: [State(identity="0", epoch=0)])  # of each shard
    identities: "count[int]" = field(default_factory=lambda: count(1))
    rows: dict[int, str] = field(default_factory=dict)  # id -> key; committed
    parked: dict[int, str] = field(default_factory=dict)
    written: list[int] = field(default_factory=list)  # ids that were committed, ever
    keys: dict[int, str] = field(default_factory=dict)
    refused: frozenset[int] = frozenset()
    retried: set[int] = field(default_factory=set)
    ids: "count[int]" = field(default_factory=lambda: count(1))
    tokens: "count[int]" = field(default_factory=lambda: count(1))
    kafka: dict[str, Transactions] = field(default_factory=lambda: defaultdict(Transactions))  # by identity
    log: list[int] = field(default_factory=list)
    topic: str = "topic"
    """The one that positions may have; after it is deleted, another one."""
    doubts: int = 0
    requests: list[Request] = field(default_factory=list)

    async def ask(self, actor: Actor, effect: Callable[[], object]) -> object:
        request = Request(actor, effect, asyncio.get_running_loop().create_future())
        self.requests.append(request)
        return await request.answer

    @property
    def is_sent(self) -> bool:
        return not self.rows and not any(state.claimed for state in self.states)

    # The database

    def resize(self, finished: Sequence[State], shards: int) -> bool:
        now = [(state.identity, state.epoch, state.claimed) for state in self.states]
        if self.is_refused(now != [(state.identity, state.epoch, ()) for state in finished]):
            return False
        kept = [replace(state, epoch=state.epoch + 1) for state in self.states[:shards]]
        made = [State(identity=str(next(self.identities)), epoch=0) for _ in range(shards - len(kept))]
        self.states = [replace(state, shard=at, shards=shards) for at, state in enumerate([*kept, *made])]
        return True

    def retry(self) -> None:
        """Repair the cause of each refusal, and move the parked rows back."""
        self.retried |= self.parked.keys()
        self.refused -= self.parked.keys()
        self.rows |= self.parked
        self.parked.clear()

    def is_refused(self, is_other: bool) -> bool:  # noqa: FBT001  # tests take it away
        return is_other

    # Kafka

    def init(self, identity: str) -> int:
        self.kafka[identity].epoch += 1
        self.kafka[identity].staged = ([], None)
        return self.kafka[identity].epoch

    def check(self, identity: str, epoch: int) -> None:
        if epoch != self.kafka[identity].epoch:
            raise FencedError

    def stage(self, identity: str, epoch: int, rows: Sequence[StoredRow]) -> None:
        self.check(identity, epoch)
        staged, position = self.kafka[identity].staged
        self.kafka[identity].staged = ([*staged, *rows], position)

    def stage_position(self, identity: str, epoch: int, position: Position, *, topic: str) -> None:
        self.check(identity, epoch)
        if topic != self.topic:
            raise PositionRefusedError
        self.kafka[identity].staged = (self.kafka[identity].staged[0], position)
        self.kafka[identity].staged_topic = topic

    def end(self, identity: str, epoch: int, *, commit: bool) -> None:
        self.check(identity, epoch)
        rows, position = self.kafka[identity].staged
        self.kafka[identity].staged = ([], None)
        if commit:
            if position is None:
                raise FencedError  # it timed out
            self.log += [row.id for row in rows]
            self.kafka[identity].position = position
            self.kafka[identity].topic = self.kafka[identity].staged_topic

    def delete_topic(self) -> None:
        """Delete the topic of the positions, and these with it."""
        self.topic += "+"

    def position(self, identity: str, topic: str) -> Position | None:
        kept = self.kafka[identity]
        return kept.position if kept.topic == topic == self.topic else None

    def decide(self, state: State) -> None:
        """Be the person who is asked which rows of the claimed batches are in Kafka, unless another relay works."""
        known = self.states[state.shard] if state.shard < len(self.states) else None
        if known == state:
            self.rows = {number: key for number, key in self.rows.items() if number not in self.log}
            self.states[state.shard] = replace(state, epoch=state.epoch + 1, topic=None)

    def time_out(self) -> None:
        """Abort what is open, as brokers do, and fence its producer."""
        for identity in [*self.kafka]:
            if self.kafka[identity].staged != ([], None):
                self.init(identity)


class ModelStore:
    def __init__(self, world: World, actor: Actor, *, shard: int, shards: int) -> None:
        self._world = world
        self._ask = partial(world.ask, actor)
        self._shard = shard
        self._shards = shards

    def _check(self, state: State) -> None:
        known = self._world.states[self._shard] if self._shard < len(self._world.states) else None
        if known is None or (state.identity, state.epoch) != (known.identity, known.epoch):
            raise RelayFencedError

    def _write(self, **changes: object) -> None:
        self._world.states[self._shard] = replace(self._world.states[self._shard], **changes)  # type: ignore[arg-type]  # of a state

    async def take_over(self) -> State:
        def effect() -> State:
            if len(self._world.states) != self._shards:
                raise ShardsChangedError
            self._write(epoch=self._world.states[self._shard].epoch + 1)
            return self._world.states[self._shard]

        state = await self._ask(effect)
        assert isinstance(state, State)
        return state

    async def settle(self, state: State) -> None:
        def effect() -> None:
            self._check(state)
            known = self._world.states[self._shard]
            self._delete([batch for batch in known.claimed if batch not in state.claimed])
            self._world.states[self._shard] = replace(state, number=known.number)

        await self._ask(effect)

    async def forget_topic(self, state: State, committed: Collection[int]) -> None:
        def effect() -> None:
            self._check(state)
            known = self._world.states[self._shard].claimed
            self._delete([batch for batch in known if batch.number in committed])
            self._write(claimed=tuple(batch for batch in known if batch.number not in committed), topic=None)

        await self._ask(effect)

    def _delete(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            for first, last in batch.runs:
                for number in range(first, last + 1):
                    self._world.rows.pop(number, None)

    def _own(self) -> list[int]:
        rows = self._world.rows
        return [each for each in sorted(rows) if KEYS.index(rows[each]) % self._shards == self._shard]

    async def claim(self, state: State, confirmed: Sequence[Batch]) -> Claimed | None:
        def effect() -> Claimed | None:
            self._check(state)
            self._delete(confirmed)
            taken = {each for batch in state.claimed for run in batch.runs for each in range(run[0], run[1] + 1)}
            free = [each for each in self._own() if each not in taken][:LIMIT]
            if not free:
                self._write(claimed=state.claimed)
                return None
            batch = Batch(state.number + 1, runs_of(free))
            self._write(number=batch.number, claimed=(*state.claimed, batch))
            return Claimed(batch, [self._row(each) for each in free], is_full=len(free) == LIMIT)

        claimed = await self._ask(effect)
        assert claimed is None or isinstance(claimed, Claimed)
        return claimed

    def _row(self, number: int) -> StoredRow:
        return StoredRow(number, "topic", self._world.rows[number].encode(), b"", None, None, 0)

    async def read(self, batch: Batch) -> Sequence[StoredRow]:
        def effect() -> list[StoredRow]:
            every = [each for first, last in batch.runs for each in range(first, last + 1)]
            return [self._row(each) for each in every if each in self._world.rows]

        rows = await self._ask(effect)
        assert isinstance(rows, list)
        return rows

    async def first_rows(self) -> Sequence[Waiting]:
        rows = await self._ask(lambda: [Waiting(number, "topic") for number in self._own()])
        assert isinstance(rows, list)
        return rows

    async def park(self, state: State, refused: Mapping[int, str]) -> None:
        def effect() -> None:
            self._check(state)
            for number in refused:
                if number in self._world.rows:
                    self._world.parked[number] = self._world.rows.pop(number)
            self._write(claimed=state.claimed)

        await self._ask(effect)

    async def parked_keys(self, rows: Sequence[StoredRow]) -> Mapping[tuple[str, bytes], int]:
        def effect() -> Mapping[tuple[str, bytes], int]:
            oldest_last = sorted(self._world.parked.items(), reverse=True)
            found = {("topic", key.encode()): number for number, key in oldest_last}
            return {key: number for key, number in found.items() if key in {(row.topic, row.key) for row in rows}}

        keys = await self._ask(effect)
        assert isinstance(keys, dict)
        return keys


class ModelLog:
    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._ask = partial(world.ask, actor)
        self._identity = ""
        self._epoch = -1

    async def open(self, identity: str) -> None:
        epoch = await self._ask(partial(self._world.init, identity))
        assert isinstance(epoch, int)
        self._identity, self._epoch = identity, epoch

    async def position(self, topic: str) -> Position | None:
        position = await self._ask(partial(self._world.position, self._identity, topic))
        assert position is None or isinstance(position, Position)
        return position

    async def topic_that_is_there(self, topics: Collection[str]) -> tuple[str | None, Mapping[str, str]]:
        assert {*topics} <= {"topic"}
        return self._world.topic if topics else None, {}

    async def commit(self, rows: Sequence[StoredRow], topic: str, position: Position) -> None:
        refused = {row.id: "refused" for row in rows if row.id in self._world.refused}
        of = self._identity, self._epoch
        await self._ask(partial(self._world.stage, *of, rows))
        await self._ask(partial(self._world.stage_position, *of, position, topic=topic))
        await self._ask(partial(self._world.end, *of, commit=not refused))
        if refused:
            raise RowsRefusedError(refused)


class History:
    """One run: two relays and two writers until the steps are over, then a last relay that sends what is left.

    Args:
        shards: of each relay.
        retries_at: step before which parked rows are moved back.
        deletes_at: steps before which the topic of the positions is deleted.
    """

    def __init__(  # noqa: PLR0913  # what happens, for how long, and to what
        self,
        chooser: Chooser,
        *,
        steps: int,
        policy: Policy,
        refused: frozenset[int] = frozenset(),
        shards: tuple[int, int] = (1, 1),
        retries_at: int | None = None,
        deletes_at: Collection[int] = (),
    ) -> None:
        self._chooser = chooser
        self._deletes_at = deletes_at
        self._retries_at = retries_at
        self._shards = shards
        self._steps = steps
        self._policy = policy
        self.world = World(refused=refused)
        self._actors: list[Actor] = []
        self._late: list[Request] = []  # of relays that have died

    async def run(self) -> World:
        for name, writer, shards, rest in zip("ab", KEYS, self._shards, (0, REST), strict=True):
            for shard in range(shards):
                self._begin(f"relay {name}", partial(self._relay, shard=shard, shards=shards), rest=rest)
            self._begin(writer, self._writer)
        for step in range(self._steps):
            await self._until_all_wait()
            self._act_at(step)
            options = self._options()
            options[self._chooser.choose(len(options))]()
        for actor in self._actors:
            await self._die(actor)
        self._late.clear()
        self._begin("last", partial(self._relay, shard=0, shards=1))
        for _ in range(MOST_STEPS):
            await self._until_all_wait()
            if self.world.is_sent:
                break
            self._carry_out(self.world.requests[0])
        await self._die(self._actors[-1])
        return self.world

    def _act_at(self, step: int) -> None:
        """Do what was asked for at this step."""
        if step == self._retries_at:
            self.world.retry()
        if step in self._deletes_at:
            self.world.delete_topic()

    def _begin(self, name: str, run: Callable[[Actor], Coroutine[object, object, None]], *, rest: int = 0) -> None:
        actor = Actor(name, run, rest)
        actor.task = asyncio.create_task(run(actor))
        self._actors.append(actor)

    async def _until_all_wait(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.world.requests = [each for each in self.world.requests if not each.answer.done()]

    def _options(self) -> list[Callable[[], None]]:
        requests = self.world.requests
        options = [partial(self._carry_out, request) for request in requests]
        options += [partial(self._carry_out, request, is_lost=True) for request in requests]
        options += [partial(self._fail, request) for request in requests]
        options += [partial(self._restart, request.actor) for request in requests if "relay" in request.actor.name]
        options += [partial(self._carry_out_late, request) for request in self._late]
        options += [partial(setattr, request.actor, "rest", 0) for request in requests if request.actor.rest]
        return [*options, self.world.time_out]

    def _carry_out(self, request: Request, *, is_lost: bool = False) -> None:
        self.world.requests.remove(request)
        try:
            result = request.effect()
        except (*STAND_BY, PositionRefusedError) as error:
            request.answer.set_exception(error)
            return
        if is_lost:
            request.answer.set_exception(LostError())
        else:
            request.answer.set_result(result)

    def _fail(self, request: Request) -> None:
        self.world.requests.remove(request)
        request.answer.set_exception(LostError())

    def _restart(self, actor: Actor) -> None:
        """Let a relay die; what it has asked may still arrive. Another one begins in its place."""
        self._late += [each for each in self.world.requests if each.actor is actor]
        self.world.requests = [each for each in self.world.requests if each.actor is not actor]
        assert actor.task is not None
        actor.task.cancel()
        self._begin(actor.name, actor.run)

    def _carry_out_late(self, request: Request) -> None:
        self._late.remove(request)
        try:
            request.effect()
        except (*STAND_BY, PositionRefusedError):
            return

    async def _die(self, actor: Actor) -> None:
        assert actor.task is not None
        actor.task.cancel()
        await asyncio.wait([actor.task])
        if not actor.task.cancelled():
            actor.task.result()
        self.world.requests = [each for each in self.world.requests if each.actor is not actor]

    # Actors

    async def _relay(self, actor: Actor, *, shard: int, shards: int) -> None:
        """Be the worker of one shard, which divides the outbox where another number is found."""
        while True:
            try:
                while actor.rest > 0:
                    actor.rest -= 1
                    await self.world.ask(actor, lambda: None)
                await self._agree(actor, shards)
                session = await self._session(actor, shard, shards)
                await session.begin()
                while True:
                    await session.send_waiting()
                    await self.world.ask(actor, lambda: None)
            except STAND_BY:
                actor.rest = REST
            except (LostError, PositionRefusedError):
                continue
            except InDoubtError:
                assert actor.state is not None
                self.world.doubts += 1
                await self._asked_until_known(actor, partial(self.world.decide, actor.state))

    async def _agree(self, actor: Actor, shards: int) -> None:
        while (stored := len(self.world.states)) != shards:
            finished = []
            for shard in range(stored):
                session = await self._session(actor, shard, stored)
                await session.finish()
                finished.append(session.state)
            await self.world.ask(actor, partial(self.world.resize, finished, shards))

    async def _session(self, actor: Actor, shard: int, shards: int) -> Session:
        store, log = ModelStore(self.world, actor, shard=shard, shards=shards), ModelLog(self.world, actor)
        token = f"token {next(self.world.tokens)}"
        actor.state = await store.take_over()
        return Session(store, log, actor.state, token=token, policy=self._policy)

    async def _writer(self, actor: Actor) -> None:
        """Write rows of one key: transactions of one and two rows one after another, every third rolled back."""
        for transaction in range(6):
            numbers: list[int] = []
            for _ in range(1 + transaction % 2):
                await self._asked_until_known(actor, lambda: numbers.append(next(self.world.ids)))  # noqa: B023  # called before the next round
            if transaction % 3 != 2:
                await self._asked_until_known(actor, partial(self._commit, numbers, actor.name))

    async def _asked_until_known(self, actor: Actor, effect: Callable[[], object]) -> None:
        try:
            await self.world.ask(actor, effect)
        except LostError:  # the writer looks what became of its transaction
            return

    def _commit(self, numbers: Sequence[int], key: str) -> None:
        self.world.rows |= dict.fromkeys(numbers, key)
        self.world.keys |= dict.fromkeys(numbers, key)
        self.world.written += numbers
