"""The result of `Producer.explain()`: what waits, why, since and until when, as data and in words.

`_sender/why_waiting.py` decides the reasons.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

_SHOWN: Final = 20  # batches and records in the text of an explanation
_GROUPS: Final = 3  # reasons in its summary


class WaitReason(Enum):
    """The reasons why a batch or a record waits."""

    LINGER = "linger"
    """More records for its batch."""

    NO_LEADER = "no leader"
    """A node that leads its partition."""

    PRODUCER_ID = "producer id"
    """An id for this producer, which a broker must give before anything is sent."""

    CONNECTING = "connecting"
    """A connection to its node."""

    IN_FLIGHT_FULL = "in flight full"
    """Answers of its node, which has as many requests as it may have."""

    THROTTLED = "throttled"
    """The end of the time for which its node refuses requests of this client."""

    BACK_OFF = "back-off"
    """The pause after a failed attempt."""

    HELD_FOR_ORDER = "held for order"
    """Earlier batches of its partition."""

    COMPRESSION = "compression"
    """A thread that compresses it."""

    RESPONSE = "response"
    """The answer of its node: it is on the wire."""

    MEMORY = "memory"
    """Room in the buffer: it is in no batch yet."""

    METADATA = "metadata"
    """The partitions of its topic: it is in no batch yet."""

    SERIALIZER = "serializer"
    """An asynchronous serializer, its own or that of an earlier record of its topic: it is in no batch yet."""

    TRANSACTION = "transaction"
    """Its partition to be added to the transaction."""

    RECORDS = "records"
    """The ends of records that were accepted before it: only of calls, as the next two."""

    OTHER_TRANSACTION = "other transaction"
    """The end of the transaction that another task has open."""

    PARTS = "parts"
    """Parts of the producer that load or close."""

    READY = "ready"
    """Nothing but the next turn of the event loop."""


_SENTENCES: Final = {
    WaitReason.RESPONSE: "node {node_id} has not answered",
    WaitReason.NO_LEADER: "the partition has no leader ({detail})",
    WaitReason.PRODUCER_ID: "no broker has given the producer an id yet ({detail})",
    WaitReason.METADATA: "the topic's partitions are not known yet ({detail})",
    WaitReason.MEMORY: "there is no room in the buffer ({detail})",
    WaitReason.SERIALIZER: "the record is not serialized yet ({detail})",
    WaitReason.LINGER: "more records may join the batch",
    WaitReason.COMPRESSION: "the batch is being compressed",
    WaitReason.READY: "the event loop has not come to it yet",
}
_OF_NODES: Final = {
    WaitReason.IN_FLIGHT_FULL: "it was busy with earlier requests",
    WaitReason.HELD_FOR_ORDER: "earlier batches of the partition come first",
    WaitReason.TRANSACTION: "the partition is not part of the transaction yet",
}


ANSWERED: Final = "it answered the last attempt with "
"""Beginning of the detail of a batch that its node has refused, and that is sent again."""


class Why(NamedTuple):
    """A reason to wait; times in monotonic seconds."""

    reason: WaitReason
    since: float | None = None  # None: since the record was given
    until: float | None = None  # when it ends by itself; None: not known
    detail: str = ""

    def words(self, node_id: int | None) -> str:
        """Say it as the end of a sentence."""
        if self.detail.startswith(ANSWERED):
            return f"node {node_id} {self.detail.removeprefix('it ')}"
        has_failed = self.reason is WaitReason.READY and self.detail  # then the last error says most
        if self.reason in _SENTENCES and not has_failed:
            return _SENTENCES[self.reason].format(node_id=node_id, detail=self.detail)
        return f"node {node_id} could not be sent to ({self.detail or _OF_NODES.get(self.reason, self.reason.value)})"


class CallWhy(NamedTuple):
    """A reason why a call waits; times in monotonic seconds."""

    reason: WaitReason
    since: float | None = None  # None: since the call
    until: float | None = None  # when it ends by itself; None: not known
    detail: str = ""
    request: str = ""
    nodes: tuple[int, ...] = ()  # that were asked, or shall be; negative: at a bootstrap address
    deadline: float | None = None  # when the call gives up; None: as it was called


class WaitingCall(NamedTuple):
    """A call of the producer that waits, as `commit_transaction` does."""

    call: str
    """Name of the method. Blocks wait in those that they call: `transaction()` in `begin_transaction`."""

    topic: str | None
    """The topic that it is about, if it is about one."""

    request: str
    """Kafka's name of the request that it waits for, such as EndTxn; empty if it waits for something else."""

    node_ids: tuple[int, ...]
    """Nodes that were asked, or are to be asked; a negative one is a bootstrap address."""

    reason: WaitReason
    """The reason why it waits."""

    detail: str
    """The error, or what else is known of the reason; may be empty."""

    age_s: float
    """Seconds since the call."""

    since_s: float
    """Seconds since the reason holds; `age_s` if that is not known."""

    until_s: float | None
    """Seconds until the reason ends by itself; None if that is not known."""

    deadline_s: float | None
    """Seconds until the call gives up, by `max_block_ms` or its timeout; None if it waits without a limit."""

    @property
    def text(self) -> str:
        """All of it in a sentence, without a full stop."""
        until = "" if self.until_s is None else f", for another {max(self.until_s, 0.0):.1f} s"
        fails = "waits without a limit" if self.deadline_s is None else f"fails in {max(self.deadline_s, 0.0):.1f} s"
        return (
            f"{self.subject}, called {self.age_s:.1f} s ago: {self.words}, since {self.since_s:.1f} s{until}; {fails}"
        )

    @property
    def subject(self) -> str:
        """The call with its topic."""
        return self.call if self.topic is None else f"{self.call}({self.topic!r})"

    @property
    def words(self) -> str:
        """Only the reason."""
        detail = f" ({self.detail})" if self.detail else ""
        match self.reason:
            case WaitReason.RESPONSE:
                have = "has" if len(self.node_ids) == 1 else "have"
                return f"{self._nodes} {have} not answered {self.request}{detail}"
            case WaitReason.CONNECTING | WaitReason.THROTTLED | WaitReason.IN_FLIGHT_FULL:
                to = f" to {self._nodes}" if self.node_ids else ""
                return f"{self.request} is not sent{to} yet{detail}"
            case WaitReason.BACK_OFF:
                again = f" before {self.request} is sent again" if self.request else ""
                return f"there is a pause{again}{detail}"
        return f"{_OF_CALLS[self.reason]}{detail}"

    @property
    def _nodes(self) -> str:
        if self.node_ids[0] < 0:
            return "a bootstrap broker" if len(self.node_ids) == 1 else "bootstrap brokers"
        return f"node{'s' * (len(self.node_ids) > 1)} {', '.join(map(str, self.node_ids))}"


_OF_CALLS: Final = {
    WaitReason.RECORDS: "records that were accepted before it have not ended",
    WaitReason.OTHER_TRANSACTION: "another task has a transaction open",
    WaitReason.PARTS: "parts of the producer are not ready",
    WaitReason.READY: "the event loop has not come to it yet",
}


class Waiting(NamedTuple):
    """A batch, or a record that is in no batch yet."""

    topic: str
    """The topic."""

    partition: int | None
    """The partition; None if it is not chosen yet."""

    node_id: int | None
    """Leader of the partition; None if unknown."""

    records: int
    """Number of records."""

    size: int
    """Bytes; of a record outside a batch, the most that it can take in one, or 0 before it is serialized."""

    attempts: int
    """How often the batch was sent."""

    reason: WaitReason
    """The reason why it waits."""

    detail: str
    """The error, or what else is known of the reason; may be empty."""

    age_s: float
    """Seconds since the call that brought its oldest record, or since its serializer finished, if it waited for one."""

    since_s: float
    """Seconds since the reason holds; `age_s` if that is not known."""

    until_s: float | None
    """Seconds until the reason ends by itself; None if that is not known."""

    deadline_s: float
    """Seconds until it fails: `delivery_timeout_ms`, or `max_block_ms` outside a batch."""

    @property
    def text(self) -> str:
        """All of it in a sentence, without a full stop."""
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        until = "" if self.until_s is None else f", for another {max(self.until_s, 0.0):.1f} s"
        tried = f", after {_count(self.attempts, 'attempt')}" if self.attempts else ""
        size = f" ({self.size:,} bytes)" if self.size else ""
        what = f"{where}: {_count(self.records, 'record')}{size}"
        return (
            f"{what} given {self.age_s:.1f} s ago: {self.words}, since {self.since_s:.1f} s{until}{tried}; "
            f"fails in {max(self.deadline_s, 0.0):.1f} s"
        )

    @property
    def words(self) -> str:
        """Only the reason."""
        return Why(self.reason, detail=self.detail).words(self.node_id)


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that waits in a producer at one moment. `print` it, or read `waiting`."""

    client_id: str
    """The producer's name."""

    state: str
    """`new`, `starting`, `running`, `closing`, `closed`, `failed`, or `forked` in a child of the producer's process."""

    note: str
    """Why nothing can be sent, as in a transaction that must be aborted; empty while records or transactions are taken.
    """

    waiting: tuple[Waiting, ...]
    """Batches in the order of their partitions, then records that are in no batch yet."""

    calls: tuple[WaitingCall, ...] = ()
    """Calls that wait, oldest first: start, partitions_for, flush, close, and those of transactions."""

    @property
    def summary(self) -> str:
        """The most frequent reasons, in one line; calls that wait for these records are left out."""
        calls = [each for each in self.calls if not (self.waiting and each.reason is WaitReason.RECORDS)]
        counts: Counter[tuple[WaitReason, str]] = Counter()
        oldest: dict[tuple[WaitReason, str], Waiting] = {}
        for each in self.waiting:
            group = each.reason, each.words
            counts[group] += each.records
            if group not in oldest or each.age_s > oldest[group].age_s:
                oldest[group] = each
        parts = [
            f"{_count(records, 'record')}: {group[1]}, the oldest since {oldest[group].since_s:.1f} s"
            for group, records in counts.most_common(_GROUPS)
        ]
        rest = sum(counts.values()) - sum(records for _, records in counts.most_common(_GROUPS))
        parts += [f"{_count(rest, 'record')} for other reasons"] if rest else []
        parts += [f"{each.subject}: {each.words}, since {each.since_s:.1f} s" for each in calls[:_GROUPS]]
        parts += [f"{_count(len(calls) - _GROUPS, 'more call')}"] if len(calls) > _GROUPS else []
        return "; ".join([*([self.note] if self.note else []), *parts]) or "nothing waits"

    def __str__(self) -> str:
        """Return the summary, and the oldest calls, batches and records, one in a line."""
        oldest = sorted(self.waiting, key=lambda each: -each.age_s)[:_SHOWN]
        calls = self.calls[:_SHOWN]
        left = len(self.waiting) - len(oldest) + len(self.calls) - len(calls)
        lines = [f"producer {self.client_id!r} is {self.state}: {self.summary}"]
        lines += [*(f"  {each.text}" for each in calls), *(f"  {each.text}" for each in oldest)]
        return "\n".join(lines + ([f"  and {left:,} more"] if left else []))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
