"""Appends one record to its partition's open batch."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy, memmove

from aioproducer._native.delivery cimport BatchResult, Delivery
from aioproducer._native.measures cimport RecordSizes, note_size
from aioproducer._native.memory cimport Chunk
from aioproducer._native.key_hashes cimport has_hash, partition_of_key
from aioproducer._native.record_bytes cimport RecordBytes, put_bytes
from aioproducer._native.varint cimport put_varint, varint_size

cdef enum:
    BATCH_HEADER_SIZE = 61        # what stands before the records of a batch

cdef const char* NO_HEADERS       # a count of none

cdef extern from *:
    """
    /* An event loop that runs has a hook for asynchronous generators set in its thread: another object for each loop,
       and for each run of one. So one look tells another thread, another loop, and another run. */
    static inline PyObject* hook_of_loop(void) { return PyThreadState_Get()->async_gen_firstiter; }
    """
    PyObject* hook_of_loop() noexcept


cdef class RecordBatchBuilder:
    cdef public Chunk chunk                  # where the records are written
    cdef public BatchResult result           # shared by the batch's deliveries
    cdef RecordSizes _sizes                  # of the producer's records
    cdef public Py_ssize_t size              # bytes of records written
    cdef readonly Py_ssize_t limit           # bytes that the records may take; the first may exceed it
    cdef public int count                    # records written
    cdef public int64_t base_timestamp       # of the first record, ms since the epoch
    cdef public int64_t max_timestamp        # ms since the epoch
    cdef public Py_ssize_t start             # of the records in the chunk; of a part of a split batch not 0
    cdef public int compression              # Kafka's number of the codec; 0 if they are not compressed
    cdef public object identity              # BatchIdentity under which it is sent

    cpdef records(self)


cdef class OpenPartition:
    cdef readonly int number
    cdef public RecordBatchBuilder open_batch  # or None
    cdef public int waiting_count            # waiting records of this partition: later ones wait behind them


cdef class TopicInfo:
    cdef readonly str topic
    cdef readonly list partitions            # by number; None if unused
    cdef int sticky                          # partition of keyless records; -1 = to be chosen
    cdef Py_ssize_t sticky_bytes             # written to it since it was chosen
    cdef public int waiting_count            # waiting records for any partition: later ones wait behind them
    cdef readonly int blocked_count          # records to have their partition chosen; one more when forgotten


cdef inline OpenPartition partition_at(object open_batches, TopicInfo topic, Py_ssize_t number):
    """A partition, which is made when the first record goes there."""
    partition = topic.partitions[number]
    if partition is None:
        partition = open_batches.partitions.use(topic, number)
    return <OpenPartition>partition


@cython.final
cdef class OwnLoop:
    cdef object _loop                        # loop that it was made on, or None
    cdef object _hook                        # of the last loop seen; kept alive, so that its address is unique
    cdef unsigned long _thread

    cdef inline bint was_seen(self) noexcept:
        return <PyObject*>self._hook == hook_of_loop()

    cdef bint look(self) except -1


cdef class RecordAppender:
    cdef readonly dict topics                # name -> TopicInfo; the accumulator's own
    cdef object _topic                       # last name, and its TopicInfo
    cdef TopicInfo _topic_info
    cdef OpenPartition _partition            # where room was found last
    cdef object _open_batches                # asked once per batch: make_room, batch_full, choose_partition
    cdef object _wall_clock                  # callable -> ms since the epoch; None = the system's clock
    cdef object _refuse                      # called to raise when `closed`, or on another thread
    cdef readonly OwnLoop own_loop           # the only loop that may append
    cdef readonly Py_ssize_t batch_size      # bytes of a batch, its header included
    cdef readonly Py_ssize_t max_record_size  # bytes
    cdef bint _ignore_keys
    cdef int _key_hash                       # of KeyHash
    cdef public bint closed                  # every append calls `refuse`
    cdef public bint pause_wanted            # `enqueue` should let the loop run once
    cdef readonly bint busy                  # inside an append; records of nested calls wait
    cdef char* _scratch                      # headers section of the current record
    cdef Py_ssize_t _scratch_size
    cdef Py_ssize_t _scratch_capacity

    cpdef Delivery append(self, topic, value, key, partition, timestamp, headers, on_delivery)
    cdef bint is_open_here(self) except -1
    cdef int check_open(self) except -1
    cdef TopicInfo find_topic(self, topic)
    cdef int64_t _now_ms(self) except -2
    cdef int unpack(self, RecordBytes* record, topic, bytes key, bytes value, partition, timestamp,
                    headers) except -1
    cdef int _write_headers(self, headers) except -1
    cdef int _scratch_room(self, Py_ssize_t size) except -1
    cdef Delivery _append(self, TopicInfo topic, RecordBytes* record, on_delivery)
    cdef int _after_write(self) except -1


# What happens for each record, inlined where records are appended one by one, many, or from columns


cdef inline bint is_keyless(RecordAppender appender, const RecordBytes* record) noexcept:
    """Whether no key chooses the partition."""
    return appender._ignore_keys or not has_hash(appender._key_hash, record.key_size)


cdef inline OpenPartition find_partition(RecordAppender appender, TopicInfo topic, const RecordBytes* record):
    cdef Py_ssize_t count = len(topic.partitions)
    if record.partition >= 0:
        if record.partition >= count:
            appender._open_batches.unknown_partition(topic, record.partition)
        return partition_at(appender._open_batches, topic, record.partition)
    if not is_keyless(appender, record):
        return partition_at(
            appender._open_batches, topic,
            partition_of_key(appender._key_hash, <const unsigned char*>record.key, record.key_size, count),
        )
    # Uniform sticky (KIP-794): another partition once a batch's worth of bytes went to this one.
    if topic.sticky < 0 or topic.sticky_bytes + record.size > appender.batch_size - BATCH_HEADER_SIZE:
        topic.sticky = appender._open_batches.choose_partition(topic)
        topic.sticky_bytes = 0
    topic.sticky_bytes += record.size
    return partition_at(appender._open_batches, topic, topic.sticky)


cdef inline RecordBatchBuilder room_for(RecordAppender appender, TopicInfo topic, const RecordBytes* record):
    """Returns where to write; None if the record must wait, for memory or behind others of its partition or topic."""
    cdef OpenPartition partition
    cdef RecordBatchBuilder builder
    cdef Py_ssize_t end
    if topic.waiting_count and record.partition < 0 and is_keyless(appender, record):
        return None
    partition = find_partition(appender, topic, record)
    builder = partition.open_batch
    if partition.waiting_count:
        return None
    if builder is not None:
        end = builder.size + record.size
    if builder is None or end > builder.chunk.capacity or (end > builder.limit and builder.count):
        if not appender._open_batches.make_room(partition, record.size):
            return None
        builder = partition.open_batch
    appender._partition = partition
    return builder


cdef inline int write(RecordAppender appender, RecordBatchBuilder builder, const RecordBytes* record) except -1:
    """Into the room that was found last."""
    write_record(builder, record)
    if builder.size >= builder.limit:
        appender._after_write()
    return 0


cdef inline void write_record(RecordBatchBuilder builder, const RecordBytes* record) noexcept:
    """Writes the record, leaving room for its length, which is only known at the end."""
    cdef char* start = builder.chunk.data + builder.size
    cdef Py_ssize_t room = varint_size(record.size)
    cdef char* body = start + room
    cdef char* at = body
    cdef Py_ssize_t length
    if builder.count == 0:
        builder.base_timestamp = record.timestamp
    at[0] = 0
    at = put_varint(at + 1, record.timestamp - builder.base_timestamp)
    at = put_varint(at, builder.count)
    at = put_bytes(at, record.key, record.key_size)
    at = put_bytes(at, record.value, record.value_size)
    if record.headers_size == 1:
        at[0] = record.headers[0]
    else:
        memcpy(at, record.headers, record.headers_size)
    length = at + record.headers_size - body
    if varint_size(length) != room:
        room = varint_size(length)
        memmove(start + room, body, length)
    put_varint(start, length)
    builder.size += room + length
    note_size(builder._sizes, room + length)
    builder.count += 1
    if record.timestamp > builder.max_timestamp:
        builder.max_timestamp = record.timestamp
