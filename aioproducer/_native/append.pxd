"""Appends one record to its partition's open batch."""

from libc.stdint cimport int64_t

from aioproducer._native.delivery cimport BatchResult, Delivery
from aioproducer._native.memory cimport Chunk
from aioproducer._native.own_loop cimport OwnLoop
from aioproducer._native.record_bytes cimport RecordBytes


cdef class RecordBatchBuilder:
    cdef readonly Chunk chunk                # where the records are written
    cdef readonly BatchResult result         # shared by the batch's deliveries
    cdef readonly Py_ssize_t size            # bytes of records written
    cdef readonly Py_ssize_t limit           # bytes that the records may take; the first may exceed it
    cdef readonly int count                  # records written
    cdef readonly int64_t base_timestamp     # of the first record, ms since the epoch
    cdef readonly int64_t max_timestamp      # ms since the epoch


cdef class OpenPartition:
    cdef readonly int partition
    cdef readonly object queue               # the accumulator's PartitionQueue
    cdef public RecordBatchBuilder builder   # of the open batch, or None
    cdef public int line                     # waiting records of this partition: later ones wait behind


cdef class TopicInfo:
    cdef readonly str topic
    cdef readonly list slots                 # OpenPartition by partition number; None if unused
    cdef int sticky                          # partition of keyless records; -1 = to be chosen
    cdef Py_ssize_t sticky_bytes             # bytes since it was chosen
    cdef public int line                     # waiting records for any partition: later ones wait behind
    cdef public int held                     # to have their partition chosen; one more when forgotten: all queue behind


cdef inline OpenPartition slot_at(object accumulator, TopicInfo topic, Py_ssize_t partition):
    """The partition's slot, made for its first record."""
    slot = topic.slots[partition]
    return <OpenPartition>slot if slot is not None else <OpenPartition>accumulator.partitions.slot(topic, partition)


cdef class RecordAppender:
    cdef readonly dict topics                # name -> TopicInfo; the accumulator's own
    cdef object _topic                       # last name, and its TopicInfo
    cdef TopicInfo _slots
    cdef OpenPartition _slot                 # of the last room found
    cdef object _accumulator                 # asked once a batch: make_room, batch_full, choose_partition
    cdef object _wall_clock                  # callable -> ms since the epoch; None = the system's clock
    cdef object _refuse                      # called to raise when `closed`, or on another thread
    cdef readonly OwnLoop own_loop           # the only loop that may append
    cdef readonly Py_ssize_t batch_size      # bytes of a batch, its header included
    cdef readonly Py_ssize_t max_record_size  # bytes
    cdef bint _ignore_keys
    cdef public bint closed                  # every append calls `refuse`
    cdef public bint pause_wanted            # `enqueue` should let the loop run once
    cdef bint busy                           # inside an append; records of nested calls wait
    cdef char* _scratch                      # headers section of the current record
    cdef Py_ssize_t _scratch_size
    cdef Py_ssize_t _scratch_capacity

    cpdef Delivery append(self, topic, value, key, partition, timestamp, headers, on_delivery)
    cdef int check_open(self) except -1
    cdef TopicInfo find_topic(self, topic)
    cdef int64_t _now_ms(self) except -2
    cdef int unpack(self, RecordBytes* record, topic, bytes key, bytes value, partition, timestamp,
                    headers) except -1
    cdef int _write_headers(self, headers) except -1
    cdef int _scratch_room(self, Py_ssize_t size) except -1
    cdef OpenPartition _find_slot(self, TopicInfo topic, RecordBytes* record)
    cdef RecordBatchBuilder room_for(self, TopicInfo topic, RecordBytes* record)
    cdef int write(self, RecordBatchBuilder builder, RecordBytes* record) except -1
    cdef Delivery _append(self, TopicInfo topic, RecordBytes* record, on_delivery)
