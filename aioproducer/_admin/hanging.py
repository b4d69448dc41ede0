"""Finds open transactions that will never end.

A coordinator ends every transaction that it knows of, at the latest when its time is over. One that is open in a
partition for longer than any transaction may be, and of which no coordinator knows that it is there, stays open, and
readers of what is committed wait in front of it for ever. It comes from a Produce that arrived after its transaction
had ended: on brokers before 3.6, or from a client that broke the rules.

No I/O. Source: kafka-transactions.sh find-hanging (KIP-664).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from aioproducer._protocol.transaction_admin_messages import (
    NO_TRANSACTION,
    ActiveProducer,
    PartitionProducers,
    TransactionDescription,
)

LONGEST_TRANSACTION_S = 900.0
"""`transaction.max.timeout.ms` of a broker, unless changed."""


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    producer: ActiveProducer
    open_s: float
    """Seconds since its last record there: since the first there is no telling."""


def open_transactions(
    found: Iterable[PartitionProducers], *, now_ms: int, for_longer_than_s: float
) -> Iterator[OpenTransaction]:
    """Those that wrote nothing for so long."""
    for partition in found:
        for producer in partition.producers:
            open_s = (now_ms - producer.last_timestamp_ms) / 1000
            if producer.transaction_start_offset != NO_TRANSACTION and open_s > for_longer_than_s:
                yield OpenTransaction(partition.topic, partition.partition, producer, open_s)


def hanging(
    candidates: Iterable[OpenTransaction],
    *,
    transactional_ids: Mapping[int, str],
    descriptions: Collection[TransactionDescription],
) -> list[OpenTransaction]:
    """Those of which no coordinator knows.

    Args:
        candidates: open for longer than a transaction may be.
        transactional_ids: by producer id, as the coordinators have them now.
        descriptions: of these ids.
    """
    known = {
        (transactional_ids[described.producer_id], place)
        for described in descriptions
        if described.producer_id in transactional_ids
        for place in described.partitions
    }
    return [
        candidate
        for candidate in candidates
        if (transactional_ids.get(candidate.producer.producer_id), (candidate.topic, candidate.partition)) not in known
    ]
