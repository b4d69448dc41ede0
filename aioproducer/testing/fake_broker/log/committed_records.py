"""A partition as a consumer with `isolation.level=read_committed` sees it."""

from collections.abc import Sequence

from aioproducer.testing.fake_broker.log.partition import Partition
from aioproducer.testing.fake_broker.log.partition_log import LoggedBatch
from aioproducer.testing.fake_broker.log.record_batch import LoggedRecord, decode_records
from aioproducer.testing.fake_broker.transactions.open_transactions import AbortedTransaction


def committed_records(partition: Partition) -> list[LoggedRecord]:
    """Return the records below the last stable offset, without those of aborted transactions."""
    end = partition.last_stable_offset
    aborted = partition.transactions.aborted_between(0, end)
    return [
        record
        for batch in partition.log.batches()
        if not batch.is_control and batch.last_offset < end and not _is_in(aborted, batch)
        for record in decode_records(batch.data)
    ]


def _is_in(aborted: Sequence[AbortedTransaction], batch: LoggedBatch) -> bool:
    return batch.is_transactional and any(
        known.producer_id == batch.producer_id and known.first_offset <= batch.base_offset < known.marker_offset
        for known in aborted
    )
