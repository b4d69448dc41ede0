"""A cell's folder written by hand: histories and dumps as a test wants them, for the tests of the checker."""

import json
from pathlib import Path
from typing import Any

from tests.programs.chaos.checker.__main__ import check_cell
from tests.programs.chaos.checker.cell_files import LOG_ROW, ROW, Covered, Finding, Kind, save_coverage
from tests.programs.chaos.checker.verdict import Verdict

SECOND = 1_000_000

CLIENT = 7
SENT_MS = 1_000


class WrittenCell:
    """Two topics: 1 is written with idempotence, 2 with acks=1. Time runs a millisecond a row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_us = 100 * SECOND
        self.limits = {"request_timeout_ms": 5_000, "delivery_timeout_ms": 30_000, "max_block_ms": 1_000}
        self.events: list[dict[str, Any]] = []
        self.lasting: list[int] = []
        self.sending_ended_us = 200 * SECOND
        self._history = bytearray()
        self.next = 0  # number of the next record
        self._logs: dict[tuple[int, int], bytearray] = {(1, 0): bytearray(), (2, 0): bytearray()}
        self._covered: dict[tuple[int, int], Covered] = {}

    # The history

    def invoke(self, *, partition: int = 0, topic: int = 1) -> int:
        n, self.next = self.next, self.next + 1
        self._write(Kind.INVOKE, topic, partition, CLIENT, n, -1, SENT_MS)
        return n

    def ok(self, n: int, offset: int, *, partition: int = 0, topic: int = 1, timestamp: int = SENT_MS) -> None:
        self._write(Kind.OK, topic, partition, CLIENT, n, offset, timestamp)

    def failed(self, n: int, kind: Kind) -> None:
        self._write(kind, 1, -1, CLIENT, n, -1, -1)

    def acknowledged(self, count: int, *, topic: int = 1) -> None:
        for offset in range(count):
            n = self.invoke(topic=topic)
            self.ok(n, offset, topic=topic)
            self.log(n, offset, topic=topic)

    def _write(self, *fields: int) -> None:
        self.now_us += 1_000
        self._history += ROW.pack(*fields, self.now_us)

    # The logs

    def log(  # noqa: PLR0913 - a record in a log has that many parts
        self,
        n: int,
        offset: int,
        *,
        partition: int = 0,
        topic: int = 1,
        life: int = 0,
        epoch: int = 0,
        finding: Finding = Finding.OURS,
        client: int = CLIENT,
        timestamp: int = SENT_MS,
    ) -> None:
        row = LOG_ROW.pack(finding, partition, epoch, client, n, offset, timestamp)
        self.log_of(topic, life).extend(row)

    def log_of(self, topic: int, life: int) -> bytearray:
        return self._logs.setdefault((topic, life), bytearray())

    def covers(self, topic: int, life: int, **fields: Any) -> None:
        self._covered[topic, life] = Covered(topic, f"id-{life}", **fields)

    # The rest

    def fault(self, kind: str, begin_s: float, healed_s: float, **fields: Any) -> None:
        times = {"begin_us": self.at(begin_s), "end_us": self.at(healed_s), "healed_us": self.at(healed_s)}
        self.events.append({"kind": kind, **times, **fields})

    def at(self, seconds: float) -> int:
        return self.now_us + int(seconds * SECOND)

    def check(self, **end: Any) -> Verdict:
        """Write it all down and check it; `end` is what the process says of its end."""
        topics = {"1": {"name": "one", "idempotent": True}, "2": {"name": "two", "idempotent": False}}
        cell = {
            "seed": 0,
            "topics": topics,
            "limits": self.limits,
            "lasting_clients": self.lasting,
            "sending_ended_us": self.sending_ended_us,
        }
        lists: dict[str, list[Any]] = {"closes": [], "errors": [], "errors_without_cause": [], "lags": []}
        ended = {"clients": [0, 100], "failed_starts": 0, **lists, **end}
        (self.folder / "cell.json").write_text(json.dumps(cell), "utf-8")
        (self.folder / "end-p.json").write_text(json.dumps(ended), "utf-8")
        (self.folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in self.events), "utf-8")
        (self.folder / "history-p.bin").write_bytes(self._history)
        for (topic, life), rows in self._logs.items():
            file = self.folder / f"log-{topic}-{life}.bin"
            file.write_bytes(rows)
            save_coverage(file, self._covered.get((topic, life), Covered(topic, f"id-{life}")))
        return check_cell(self.folder)


def checks(cell: WrittenCell, **end: Any) -> dict[str, int]:
    return dict(cell.check(**end).violations)
