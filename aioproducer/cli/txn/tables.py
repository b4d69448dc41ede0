"""Transactions as tables for people."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from shlex import quote

from aioproducer._admin.transactions import CoordinatedTransaction, IdleTransaction
from aioproducer._protocol.cluster_text import printable
from aioproducer._protocol.transaction_admin_messages import NO_TRANSACTION, PartitionProducers, TransactionDescription

NO_TIME = -1


def listed_lines(found: Sequence[CoordinatedTransaction]) -> Iterator[str]:
    rows = [(each.transactional_id, each.state, str(each.producer_id), str(node)) for each, node in found]
    yield from columns(("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"), rows)


def described_lines(
    described: TransactionDescription, producers: Sequence[PartitionProducers], now_ms: int
) -> Iterator[str]:
    yield f"transactional id  {printable(described.transactional_id)}"
    yield f"state             {printable(described.state)}"
    yield f"producer id       {described.producer_id}, epoch {described.producer_epoch}"
    yield f"timeout           {described.timeout_ms / 1000:g} s"
    if described.start_time_ms > 0:
        open_s = (now_ms - described.start_time_ms) / 1000
        yield f"began             {moment(described.start_time_ms)}, {open_s:,.1f} s ago"
    if described.partitions:
        starts = {
            (found.topic, found.partition): producer.transaction_start_offset
            for found in producers
            for producer in found.producers
            if producer.producer_id == described.producer_id
        }
        rows = [
            (topic, str(number), _offset(starts.get((topic, number), NO_TRANSACTION)))
            for topic, number in sorted(described.partitions)
        ]
        yield ""
        yield from columns(("TOPIC", "PARTITION", "FIRST OFFSET"), rows)


def hanging_lines(found: Sequence[IdleTransaction]) -> Iterator[str]:
    """Yield a line for each transaction, and the command that ends it."""
    rows = [
        (
            each.topic,
            str(each.partition),
            str(each.producer.transaction_start_offset),
            f"{each.producer.producer_id}, {each.producer.producer_epoch}",
            f"{each.open_s:,.0f} s",
        )
        for each in found
    ]
    yield from columns(("TOPIC", "PARTITION", "FIRST OFFSET", "PRODUCER ID, EPOCH", "LAST WROTE"), rows)
    for each in found:
        place = f"--topic {quote(printable(each.topic))} --partition {each.partition}"
        yield f"aioproducer txn abort {place} --start-offset {each.producer.transaction_start_offset}"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield aligned lines; cells are escaped by `printable`, since clients choose their text."""
    shown = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def moment(time_ms: int) -> str:
    """Return a time in UTC, or its number if it is out of range."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms after 1970"


def _offset(offset: int) -> str:
    return "nothing yet" if offset == NO_TRANSACTION else str(offset)
