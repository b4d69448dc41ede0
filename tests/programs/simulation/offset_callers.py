"""Callers that send offsets: of several partitions, awaited or not, and those of a member that is gone."""

import asyncio
from random import Random

from aioproducer import Producer
from aioproducer._producer.transaction import Transaction
from aioproducer.records import TopicPartition
from tests.programs.simulation.faults import TOPIC
from tests.programs.simulation.history import History
from tests.programs.simulation.plan import Plan
from tests.programs.simulation.transaction_stories import TransactionEnd, TransactionStory, member_of

LATER = "orders-later"
"""A topic of which brokers know nothing at first: the offsets of others are taken, and those of it are not yet."""

UNAWAITED = 0.25  # share of the calls that are not awaited before the commit: their offsets count all the same
STALE = 0.06  # share of the offsets that are sent for a member that the group does not have


class OffsetCaller:
    """Gives the offsets of one task's transactions."""

    def __init__(self, plan: Plan, chance: Random, history: History) -> None:
        self._plan = plan
        self._chance = chance
        self._history = history
        self._under_way: asyncio.Future[None] | None = None

    async def send(self, txn: Transaction | Producer, story: TransactionStory, *, is_calm: bool) -> None:
        """Give the offsets of a transaction."""
        if not is_calm and self._chance.random() < STALE:
            await self._send_stale(txn, story)
            return
        story.offset_places = self._places(is_calm=is_calm)
        offsets = dict.fromkeys(story.offset_places, (story.number, story.text_of_offsets))
        begun = asyncio.Event()

        async def give() -> None:
            begun.set()
            await txn.send_offsets(offsets, member_of(story.group))

        sending = asyncio.ensure_future(give())
        if is_calm or self._chance.random() >= UNAWAITED:
            await sending
        else:
            self._under_way = sending
            await begun.wait()  # else a schedule of priorities may put the commit before the call
        story.has_offset = True

    async def end(self, story: TransactionStory) -> None:
        sending, self._under_way = self._under_way, None
        if sending is None:
            return
        (error,) = await asyncio.gather(sending, return_exceptions=True)
        if error is not None and story.end is TransactionEnd.COMMITTED:
            self._history.violated("OFFSETS", f"{story}: committed, and its offsets were not: {error!r}")

    def _places(self, *, is_calm: bool) -> list[TopicPartition]:
        places = [TopicPartition(TOPIC, number) for number in range(self._plan.partitions)]
        chosen = self._chance.sample(places, self._chance.randint(1, len(places)))
        if not is_calm and self._chance.random() < 0.2:
            chosen.insert(self._chance.randint(0, len(chosen)), TopicPartition(LATER, 0))
        return chosen

    async def _send_stale(self, txn: Transaction | Producer, story: TransactionStory) -> None:
        """KIP-447: a consumer that has lost its partitions cannot commit for them."""
        story.is_stale = True
        await txn.send_offsets({(TOPIC, 0): story.number}, member_of(story.group, is_stale=True))
        self._history.violated("OFFSETS", f"{story}: offsets of a generation that the group does not have were taken")
