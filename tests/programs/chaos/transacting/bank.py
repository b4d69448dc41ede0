"""W5: a teller moves money between accounts; what there is in all does not change.

A transfer writes the new balances of two accounts, each to its account's partition, in one transaction. The teller
knows the balances from what it has committed, and a new life of it reads them, as a reader of what is committed finds
them. So a transfer that is torn, lost, doubled, or visible though it was aborted, makes or destroys money.
"""

import asyncio
import json
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError as AiokafkaError

from aioproducer import Delivery, KafkaError, Transaction
from tests.programs.chaos.transacting.life import PARTITIONS, Transacting

TELLER = "teller"
ACCOUNTS = 10
AT_FIRST = 1_000
TRANSFER_RECORDS = 2
READ_S = 20.0


class Balance(NamedTuple):
    """Value of a record: which transaction wrote it, and the new balance."""

    transactional_id: str
    life: str
    number: int
    index: int
    account: int
    amount: int

    def encode(self) -> bytes:
        return json.dumps(self).encode()


def decode_balance(value: bytes) -> Balance:
    return Balance(*json.loads(value))


class Teller(Transacting):
    goes_on_without_knowing = False

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self._balances: dict[int, int] = {}
        self._wanted: dict[int, int] = {}

    async def begin_life(self) -> None:
        try:
            async with asyncio.timeout(READ_S):
                found = await read_balances(self.bootstrap, self.topic)
        except (AiokafkaError, TimeoutError) as error:
            raise KafkaError(f"the balances cannot be read: {error!r}") from error
        self._balances = dict.fromkeys(range(ACCOUNTS), AT_FIRST) | found

    async def fill(self, txn: Transaction, life: str, number: int) -> Delivery:
        giver, taker = self.rng.sample(range(ACCOUNTS), 2)
        amount = self.rng.randint(1, 100)
        self._wanted = {giver: self._balances[giver] - amount, taker: self._balances[taker] + amount}
        for index, (account, balance) in enumerate(self._wanted.items()):
            value = Balance(self.transactional_id, life, number, index, account, balance)
            delivery = await txn.enqueue(self.topic, value.encode(), partition=account % PARTITIONS)
        return delivery

    def note_end(self, *, is_committed: bool) -> None:
        if is_committed:
            self._balances |= self._wanted


async def read_balances(bootstrap: str, topic: str) -> dict[int, int]:
    """The last balance of each account, up to where everything is committed or aborted."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    balances: dict[int, int] = {}
    try:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        while not all([await consumer.position(place) >= end for place, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                told = (decode_balance(record.value) for record in records)
                balances |= {balance.account: balance.amount for balance in told}
    finally:
        await consumer.stop()
    return balances
