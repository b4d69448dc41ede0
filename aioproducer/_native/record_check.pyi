"""Reads the records of one v2 batch back, at native speed, for the embedded broker's checks."""

from typing_extensions import Buffer

def check_records(
    records: Buffer, count: int, /, *, base_timestamp: int, low: int, high: int, keys_required: bool = False
) -> tuple[int, int, int, list[int], int, list[int]]:
    """Walk all records of a batch and check their structure.

    Lengths must add up, varints stay in their type's bounds, offset deltas run 0 to `count - 1`, and nothing may be
    left over.

    Args:
        records: the records section, uncompressed; read only during the call.
        count: records the batch's header claims.
        base_timestamp: of the batch, in ms.
        low: lowest timestamp the topic takes, in ms; -1 (no timestamp) passes always.
        high: highest timestamp the topic takes, in ms.
        keys_required: the topic is compacted, so a null key is an error.

    Returns:
        Highest timestamp in ms (-1: none), index of the first record that has it, how many timestamps are out of
        range and the first 16 indices of them, how many keys are missing and the first 16 indices of them.

    Raises:
        ValueError: the structure is broken; the text names the record and what is wrong.

    Source: DefaultRecord.readFrom and LogValidator.validateRecord in Apache Kafka. Kafka rewrites wrong offset deltas;
    here they are an error, because a producer that sends them has a bug.
    """
