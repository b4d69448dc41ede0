"""Callers of a producer: every method, patient or not, with callbacks and serializers that fail.

Each caller is a task with its own chance, so that what one does hardly depends on what others do. Every way in which a
call can end is written down in the story of its record.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from random import Random
from typing import TypeVar

from aioproducer import BufferTimeoutError, BulkResult, Delivery, KafkaError, RecordMetadata, UndeliveredError
from aioproducer._network.connection_pool import LONGEST_THROTTLE_MS
from tests.programs.simulation.drafts import Drafts
from tests.programs.simulation.excuses import may_be_taken_apart
from tests.programs.simulation.history import End, Story
from tests.programs.simulation.promise_watches import FlushWatch
from tests.programs.simulation.workload import TICK_S, Workload

ResultT = TypeVar("ResultT")

CALL_ERRORS = (KafkaError, TypeError, ValueError)

_PATIENCE_S = 60.0
_PAUSES = 0.04  # records come in bursts: after this many there is a pause, in proportion
_LONGEST_PAUSE_S = 50.0  # less than a run that was closed waits for its callers


def callers_of(load: Workload) -> list["Caller"]:
    each, more = divmod(load.plan.records, load.plan.clients)
    return [Caller(load, number, each + (number < more)) for number in range(load.plan.clients)]


class Caller:
    """One task that uses the producer."""

    def __init__(self, load: Workload, number: int, share: int) -> None:
        self._load = load
        self._chance = Random(f"{load.plan.family.name}-{load.plan.seed}-{number}")
        self._drafts = Drafts(load, number, share=share, chance=self._chance)
        self._with_faults = load.plan.user_faults
        self._slow: list[Delivery] = []  # looked at much later, by a slow consumer of deliveries
        verbs = load.plan.family.verbs
        self._verbs = [getattr(self, f"verb_{name}") for name, weight in verbs.items() for _ in range(weight)]

    async def run(self) -> None:
        chance, verbs = self._chance, self._verbs
        while self._drafts.left > 0 and not self._load.is_closing:
            verb, sent = verbs[int(chance.random() * len(verbs))], self._drafts.sent
            self._drafts.take_aim()
            if self._with_faults and chance.random() < self._load.plan.family.cancels:
                await self._impatiently(verb())
            else:
                await verb()
            await self._pause(self._drafts.sent - sent)
        for delivery in self._slow:
            if not delivery.done():
                await asyncio.wait([delivery])

    async def _pause(self, sent: int) -> None:
        pace = self._load.plan.pace_s
        if pace and self._chance.random() < _PAUSES * sent:
            now, pause_s = self._load.now(), min(self._chance.expovariate(_PAUSES / pace), _LONGEST_PAUSE_S)
            await asyncio.sleep(self._load.on_beat(now + pause_s) - now)
        elif self._chance.random() < 0.2:
            await asyncio.sleep(0)

    async def _impatiently(self, call: Coroutine[object, object, None]) -> None:
        """Make a call and cancel it at any moment, in one of the ways there are."""
        chance = self._chance
        patience_s = chance.choice((0.0, 0.001, 0.1)) * chance.random() * self._load.delivery_timeout_s
        if chance.random() < 0.3:
            try:
                async with asyncio.timeout(patience_s):
                    await call
            except TimeoutError:
                pass
            return
        task = asyncio.ensure_future(call)
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.7:
            await asyncio.sleep(patience_s)
        for _ in range(chance.randint(1, 2)):
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    # The verbs

    async def verb_send(self) -> None:
        """`send`, and then nothing, or one of the many ways to wait for a delivery."""
        delivery = None
        for _ in range(self._drafts.group()):
            delivery = self._call(self._drafts.story("send"), self._load.producer.send)
            if delivery is not None and self._chance.random() < 0.2:
                self._look_aside(delivery)
        if delivery is not None:
            await self._look_at(delivery)

    async def verb_nowait(self) -> None:
        for _ in range(self._drafts.group()):
            story = self._drafts.story("send_nowait")
            delivery = self._call(story, self._load.producer.send_nowait)
            story.is_left = delivery is not None and not story.expects_callback

    async def verb_enqueue(self) -> None:
        for _ in range(self._drafts.group()):
            await self._enqueue()

    async def _enqueue(self) -> None:
        story = self._drafts.story("enqueue")
        arguments = self._drafts.arguments(story)
        bound = min(self._load.max_block_s, self._load.lives_s(story))
        try:
            call = self._load.producer.enqueue(self._load.topic, **arguments)
            delivery = await self._bounded(story, call, bound)
        except CALL_ERRORS as error:
            self._refused(story, error)
            self._check_served(story, error)
        else:
            self._accepted(story, delivery)
            if self._chance.random() < 0.1:
                self._slow.append(delivery)

    async def verb_wait(self) -> None:
        """`send_and_wait`, which takes at most `delivery_timeout_ms` and what `enqueue` takes."""
        story = self._drafts.story("send_and_wait")
        call = self._load.producer.send_and_wait(self._load.topic, **self._drafts.arguments(story))
        bound = max(self._load.max_block_s, self._load.delivery_timeout_s)
        if story.deadline_s is not None:
            bound = self._load.lives_s(story)
        try:
            metadata = await self._bounded(story, call, bound)
        except CALL_ERRORS as error:
            story.fail(error, self._load.now())
        else:
            story.acknowledge(metadata, self._load.now())

    async def verb_many(self) -> None:
        count = min(self._drafts.left, self._drafts.group() + self._drafts.group())
        aim = self._drafts.aim()
        stories: list[Story] = []

        def values() -> Iterator[bytes | None]:
            for _ in range(count):  # one when its turn has come: that is its place among the calls
                stories.append(self._drafts.story_for("send_many", aim.partition, self._drafts.aim().key))
                yield stories[-1].value

        keys = (stories[-1].key for _ in range(count))
        try:
            bulk = await self._load.producer.send_many(self._load.topic, values(), keys=keys, partition=aim.partition)
            result = await bulk
        except CALL_ERRORS as error:
            for story in stories:
                story.fail(error, self._load.now())
            return
        except asyncio.CancelledError:
            for story in stories:
                story.give_up(self._load.now())
            raise
        self._take_result(stories, result)

    def _take_result(self, stories: list[Story], result: BulkResult) -> None:
        for position, story in enumerate(stories):
            if position in result.errors:
                story.fail(result.errors[position], self._load.now())
            else:
                story.end, story.ended_at, story.ranges = End.ACKNOWLEDGED, self._load.now(), result.offsets

    async def verb_gather(self) -> None:
        deliveries = []
        for _ in range(min(self._drafts.left, 1 + self._drafts.group())):
            delivery = self._call(self._drafts.story("send"), self._load.producer.send)
            if delivery is not None:
                deliveries.append(delivery)
        await asyncio.gather(*deliveries, return_exceptions=True)

    async def verb_flush(self) -> None:
        """`flush`: what was accepted before has ended then, within the time that records live."""
        load = self._load
        before = [story for story in load.deliveries if story.delivery is not None and not story.delivery.done()]
        began = load.now()
        watch = FlushWatch(load.history.stories, load.now)
        timeout = self._chance.choice((None, None, None, 0.0, 0.05 * load.delivery_timeout_s))
        load.history.note("caller", "flush(%s)", timeout)
        try:
            await load.producer.flush(timeout)
        except TimeoutError:
            self._load.check_bound("flush", began, 0.0 if timeout is None else timeout)
            return
        except UndeliveredError as error:
            load.history.note_undelivered(error)
        except KafkaError:
            if load.is_closing:
                return
            raise
        late = [str(story.record) for story in before if story.delivery is not None and not story.delivery.done()]
        if late:
            load.history.violated("FLUSH", f"flush returned before {', '.join(late)} had ended")
        # A batch may hold records of after the call: of its parts, if it is taken apart, the last may be theirs.
        if watch.overtime_s() > TICK_S and not may_be_taken_apart(load.plan):
            load.history.violated(
                "FLUSH", f"flush went on for {watch.overtime_s():.6f} s after all it waits for had ended"
            )
        self._load.check_bound("flush", began, max(load.delivery_timeout_s, load.max_block_s))

    def _call(self, story: Story, verb: Callable[..., Delivery]) -> Delivery | None:
        try:
            delivery = verb(self._load.topic, **self._drafts.arguments(story))
        except CALL_ERRORS as error:
            self._refused(story, error)
            return None
        self._accepted(story, delivery)
        return delivery

    async def _bounded(self, story: Story, call: Awaitable[ResultT], bound_s: float) -> ResultT:
        """Await a call that has a time of its own to end in."""
        try:
            return await call
        except asyncio.CancelledError:
            story.give_up(self._load.now())
            raise
        finally:
            self._load.check_bound(story, story.called_at, bound_s)

    def _check_served(self, story: Story, error: BaseException) -> None:
        """MEMORY: no call waits long for memory while brokers answer and have not asked for a pause."""
        has_patience = self._load.max_block_s >= _PATIENCE_S
        pause_s = 0.0 if self._load.plan.is_honest else LONGEST_THROTTLE_MS / 1000
        is_healthy = 0.0 < self._load.healthy_since < story.called_at - pause_s
        if isinstance(error, BufferTimeoutError) and has_patience and is_healthy and story.deadline_s is None:
            self._load.history.violated("MEMORY", f"{story.record} found no memory on a healthy cluster: {error}")

    def _accepted(self, story: Story, delivery: Delivery) -> None:
        story.delivery = delivery
        self._load.deliveries.append(story)

    def _refused(self, story: Story, error: BaseException) -> None:
        story.expects_callback = False
        if self._load.history.secrecy is not None:
            self._load.history.secrecy.look_at_error(error)
        story.fail(error, self._load.now())
        self._load.history.note("caller", "%s is refused: %s", story.record, story.error)

    # What callers do with deliveries

    async def _look_at(self, delivery: Delivery) -> None:
        """Wait for it, in one of the ways there are, or do not."""
        dice = self._chance.random()
        if dice < 0.05:
            patience_s = None if dice < 0.02 else 0.01 * self._load.delivery_timeout_s
            await asyncio.gather(_awaited(delivery, patience_s), _awaited(delivery), return_exceptions=True)
        elif dice < 0.15:
            await asyncio.wait([delivery])
        elif dice < 0.2:
            await asyncio.wait([delivery], timeout=0.1 * self._load.delivery_timeout_s)
        elif dice < 0.4:
            self._look_aside(delivery)

    def _look_aside(self, delivery: Delivery) -> None:
        """Look later, or leave it to a callback, or give it up."""
        dice = self._chance.random()
        if dice < 0.5:
            self._slow.append(delivery)
        elif dice < 0.75 and self._with_faults:
            delivery.add_done_callback(_fail)
        elif self._with_faults:
            delivery.cancel()


async def _awaited(delivery: Delivery, patience_s: float | None = None) -> RecordMetadata:
    async with asyncio.timeout(patience_s):  # a caller that gives up leaves the others waiting
        return await delivery


def _fail(_: asyncio.Future[RecordMetadata]) -> None:
    raise RuntimeError("the caller's own done callback fails")
