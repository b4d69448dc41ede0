"""A transacting process: `python -m tests.programs.chaos.transacting FOLDER BOOTSTRAP TOPIC NAME TRANSACTIONAL_ID...`.

W3 and W6: a producer for each id, all at work in one event loop, until SIGTERM. With the name `teller` it is W5,
transfers between accounts (`tests/programs/chaos/transacting/bank.py`). With the name `completer` it is W9.
"""

import asyncio
import signal
import sys

from tests.programs.chaos.transacting.bank import TELLER, Teller
from tests.programs.chaos.transacting.completing import COMPLETER, Completer
from tests.programs.chaos.transacting.life import TenRecords, Transacting


async def main() -> None:
    folder, bootstrap, topic, name, *transactional_ids = sys.argv[1:]
    clients: list[Transacting | Completer]
    if name == COMPLETER:
        clients = [Completer(folder, bootstrap, topic, *transactional_ids)]
    else:
        kind = Teller if name == TELLER else TenRecords
        clients = [
            kind(folder, bootstrap, topic, transactional_id, f"{name}-{index}")
            for index, transactional_id in enumerate(transactional_ids)
        ]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [each.stop.set() for each in clients])
    async with asyncio.TaskGroup() as tasks:
        for each in clients:
            tasks.create_task(each.run())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    asyncio.run(main())
