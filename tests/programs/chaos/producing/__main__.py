"""A producer process: `python -m tests.programs.chaos.producing ORDERS`.

SIGTERM ends it as orders end: it closes first.
"""

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from tests.programs.chaos.checker.cell_description import End
from tests.programs.chaos.checker.history_file import HistoryWriter
from tests.programs.chaos.plans import CLIENTS_OF_A_PROCESS
from tests.programs.chaos.producing.orders import Orders, loads
from tests.programs.chaos.producing.workloads import Workload


class ErrorLog(logging.Handler):
    """Keeps everything that is logged at ERROR in the process."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.with_cause: list[str] = []
        self.without_cause: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it; asyncio logs only unretrieved exceptions, which never count as having a cause."""
        text = f"{record.name}: {record.getMessage()}"
        is_explained = record.name == "aioproducer" and ("error=" in text or record.exc_info is not None)
        (self.with_cause if is_explained else self.without_cause).append(self.format(record))


async def produce(orders: Orders, errors: ErrorLog) -> None:
    """Run the workload until SIGTERM, then write how it ended."""
    history = HistoryWriter(orders.history_file)
    workload = Workload(orders, history)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, workload.stop.set)
    try:
        await workload.run()
    finally:
        history.close()
    end = End(
        clients=[orders.first_client, orders.first_client + CLIENTS_OF_A_PROCESS],
        closes=workload.closes,
        errors=errors.with_cause,
        errors_without_cause=errors.without_cause,
        failed_starts=workload.failed_starts,
        lags=workload.lags,
    )
    orders.end_file.write_text(json.dumps(end), "utf-8")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    orders = loads(sys.argv[1])
    errors = ErrorLog()
    events = logging.FileHandler(Path(orders.folder, f"events-{orders.name}.log"))
    events.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[errors, events])
    asyncio.run(produce(orders, errors))


if __name__ == "__main__":
    main()
