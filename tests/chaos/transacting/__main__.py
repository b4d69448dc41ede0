"""A transacting process: `python -m tests.chaos.transacting FOLDER BOOTSTRAP TOPIC TRANSACTIONAL_ID NAME`.

W3 and W6: transactions of ten records over three partitions, until SIGTERM. With the name `teller` it is W5, transfers
between accounts (`tests/chaos/transacting/bank.py`).
"""

import asyncio
import signal
import sys

from aioproducer import Transaction
from tests.chaos.transacting.bank import TELLER, Teller
from tests.chaos.transacting.history import PARTITIONS, RECORDS, Value
from tests.chaos.transacting.life import Transacting


class TenRecords(Transacting):
    """W3 and W6."""

    async def begin_life(self) -> None:
        """Nothing is needed."""

    def note_end(self, *, is_committed: bool) -> None:
        """Nothing depends on it."""

    async def fill(self, txn: Transaction, life: str, number: int) -> None:
        """Ten records, in turn to the partitions."""
        for index in range(RECORDS):
            value = Value(self.transactional_id, life, number, index).encode()
            await txn.enqueue(self.topic, value, partition=index % PARTITIONS)


async def main() -> None:
    """Run until SIGTERM."""
    transacting = (Teller if sys.argv[-1] == TELLER else TenRecords)(*sys.argv[1:])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, transacting.stop.set)
    await transacting.run()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    asyncio.run(main())
