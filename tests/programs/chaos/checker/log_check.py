"""Checks one log against the histories: LOST, ORDER, NOT_WRITTEN, DUPLICATE, FOREIGN and RECORD_METADATA.

A record is (client, n). Each dump is one life of one topic, by topic id; a topic that was deleted has several. Loading
a history checks what it must be in itself (ENDS_ONCE): positions without gaps, one outcome each, all in time.
"""

import dataclasses
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.programs.chaos.checker.cell_files import (
    Covered,
    Event,
    Finding,
    Kind,
    LogRow,
    Row,
    load_coverage,
    read_dump,
    read_history,
)
from tests.programs.chaos.checker.verdict import Verdict

# Losses with acks=1: the leader answers before its followers have the record. If it then dies, freezes, restarts or
# hands over, the next leader's log may end earlier, and what was beyond is gone. Such a loss leaves marks, and all are
# asked for:
#
# - in the log, a later leader epoch: what stands at the lost offset now, or first after it, was written under a later
#   epoch than the client's last record before the lost one; or nothing stands there at all;
# - in the history, the end of the partition's leader, not long before or after the acknowledgement: a fault that took
#   it, or a watcher of the cluster saw that another node leads (a node that is starved loses what it leads, too).

LAG_US = 30_000_000  # a follower may be that far behind and still become leader (`replica.lag.time.max.ms`)

ANSWER_US = 15_000_000
"""An acknowledgement may be read that long after its leader lost its place: a frozen node, a slow link."""


class PartitionLog:
    """Offsets and leader epochs of one partition as it was found, in order."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.epochs = array("i")

    def append(self, offset: int, epoch: int) -> None:
        self.offsets.append(offset)
        self.epochs.append(epoch)

    def epoch_from(self, offset: int) -> int | None:
        """Leader epoch of the first record at `offset` or after it; `None` beyond the end."""
        index = bisect_left(self.offsets, offset)
        return self.epochs[index] if index < len(self.epochs) else None


def explained(epochs: tuple[int, int | None], place: tuple[int, int], *, when_us: int, events: Sequence[Event]) -> bool:
    """Whether the leader of a lost record, which was acknowledged at `when_us`, died.

    Epochs are those of the client's last record before it that is in the log (-1: there is none), and of what stands
    in its place (`None`: nothing); the place is topic number and partition.
    """
    before, after = epochs
    if after is not None and after <= before:
        return False
    topic, partition = place
    return any(_took_leader(event, str(topic), str(partition), when_us=when_us) for event in events)


def _took_leader(event: Event, topic: str, partition: str, *, when_us: int) -> bool:
    if not event.get("begin_us", 0) - LAG_US <= when_us <= event.get("end_us", 0) + ANSWER_US:
        return False
    if "moved" in event:
        return [int(topic), int(partition)] in event["moved"]
    leaders: Mapping[str, int] = event.get("leaders", {}).get(topic, {})
    return partition not in leaders or leaders[partition] in event.get("nodes", [])


class ClientHistory:
    """History of one client: arrays with an element for each of its records."""

    def __init__(self, client: int) -> None:
        self.client = client
        self.outcome = bytearray()  # `Kind` of the outcome; INVOKE while there is none
        self.topic = bytearray()
        self.partition = array("h")  # asked for; replaced by what an acknowledgement says
        self.is_chosen = bytearray()  # 1 where the client left the partition to the producer
        self.offset = array("q")
        self.sent_ms = array("q")
        self.invoked_us = array("q")
        self.ended_us = array("q")
        self.acknowledged_us = array("q")

    def __len__(self) -> int:
        return len(self.outcome)

    def take(self, row: Row, verdict: Verdict) -> None:
        if row.kind == Kind.INVOKE:
            self._invoke(row, verdict)
        else:
            self._end(row, verdict)

    def _invoke(self, row: Row, verdict: Verdict) -> None:
        if row.n != len(self):
            verdict.add("ENDS_ONCE", f"client {self.client} invoked n={row.n} after {len(self)} records")
            return
        self.outcome.append(Kind.INVOKE)
        self.topic.append(row.topic)
        self.partition.append(row.partition)
        self.is_chosen.append(row.partition < 0)
        self.offset.append(-1)
        self.sent_ms.append(row.timestamp)
        self.invoked_us.append(row.time_us)
        self.ended_us.append(0)

    def _end(self, row: Row, verdict: Verdict) -> None:
        n = row.n
        if n >= len(self) or self.outcome[n] != Kind.INVOKE:
            verdict.add("ENDS_ONCE", f"client {self.client} n={n} ended again, or before it was invoked: {row}")
            return
        self.outcome[n] = row.kind
        self.ended_us[n] = row.time_us
        if row.kind != Kind.OK:
            return
        self.acknowledged_us.append(row.time_us)
        if self.partition[n] not in {-1, row.partition} or row.topic != self.topic[n]:
            verdict.add("RECORD_METADATA", f"client {self.client} n={n} asked for {self.partition[n]}, told {row}")
        if row.timestamp != self.sent_ms[n]:
            verdict.add("RECORD_METADATA", f"client {self.client} n={n} sent at {self.sent_ms[n]}, told {row}")
        self.partition[n], self.offset[n] = row.partition, row.offset

    def first_acknowledged_after(self, time_us: int) -> int | None:
        index = bisect_left(self.acknowledged_us, time_us)
        return self.acknowledged_us[index] if index < len(self.acknowledged_us) else None


Histories = dict[int, ClientHistory]


def load_histories(files: Iterable[Path], verdict: Verdict) -> Histories:
    histories: Histories = {}
    for file in files:
        for row in read_history(file):
            history = histories.get(row.client)
            if history is None:
                history = histories[row.client] = ClientHistory(row.client)
            history.take(row, verdict)
    return histories


@dataclasses.dataclass(frozen=True, slots=True)
class Deadline:
    """Longest life of a client's records."""

    limit_us: int  # the delivery timeout, the time a call may block, and what a busy machine needs
    lags: Sequence[tuple[int, int]]  # times when the client's process did not run, in microseconds: its clock did


def check_endings(history: ClientHistory, deadline: Deadline, verdict: Verdict) -> int:
    longest = 0
    for n, outcome in enumerate(history.outcome):
        if outcome == Kind.INVOKE:
            verdict.add("ENDS_ONCE", f"client {history.client} n={n} never ended")
            continue
        life = history.ended_us[n] - history.invoked_us[n]
        if life > deadline.limit_us:
            life -= overlap(history.invoked_us[n], history.ended_us[n], deadline.lags)
        longest = max(longest, life)
        if life > deadline.limit_us:
            verdict.add("ENDS_ONCE", f"client {history.client} n={n} ended after {life / 1e6:.1f} s")
    return longest


def overlap(start: int, end: int, intervals: Iterable[tuple[int, int]]) -> int:
    return sum(max(0, min(end, until) - max(start, since)) for since, until in intervals)


ABSENT, ELSEWHERE, IN_PLACE = 0, 1, 2
"""State of an acknowledged record in the log: missing, only at another offset than reported, or in its place."""


class LogCheck:
    """One dump and the histories it is held against."""

    def __init__(self, dump: Path, histories: Histories, verdict: Verdict, *, idempotent: bool) -> None:
        self.covered: Covered = load_coverage(dump)
        self.counts: Counter[str] = Counter()
        self._dump = dump
        self._histories = histories
        self._verdict = verdict
        self._idempotent = idempotent
        self._copies: dict[int, bytearray] = {}  # number of copies of each n, at most 255, by client
        self._found: dict[int, bytearray] = {}
        self._last_acknowledged: dict[tuple[int, int, int], int] = {}
        """Highest n whose first copy was seen, by client, partition, and whether the producer chose it.

        A record for any partition has none when it is sent, so it is in order only among its like.
        """
        self._partitions: defaultdict[int, PartitionLog] = defaultdict(PartitionLog)

    def run(self, events: Sequence[Event]) -> None:
        last_offset: dict[int, int] = {}
        for row in read_dump(self._dump):
            if row.offset <= last_offset.get(row.partition, -1):
                self._verdict.add("FOREIGN", f"offset {row.offset} comes again or late: {self._name(row)}")
            last_offset[row.partition] = row.offset
            self._take(row)
        for partition, end in self.covered.ends.items():
            if last_offset.get(partition, -1) != end - 1:
                self._verdict.add("FOREIGN", f"partition {partition} ends at {end}, its last record is missing")
        for client, n in self._missing():
            self._judge_missing(self._histories[client], n, events)

    def found(self, client: int, n: int) -> int:
        return self._found[client][n] if client in self._found else ABSENT

    def must_hold(self, history: ClientHistory, n: int) -> bool:
        """Whether an acknowledged record of this topic has to be in this life of it."""
        covered = self.covered
        return (
            history.outcome[n] == Kind.OK
            and history.topic[n] == covered.topic
            and history.invoked_us[n] >= covered.invoked_from_us
            and history.ended_us[n] <= covered.acknowledged_until_us
        )

    def _take(self, row: LogRow) -> None:
        self.counts["records"] += 1
        if not self._idempotent:
            self._partitions[row.partition].append(row.offset, row.leader_epoch)
        history = self._histories.get(row.client)
        if row.finding != Finding.OURS:
            self._verdict.add("FOREIGN", f"{Finding(row.finding).name} record: {self._name(row)}")
        elif history is None or row.n >= len(history) or history.topic[row.n] != self.covered.topic:
            self._verdict.add("FOREIGN", f"never sent: {self._name(row)}")
        else:
            self._take_ours(row, history)

    def _take_ours(self, row: LogRow, history: ClientHistory) -> None:
        n, outcome = row.n, history.outcome[row.n]
        if history.sent_ms[n] != row.timestamp:
            self._verdict.add("RECORD_METADATA", f"sent with timestamp {history.sent_ms[n]}: {self._name(row)}")
        copies = self._copies.setdefault(row.client, bytearray(len(history)))
        copies[n] = min(copies[n] + 1, 255)
        if copies[n] > 1:
            self.counts["second_copies"] += 1
            if self._idempotent:
                self._verdict.add("DUPLICATE", f"copy {copies[n]} of a record {Kind(outcome).name}: {self._name(row)}")
        if outcome == Kind.OK:
            self._take_acknowledged(row, history, is_first=copies[n] == 1)
        elif outcome == Kind.NOT_WRITTEN:
            self._verdict.add("NOT_WRITTEN", f"told NOT_WRITTEN: {self._name(row)}")
        elif copies[n] == 1:
            self.counts["unknown_written"] += 1

    def _take_acknowledged(self, row: LogRow, history: ClientHistory, *, is_first: bool) -> None:
        n = row.n
        found = self._found.setdefault(row.client, bytearray(len(history)))
        if (row.partition, row.offset) == (history.partition[n], history.offset[n]):
            found[n] = IN_PLACE
        elif found[n] == ABSENT:
            found[n] = ELSEWHERE
        if is_first:
            key = row.client, row.partition, history.is_chosen[n]
            if n < self._last_acknowledged.get(key, -1):
                self._verdict.add("ORDER", f"after n={self._last_acknowledged[key]} comes {self._name(row)}")
            self._last_acknowledged[key] = max(n, self._last_acknowledged.get(key, -1))

    def _missing(self) -> Iterator[tuple[int, int]]:
        """Yield acknowledged records that should be here and are not in their reported place."""
        for client, history in self._histories.items():
            for n in range(len(history) if self.covered.topic in history.topic else 0):
                if self.must_hold(history, n) and self.found(client, n) != IN_PLACE:
                    yield client, n

    def _judge_missing(self, history: ClientHistory, n: int, events: Sequence[Event]) -> None:
        partition, offset = history.partition[n], history.offset[n]
        text = (
            f"client {history.client} n={n} acknowledged at {partition}:{offset}, time {history.ended_us[n]} us, "
            f"topic {self.covered.topic} {self.covered.topic_id}"
        )
        if not self._idempotent and explained(
            (self._epoch_before(history, n), self._partitions[partition].epoch_from(offset)),
            (self.covered.topic, partition),
            when_us=history.ended_us[n],
            events=events,
        ):
            self.counts["losses_explained"] += 1
        elif self.found(history.client, n) == ELSEWHERE:
            self._verdict.add("RECORD_METADATA", f"elsewhere: {text}")
        else:
            self._verdict.add("LOST", f"lost: {text}")

    def _epoch_before(self, history: ClientHistory, n: int) -> int:
        """Epoch of the client's last record that was acknowledged before, in its partition and still in its place."""
        for before in range(n - 1, -1, -1):
            is_near = history.partition[before] == history.partition[n] and history.topic[before] == history.topic[n]
            is_earlier = history.ended_us[before] < history.ended_us[n]
            if is_near and is_earlier and self.found(history.client, before) == IN_PLACE:
                epoch = self._partitions[history.partition[n]].epoch_from(history.offset[before])
                return -1 if epoch is None else epoch
        return -1

    def _name(self, row: LogRow) -> str:
        where = f"{row.partition}:{row.offset} epoch {row.leader_epoch} in {self._dump.name}"
        return f"client {row.client} n={row.n} at {where}"


def check_all_lives(checks: Sequence[LogCheck], histories: Histories, verdict: Verdict) -> None:
    """RECORD_METADATA for records sent around the deletion of a topic: those found are in their place in one life."""
    by_topic: defaultdict[int, list[LogCheck]] = defaultdict(list)
    for check in checks:
        by_topic[check.covered.topic].append(check)
    for topic, lives in by_topic.items():
        if len(lives) > 1:
            _check_lives(topic, lives, histories, verdict=verdict)


def _check_lives(topic: int, lives: Sequence[LogCheck], histories: Histories, *, verdict: Verdict) -> None:
    for client, history in histories.items():
        for n in range(len(history) if topic in history.topic else 0):
            if history.topic[n] != topic or any(life.must_hold(history, n) for life in lives):
                continue
            found = {life.found(client, n) for life in lives}
            if ELSEWHERE in found and IN_PLACE not in found:
                verdict.add(
                    "RECORD_METADATA", f"client {client} n={n} of a topic made again is not where it was told to be"
                )
