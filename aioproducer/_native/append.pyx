# cython: language_level=3
"""Appends one record to its partition's open batch.

A record of format v2, as it is written here (source: DefaultRecord in Apache Kafka):

    length           varint   bytes that follow
    attributes       int8     0
    timestampDelta   varlong  to the batch's base timestamp
    offsetDelta      varint   position in the batch
    keyLength        varint   -1 = null
    key              bytes
    valueLength      varint   -1 = null
    value            bytes
    headerCount      varint
    headers          (varint length, UTF-8 name, varint length or -1, value) ...

All steps per record are here; steps per batch are calls of the accumulator in Python.
"""

import asyncio

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from aioproducer._native.arguments cimport (
    as_bytes, as_partition, as_timestamp, check_headers, header_pair, may_be_called,
)
from aioproducer._native.delivery cimport BatchResult, Delivery, new_delivery
from aioproducer._native.measures cimport RecordSizes
from aioproducer._native.memory cimport Chunk
from aioproducer._native.key_hashes cimport has_hash, partition_of_key
from aioproducer._native.record_bytes cimport (
    RECORD_OVERHEAD, RecordBytes, nullable_data, nullable_size, put_bytes,
)
from aioproducer._native.varint cimport put_varint

from aioproducer.records import check_callback, check_topic_name

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* now)
    int CLOCK_REALTIME

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef object running_loop = asyncio._get_running_loop  # None where none runs

HEADER_SIZE = BATCH_HEADER_SIZE

cdef const char* NO_HEADERS = b"\0"


def hash_partition(int kind, bytes key not None, int partition_count):
    return partition_of_key(
        kind, <const unsigned char*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), partition_count
    )


cdef class RecordBatchBuilder:

    def __init__(self, Chunk chunk not None, BatchResult result not None, Py_ssize_t limit, RecordSizes sizes=None):
        self.chunk = chunk
        self.result = result
        self.limit = limit
        self._sizes = RecordSizes() if sizes is None else sizes
        self.base_timestamp = -1
        self.max_timestamp = -1

    def continue_in(self, Chunk chunk not None):
        if chunk.capacity < self.size:
            raise ValueError(f"a chunk of {chunk.capacity} bytes cannot hold {self.size} bytes of records")
        memcpy(chunk.data, self.chunk.data, self.size)
        self.chunk = chunk

    @property
    def wire_size(self):
        return BATCH_HEADER_SIZE + self.size

    cpdef records(self):
        return PyMemoryView_FromObject(self.chunk)[self.start:self.start + self.size]

    def __repr__(self):
        return f"<RecordBatchBuilder count={self.count} size={self.size} limit={self.limit}>"


cdef class OpenPartition:

    def __init__(self, int number):
        self.number = number


cdef class TopicInfo:

    def __init__(self, str topic not None):
        self.topic = topic
        self.partitions = []
        self.sticky = -1

    def stick_to(self, int partition):
        if self.sticky != partition:
            self.sticky, self.sticky_bytes = partition, 0

    def leave(self, int partition):
        if self.sticky == partition:
            self.sticky = -1

    def block(self):
        self.blocked_count += 1

    def unblock(self):
        self.blocked_count -= 1

    def append_past_block(self, append, record):
        self.blocked_count -= 1
        try:
            return append(record)
        finally:
            self.blocked_count += 1

    def __repr__(self):
        return f"<TopicInfo {self.topic!r} partitions={len(self.partitions)}>"


@cython.final
cdef class OwnLoop:

    def __cinit__(self):
        self._loop = running_loop()
        self._thread = PyThread_get_thread_ident()

    def is_on_thread(self):
        return self._thread == PyThread_get_thread_ident()

    def is_here(self):
        return self.was_seen() or self.look()

    cdef bint look(self) except -1:
        cdef PyObject* hook = hook_of_loop()
        cdef object running
        if self._thread != PyThread_get_thread_ident():
            return False
        running = running_loop()
        if running is None or self._loop is None:
            return True
        if running is not self._loop:
            return False
        if hook is not NULL:
            self._hook = <object>hook
        return True

    def __repr__(self):
        return f"<OwnLoop {self._loop!r}>"


cdef class RecordAppender:

    def __cinit__(self, open_batches, *, refuse, Py_ssize_t batch_size, Py_ssize_t max_record_size,
                  wall_clock=None, bint ignore_keys=False, int key_hash=0):
        self.topics = open_batches.topics
        self._topic = self.topics  # no topic's name
        self._open_batches = open_batches
        self._refuse = refuse
        self.batch_size = batch_size
        self.max_record_size = max_record_size
        self._wall_clock = wall_clock
        self._ignore_keys = ignore_keys
        self._key_hash = key_hash
        self.closed = True
        self.own_loop = OwnLoop()

    def __dealloc__(self):
        free(self._scratch)

    def open(self):
        self.closed = False

    def check(self):
        self.check_open()

    def wall_clock_ms(self):
        return self._now_ms()

    cdef inline bint is_open_here(self) except -1:
        return not self.closed and (self.own_loop.was_seen() or self.own_loop.look())

    cdef inline int check_open(self) except -1:
        if not self.is_open_here():
            self._refuse()
        return 0

    cdef int64_t _now_ms(self) except -2:
        cdef timespec now
        if self._wall_clock is not None:
            return self._wall_clock()
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000

    # Calls

    cpdef Delivery append(self, topic, value, key, partition, timestamp, headers, on_delivery):
        cdef RecordBytes record
        cdef TopicInfo topic_info
        cdef bytes value_bytes
        cdef bytes key_bytes
        self.check_open()
        topic_info = self._topic_info if topic is self._topic else self.find_topic(topic)
        value_bytes = as_bytes(value, "value")
        key_bytes = as_bytes(key, "key")
        if on_delivery is not None and not may_be_called(on_delivery):
            check_callback(on_delivery)
        if self.busy:  # user code runs inside another append, for example a finalizer or a log handler
            return None
        self.busy = True  # already here: reading headers may run a finalizer, and there is only one scratch
        try:
            self.unpack(&record, topic, key_bytes, value_bytes, partition, timestamp, headers)
            if topic_info is None or topic_info.blocked_count:
                return None
            return self._append(topic_info, &record, on_delivery)
        finally:
            self.busy = False

    cdef TopicInfo find_topic(self, topic):
        """Finds a topic by name, or returns None. The last one is cached by identity: topics in use stay in use."""
        cdef PyObject* found = PyDict_GetItemWithError(self.topics, topic) if type(topic) is str else NULL
        if found is NULL:
            check_topic_name(topic)
            return None
        self._topic = topic
        self._topic_info = <TopicInfo>found
        return self._topic_info

    def measure(self, topic, value, key, partition, timestamp, headers):
        """Checks a record that has to wait: returns (value, key, timestamp, most bytes it can take)."""
        cdef RecordBytes record
        cdef bytes value_bytes = as_bytes(value, "value")
        cdef bytes key_bytes = as_bytes(key, "key")
        cdef char* scratch
        cdef Py_ssize_t size
        cdef Py_ssize_t capacity
        cdef bint was_busy
        check_topic_name(topic)
        scratch, size, capacity, was_busy = self._scratch, self._scratch_size, self._scratch_capacity, self.busy
        self._scratch, self._scratch_capacity = NULL, 0  # its content may belong to an outer append
        self.busy = True
        try:
            self.unpack(&record, topic, key_bytes, value_bytes, partition, timestamp, headers)
        finally:
            self.busy = was_busy
            free(self._scratch)
            self._scratch, self._scratch_size, self._scratch_capacity = scratch, size, capacity
        return value_bytes, key_bytes, record.timestamp, record.size

    # Arguments

    cdef int unpack(self, RecordBytes* record, topic, bytes key, bytes value, partition, timestamp,
                    headers) except -1:
        record.key = nullable_data(key)
        record.key_size = nullable_size(key)
        record.value = nullable_data(value)
        record.value_size = nullable_size(value)
        record.partition = -1 if partition is None else as_partition(partition)
        record.timestamp = self._now_ms() if timestamp is None else as_timestamp(timestamp)
        if headers is None:
            record.headers = NO_HEADERS
            record.headers_size = 1
        else:
            self._write_headers(headers)
            record.headers = self._scratch
            record.headers_size = self._scratch_size
        record.size = RECORD_OVERHEAD + record.headers_size
        if key is not None:
            record.size += record.key_size
        if value is not None:
            record.size += record.value_size
        if record.size + BATCH_HEADER_SIZE > self.max_record_size:
            raise self._open_batches.too_large(topic, record.size + BATCH_HEADER_SIZE)
        return 0

    cdef int _write_headers(self, headers) except -1:
        cdef const char* name
        cdef Py_ssize_t name_size
        cdef bytes data
        cdef char* at
        pairs = check_headers(headers)  # a tuple, so that its length cannot change
        self._scratch_room(10)
        self._scratch_size = put_varint(self._scratch, len(pairs)) - self._scratch
        for pair in pairs:
            pair = header_pair(pair)
            data = pair[1] if pair[1] is None or type(pair[1]) is bytes else bytes(pair[1])
            try:
                name = PyUnicode_AsUTF8AndSize(pair[0], &name_size)
            except UnicodeEncodeError as error:
                raise ValueError(f"headers: the name {pair[0]!r} cannot be encoded as UTF-8: {error.reason}") from None
            self._scratch_room(self._scratch_size + name_size + nullable_size(data) + 21)
            at = put_bytes(self._scratch + self._scratch_size, name, name_size)
            at = put_bytes(at, nullable_data(data), nullable_size(data))
            self._scratch_size = at - self._scratch
        return 0

    cdef int _scratch_room(self, Py_ssize_t size) except -1:
        cdef char* grown
        if size <= self._scratch_capacity:
            return 0
        grown = <char*>realloc(self._scratch, size * 2)
        if grown == NULL:
            raise MemoryError(f"could not allocate {size * 2} bytes for headers")
        self._scratch = grown
        self._scratch_capacity = size * 2
        return 0

    # Appending

    cdef Delivery _append(self, TopicInfo topic, RecordBytes* record, on_delivery):
        """Appends a record; returns None if it must wait."""
        cdef RecordBatchBuilder builder = room_for(self, topic, record)
        cdef Delivery delivery
        if builder is None:
            return None
        # Steps that may fail come before the write: a written record is sent, so its call must not raise.
        delivery = new_delivery(builder.result, builder.count, record.timestamp)
        if on_delivery is not None:
            builder.result.add_callback(builder.count, record.timestamp, on_delivery)
        write(self, builder, record)
        return delivery

    cdef int _after_write(self) except -1:
        try:
            self._open_batches.batch_full(self._partition)
        except (MemoryError, RecursionError):
            pass  # the next record for this partition closes a full batch
        return 0

    def append_waiting(self, topic, bytes value, bytes key, number, int64_t timestamp, headers):
        """Appends a record that waited, past the queue of its partition; None if there is no memory."""
        cdef RecordBytes record
        cdef TopicInfo topic_info = self.topics[topic]
        cdef OpenPartition partition
        cdef int waiting_count
        self.busy = True
        try:
            self.unpack(&record, topic, key, value, number, timestamp, headers)
            partition = find_partition(self, topic_info, &record)
            record.partition = partition.number
            waiting_count, partition.waiting_count = partition.waiting_count, 0
            try:
                return self._append(topic_info, &record, None)
            finally:
                partition.waiting_count += waiting_count
        finally:
            self.busy = False

    def partition_of(self, topic, bytes key, partition):
        """The partition given or by key; None if it is chosen later."""
        cdef TopicInfo topic_info = self.topics[topic]
        if partition is not None:
            return partition
        if key is None or self._ignore_keys or not has_hash(self._key_hash, len(key)):
            return None
        return hash_partition(self._key_hash, key, len(topic_info.partitions))
