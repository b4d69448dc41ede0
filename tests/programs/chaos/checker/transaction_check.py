"""Checks a topic of transactions, read as read_committed, against the histories: ATOMIC and FENCED.

Nothing of the package is imported here, as in all of the checker.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.programs.chaos.checker.verdict import Verdict

Transaction = tuple[str, int]


KILLED = "killed"  # end of a transaction whose process did not live to write it down


class CommittedRecord(NamedTuple):
    """One record that a reader of what is committed has found; in the order of its partition."""

    partition: int
    transactional_id: str
    life: str
    number: int
    index: int


def check_transactions(
    found: Sequence[CommittedRecord],
    ends: Mapping[Transaction, str | None],
    *,
    records: int,
    verdict: Verdict,
    figure: str = "transactions",
) -> None:
    """Compare all that is committed in the topic with the end of each transaction that began.

    Ends are committed, aborted, unknown, or None where the process was killed; `records` are those of each transaction.
    The figure counts how transactions ended, and how many of them are visible.
    """
    seen: defaultdict[Transaction, Counter[int]] = defaultdict(Counter)
    for record in found:
        seen[record.life, record.number][record.index] += 1
    whole = Counter(range(records))
    for transaction, indexes in seen.items():
        if transaction not in ends:
            verdict.add("ATOMIC", f"{transaction} is visible, and was never begun")
        elif indexes != whole:
            verdict.add(
                "ATOMIC", f"{transaction}, {ends[transaction]}, is torn or doubled: {sorted(indexes.elements())}"
            )
        if ends.get(transaction) == "aborted":
            verdict.add("ATOMIC", f"{transaction} was aborted and is visible")
    for transaction, end in ends.items():
        if end == "committed" and transaction not in seen:
            verdict.add("ATOMIC", f"{transaction} was committed and is not there")
    check_lives(found, verdict)
    verdict.figures[figure] = {
        **Counter(end or KILLED for end in ends.values()),
        "visible": len(seen),
        "unknown or killed, and visible": sum(ends.get(transaction) in {"unknown", None} for transaction in seen),
    }


def check_lives(found: Iterable[CommittedRecord], verdict: Verdict) -> None:
    """FENCED: in each partition, the lives under one transactional id follow each other and never come back."""
    present: dict[tuple[int, str], str] = {}
    over: set[tuple[int, str]] = set()
    for record in found:
        place = record.partition, record.transactional_id
        before = present.get(place)
        if before is not None and before != record.life:
            over.add((record.partition, before))
        if (record.partition, record.life) in over:
            verdict.add("FENCED", f"life {record.life} writes in partition {record.partition} after {before}")
        present[place] = record.life


def check_balances(told: Iterable[tuple[int, int]], accounts: int, at_first: int, *, verdict: Verdict) -> None:
    """ATOMIC for bank transfers: the sum of all balances does not change.

    Told are account and balance of every visible record, those of one account in the order of their partition.
    """
    last = dict.fromkeys(range(accounts), at_first) | dict(told)
    if sum(last.values()) != accounts * at_first:
        verdict.add("ATOMIC", f"balances add up to {sum(last.values())}, not {accounts * at_first}: {last}")


def check_copies(expected: int, copies: Mapping[int, int], committed: Sequence[int], *, verdict: Verdict) -> None:
    """OFFSETS: a record of the input has a copy in the output, one, if and only if the group's offsets are behind it.

    The input were the numbers from 0 to `expected`, in turn to the partitions.
    """
    for number in range(expected):
        offset, partition = divmod(number, len(committed))
        wanted = int(offset < committed[partition])
        if copies.get(number, 0) != wanted:
            verdict.add(
                "OFFSETS", f"input {number} has {copies.get(number, 0)} visible copies, and {wanted} by the offsets"
            )
    for number in copies.keys() - range(expected):
        verdict.add("OFFSETS", f"{number} is in the output, and was never sent")
