"""Transaction markers: the control batches that say how a producer's transaction in a partition ended.

One batch of one record. Its key is (int16 version 0, int16 type: 0 abort, 1 commit), its value (int16 version 0,
int32 epoch of the coordinator). Consumers never show it; it takes an offset.

Source: EndTransactionMarker and ControlRecordType in Apache Kafka.
"""

import struct
from typing import NamedTuple

from aioproducer.testing.fake_broker.log.partition_log import LoggedBatch
from aioproducer.testing.fake_broker.log.record_batch import CRC_COVERS_FROM, HEADER_SIZE, checksum

_FRONT = struct.Struct(">qiibI")
_BEHIND_CRC = struct.Struct(">hiqqqhii")
_RECORD = struct.Struct(">5shh1shi1s")
_KEY_LENGTH, _VALUE_LENGTH, _NO_HEADERS = b"\x20\x00\x00\x00\x08", b"\x0c", b"\x00"
_TRANSACTIONAL_CONTROL = 0x30
_SIZE = HEADER_SIZE + _RECORD.size


class Marker(NamedTuple):
    """The end of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


def logged_marker(marker: Marker, *, base_offset: int, leader_epoch: int, timestamp: int) -> LoggedBatch:
    """Return the batch of a marker at its place in a log; `timestamp` in ms since 1970."""
    record = _RECORD.pack(
        _KEY_LENGTH, 0, int(marker.is_commit), _VALUE_LENGTH, 0, marker.coordinator_epoch, _NO_HEADERS
    )
    behind = _BEHIND_CRC.pack(
        _TRANSACTIONAL_CONTROL, 0, timestamp, timestamp, marker.producer_id, marker.producer_epoch, -1, 1
    )
    crc = checksum(bytes(CRC_COVERS_FROM) + behind + record)
    return LoggedBatch(
        base_offset=base_offset,
        last_offset=base_offset,
        max_timestamp=timestamp,
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=-1,
        last_sequence=-1,
        data=_FRONT.pack(base_offset, _SIZE - 12, leader_epoch, 2, crc) + behind + record,
        attributes=_TRANSACTIONAL_CONTROL,
    )


def marker_of(batch: LoggedBatch) -> Marker:
    _, _, kind, _, _, coordinator_epoch, _ = _RECORD.unpack_from(batch.data, HEADER_SIZE)
    return Marker(batch.producer_id, batch.producer_epoch, kind == 1, coordinator_epoch)
