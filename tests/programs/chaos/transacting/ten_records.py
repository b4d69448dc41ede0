"""W3 and W6: one transaction of ten records after the other."""

from aioproducer import Delivery, Transaction
from tests.programs.chaos.transacting.history import PARTITIONS, RECORDS, Value
from tests.programs.chaos.transacting.life import Transacting


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
