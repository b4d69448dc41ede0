"""Watches the leaders and writes down every change, so that it is known when a leader's term ended."""

import asyncio

from confluent_kafka import KafkaException

from tests.programs.chaos.arena import Arena, now_us
from tests.programs.chaos.checker.losses import Event

LOOK_S = 1.0


async def watch_leaders(arena: Arena) -> None:
    before_us, before = now_us(), await arena.leaders()
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            after = await arena.leaders()
        except KafkaException:  # no broker answers: what changed meanwhile is seen later
            continue
        moved = [
            [int(topic), int(partition)]
            for topic, led in after.items()
            for partition, node in led.items()
            if before.get(topic, {}).get(partition, node) != node
        ]
        after_us = now_us()
        if moved:
            arena.tell(Event(kind="leaders_moved", begin_us=before_us, end_us=after_us, moved=moved))
        before_us, before = after_us, {topic: {**before.get(topic, {}), **led} for topic, led in after.items()}
