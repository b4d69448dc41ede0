"""Counts both topics with aiokafka's consumer, which sees only what is committed."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import chain

from aiokafka import AIOKafkaConsumer, ConsumerRecord


@dataclass(slots=True)
class Found:
    """Counts of what the topics hold."""

    flights: int = 0
    distinct_flights: int = 0
    updates: int = 0
    """Records of `delays`."""

    repeated_updates: int = 0
    """Those that say of a carrier and hour what was said before: a batch that came twice."""

    last: dict[str, dict[str, object]] = field(default_factory=dict)
    """Carrier and hour -> the last record."""

    @property
    def counted_flights(self) -> int:
        """Flights that the last records of all carriers and hours count."""
        return sum(int(str(each["flights"])) for each in self.last.values())


async def read_topics(bootstrap_servers: str) -> Found:
    """Read both topics from their beginning to their end."""
    found = Found()
    values: Counter[bytes | None] = Counter()
    async for record in committed(bootstrap_servers, "flights"):
        values[record.value] += 1
    found.flights, found.distinct_flights = values.total(), len(values)
    async for record in committed(bootstrap_servers, "delays"):
        key, value = record.key.decode(), json.loads(record.value)
        found.updates += 1
        found.repeated_updates += found.last.get(key, {}).get("flights") == value["flights"]
        found.last[key] = value
    return found


async def committed(bootstrap_servers: str, topic: str) -> AsyncIterator[ConsumerRecord]:
    """Yield the committed records that a topic has now."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        while [each for each, end in ends.items() if await consumer.position(each) < end]:
            fetched = await consumer.getmany(timeout_ms=500)
            for record in chain.from_iterable(fetched.values()):
                yield record
