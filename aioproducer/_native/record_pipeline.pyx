# cython: language_level=3
"""The user's code around a record, and the append behind it: one native call, with one Python call for each hook.

    interceptors ──► serializers ──► partitioner ──► append

Hooks may send, flush or close themselves, so nothing of a record is kept in this object while one runs. They run
once per record: a record that has to wait leaves here as a `RecordArguments`, with its bytes.

Source: KafkaProducer.doSend in Apache Kafka.
"""

from asyncio import CancelledError
from functools import partial

cimport cython
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize

from aioproducer._native.append cimport RecordAppender
from aioproducer._native.arguments cimport as_bytes, may_be_called
from aioproducer._native.bound_serializer cimport BoundSerializer, PendingPart
from aioproducer._native.delivery cimport Delivery

from aioproducer.records import (
    ProducerRecord,
    WatchedRecord,
    check_callback,
    check_topic_name,
    normalize_headers,
)

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    ctypedef int (*descrsetfunc)(PyObject* member, PyObject* owner, PyObject* value) except -1
    ctypedef struct MemberType "PyTypeObject":
        descrsetfunc tp_descr_set
    MemberType* Py_TYPE(PyObject* member)
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)
    object PyContext_CopyCurrent()

cdef long long MAX_PARTITION = 0x7FFFFFFF
cdef object MAX_TIMESTAMP = 0x7FFFFFFFFFFFFFFF
cdef type RECORD_TYPE = ProducerRecord


cdef class RecordArguments:

    def __init__(self, topic, value, key, partition, timestamp, headers, on_delivery, *, context=None,
                 choose_partition=None):
        check_topic_name(topic)
        self.topic = str.__str__(topic)      # of a StrEnum, its text: topics are known by plain text
        self.value = value
        self.key = key
        self.partition = partition
        self.timestamp = timestamp
        self.headers = headers
        self.on_delivery = on_delivery
        self.context = PyContext_CopyCurrent() if context is None and on_delivery is not None else context
        self.choose_partition = choose_partition

    def choose(self):
        """Asks the partitioner, in the context of the call."""
        if self.choose_partition is not None:
            self.partition = self.choose_partition()
            self.choose_partition = None

    def append_to(self, RecordAppender appender not None):
        """Appends the record; returns None if it has to wait."""
        if self.context is None:
            return self._append_to(appender)
        return self.context.run(self._append_to, appender)  # `on_delivery` is called in a copy of it

    def _append_to(self, RecordAppender appender):
        return appender.append(
            self.topic, self.value, self.key, self.partition, self.timestamp, self.headers or None, self.on_delivery
        )

    def __repr__(self):
        return f"<RecordArguments for topic {self.topic!r} partition={self.partition}>"


# A ProducerRecord is made here from checked arguments by writing its slots, because its own __init__ is Python code
# that takes longer than all other steps of a record.

cdef object SLOT_OF_TOPIC = ProducerRecord.__dict__["topic"]
cdef object SLOT_OF_VALUE = ProducerRecord.__dict__["value"]
cdef object SLOT_OF_KEY = ProducerRecord.__dict__["key"]
cdef object SLOT_OF_PARTITION = ProducerRecord.__dict__["partition"]
cdef object SLOT_OF_TIMESTAMP = ProducerRecord.__dict__["timestamp"]
cdef object SLOT_OF_HEADERS = ProducerRecord.__dict__["headers"]


cdef inline int fill(object record, object slot, object value) except -1:
    return Py_TYPE(<PyObject*>slot).tp_descr_set(<PyObject*>slot, <PyObject*>record, <PyObject*>value)


cdef object new_record(topic, value, key, partition, timestamp, headers):
    cdef object record
    headers = headers_of(headers)
    if partition is not None and not (type(partition) is int and 0 <= partition <= MAX_PARTITION):
        return ProducerRecord(topic, value, key, partition, timestamp, headers)
    if timestamp is not None and not (type(timestamp) is int and 0 <= timestamp <= MAX_TIMESTAMP):
        return ProducerRecord(topic, value, key, partition, timestamp, headers)
    record = PyType_GenericAlloc(<PyTypeObject*>RECORD_TYPE, 0)
    fill(record, SLOT_OF_TOPIC, topic)
    fill(record, SLOT_OF_VALUE, value)
    fill(record, SLOT_OF_KEY, key)
    fill(record, SLOT_OF_PARTITION, partition)
    fill(record, SLOT_OF_TIMESTAMP, timestamp)
    fill(record, SLOT_OF_HEADERS, headers)
    return record


cdef object headers_of(headers):
    """A tuple of plain pairs, as `normalize_headers` makes it; without it where the pairs are plain already."""
    cdef Py_ssize_t size
    cdef tuple pair
    if headers is None:
        return ()
    if type(headers) is not tuple and type(headers) is not list:
        return normalize_headers(headers)
    for each in headers:
        if type(each) is not tuple or len(<tuple>each) != 2:
            return normalize_headers(headers)
        pair = <tuple>each
        if type(pair[0]) is not str or not (pair[1] is None or type(pair[1]) is bytes):
            return normalize_headers(headers)
        try:
            PyUnicode_AsUTF8AndSize(pair[0], &size)
        except UnicodeEncodeError:
            return normalize_headers(headers)
    return headers if type(headers) is tuple else tuple(headers)


cdef class InterceptorLoop:
    """Passes records through interceptors; `InterceptorChain` adds the rest."""

    def __init__(self, interceptors, *, bint listens):
        self.interceptors = tuple(interceptors)
        self.listens = listens

    cpdef object on_send(self, record):
        cdef object current = record
        cdef object returned
        cdef list watchers = None
        cdef int index = -1
        for interceptor in self.interceptors:
            index += 1
            try:
                returned = interceptor.on_send(current)
                if type(returned) is WatchedRecord:
                    watchers = [] if watchers is None else watchers
                    watchers.append((index, returned.on_end))
                    returned = returned.record
                if returned is not current and returned is not None and not isinstance(returned, ProducerRecord):
                    raise TypeError(f"on_send must return a ProducerRecord or None, not {type(returned).__name__}")
            except (Exception, CancelledError) as error:  # of the user's own code
                self._note_failure(index, "on_send", error)
                continue
            if returned is None:
                self._note_drop(index, current, watchers)
                return None
            current = returned
        self.watchers = watchers             # last: an interceptor may have sent other records meanwhile
        return current

    def __len__(self):
        return len(self.interceptors)


@cython.final
cdef class InterceptedOnDelivery:
    """The `on_delivery` of a record whose interceptors listen: notifies them, then calls the user's."""

    cdef object _chain
    cdef object _topic
    cdef object _headers
    cdef object _watchers
    cdef object _on_delivery

    def __call__(self, metadata, error):
        self._chain.note_end(self._topic, self._headers, self._watchers, metadata, error)
        return None if self._on_delivery is None else self._on_delivery(metadata, error)

    def refused(self, topic_partition, error):
        """Notifies them of a record that failed at its call, whose error the caller gets."""
        self._chain.note_error(topic_partition, error, self._headers, self._watchers)

    @property
    def counts_as_retrieval(self):
        """Notifying interceptors of a failure does not count as the user having seen it."""
        return self._on_delivery is not None


cdef InterceptedOnDelivery new_intercepted(InterceptorLoop chain, topic, headers, on_delivery):
    cdef InterceptedOnDelivery intercepted = InterceptedOnDelivery.__new__(InterceptedOnDelivery)
    intercepted._chain = chain
    intercepted._topic = topic
    intercepted._headers = headers
    intercepted._watchers = chain.watchers
    intercepted._on_delivery = on_delivery
    return intercepted


cdef inline bint wants_headers(BoundSerializer serializer, part):
    return serializer is not None and serializer.accepts_headers and part is not None


cdef inline bint is_pending_part(part):
    return part is not None and type(part) is not bytes and isinstance(part, PendingPart)


cdef class RecordPipeline:

    def __cinit__(self, RecordAppender appender not None, preparation, metadata, *,
                  InterceptorLoop interceptors not None, BoundSerializer key_serializer,
                  BoundSerializer value_serializer, partitioner):
        self.appender = appender
        self._preparation = preparation
        self._closed_batches = preparation.closed_batches
        self._metadata = metadata
        self._interceptors = interceptors if len(interceptors) else None
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self._partitioner = partitioner
        self.serializing = {}
        self.has_hooks = not (
            self._interceptors is None and key_serializer is None and value_serializer is None and partitioner is None
        )

    def take(self, topic, value, key, partition, timestamp, headers, on_delivery):
        return self.run(
            topic, value, key, partition, timestamp, headers, on_delivery, self.key_serializer, self.value_serializer,
            False,
        )

    def append_or_wait(self, topic, value, key, partition, timestamp, headers, on_delivery):
        return self.run(
            topic, value, key, partition, timestamp, headers, on_delivery, self.key_serializer, self.value_serializer,
            True,
        )

    def take_bytes(self, topic, value, key, partition, timestamp, headers, on_delivery):
        return self.run(topic, value, key, partition, timestamp, headers, on_delivery, None, None, True)

    cdef object run(self, topic, value, key, partition, timestamp, headers, on_delivery,
                    BoundSerializer key_serializer, BoundSerializer value_serializer, bint may_wait):
        """A Delivery if the record was appended or dropped; a RecordArguments if it has to wait.

        With `may_wait`, an UnfinishedRecord if a serializer of this or an earlier record of the topic is awaited.
        """
        cdef object record
        cdef object sent
        cdef object key_bytes
        cdef object value_bytes
        cdef Delivery delivery
        self.appender.check_open()
        if type(topic) is not str and isinstance(topic, str):
            topic = str.__str__(topic)       # of a StrEnum
        if topic is not self.appender._topic:
            self.appender.find_topic(topic)  # raises if there can be no such topic
        if on_delivery is not None and not may_be_called(on_delivery):
            check_callback(on_delivery)
        if self._interceptors is not None:
            record = new_record(topic, value, key, partition, timestamp, headers)
            sent = self._interceptors.on_send(record)
            if sent is None:
                return self._preparation.dropped(topic, timestamp, on_delivery)
            headers = sent.headers
            if sent is not record:
                topic, value, key = str.__str__(sent.topic), sent.value, sent.key
                partition, timestamp = sent.partition, sent.timestamp
            if self._interceptors.listens or self._interceptors.watchers is not None:
                on_delivery = new_intercepted(self._interceptors, topic, headers, on_delivery)
        elif self._partitioner is None and not (
            wants_headers(key_serializer, key) or wants_headers(value_serializer, value)
        ):                                   # no hooks but serializers, so no one to notify
            key_bytes, value_bytes = key, value
            if key_serializer is not None and key is not None:
                key_bytes = key_serializer.serialize(topic, key, None)
            if value_serializer is not None and value is not None:
                value_bytes = value_serializer.serialize(topic, value, None)
            if self._is_unfinished(topic, key_bytes, value_bytes, may_wait):
                return self._preparation.unfinished(
                    self, topic, value, key, partition, timestamp, headers, on_delivery, key_bytes, value_bytes
                )
            delivery = self.appender.append(topic, value_bytes, key_bytes, partition, timestamp, headers, on_delivery)
            if delivery is not None:
                return delivery
            return RecordArguments(topic, value_bytes, key_bytes, partition, timestamp, headers, on_delivery)
        return self._serialize(
            topic, value, key, partition, timestamp, headers, on_delivery, key_serializer, value_serializer, may_wait
        )

    cdef object _serialize(self, topic, value, key, partition, timestamp, headers, on_delivery,
                           BoundSerializer key_serializer, BoundSerializer value_serializer, bint may_wait):
        cdef object key_bytes = key
        cdef object value_bytes = value
        cdef list own_headers = None
        try:
            if wants_headers(key_serializer, key) or wants_headers(value_serializer, value):
                own_headers = list(headers_of(headers))
            if key_serializer is not None and key is not None:
                key_bytes = key_serializer.serialize(topic, key, own_headers)
            if value_serializer is not None and value is not None:
                value_bytes = value_serializer.serialize(topic, value, own_headers)
            if self._is_unfinished(topic, key_bytes, value_bytes, may_wait):
                if own_headers is not None:
                    headers = own_headers        # the serializer may add to it until it has finished
                return self._preparation.unfinished(
                    self, topic, value, key, partition, timestamp, headers, on_delivery, key_bytes, value_bytes
                )
            if own_headers is not None:
                headers = normalize_headers(own_headers)
        except Exception as error:
            if self._interceptors is not None:
                self._preparation.refused(topic, partition, on_delivery, error)
            raise
        return self.append_bytes(
            topic, value, key, partition, timestamp, headers, on_delivery, key_bytes, value_bytes
        )

    cdef bint _is_unfinished(self, topic, key_bytes, value_bytes, bint may_wait) except -1:
        cdef bint is_pending = is_pending_part(key_bytes) or is_pending_part(value_bytes)
        if may_wait:
            return is_pending or (self.serializing and topic in self.serializing)
        if is_pending:
            self._preparation.refuse_pending(key_bytes, value_bytes)
        return False

    cpdef object append_bytes(self, topic, value, key, partition, timestamp, headers, on_delivery, key_bytes,
                              value_bytes):
        """Asks the partitioner, and appends; a RecordArguments if the record has to wait."""
        cdef object choose = None
        cdef Delivery delivery
        try:
            if self._partitioner is not None and partition is None:
                key_bytes, value_bytes = as_bytes(key_bytes, "key"), as_bytes(value_bytes, "value")
                if self._partition_count(self._metadata.cluster, topic) < 0:
                    choose = partial(self.choose, topic, key, key_bytes, value, value_bytes)
                else:
                    partition = self.choose(topic, key, key_bytes, value, value_bytes)
            if choose is None:
                delivery = self.appender.append(
                    topic, value_bytes, key_bytes, partition, timestamp, headers or None, on_delivery
                )
                if delivery is not None:
                    return delivery
        except Exception as error:
            if self._interceptors is not None:
                self._preparation.refused(topic, partition, on_delivery, error)
            raise
        context = None
        if choose is not None or self._interceptors is not None:
            context = PyContext_CopyCurrent()
        if choose is not None:
            choose = partial(context.run, choose)
        return RecordArguments(topic, value_bytes, key_bytes, partition, timestamp, headers, on_delivery,
                               context=context, choose_partition=choose)

    # The partitioner

    cpdef choose(self, topic, key, bytes key_bytes, value, bytes value_bytes):
        cdef object cluster = self._metadata.cluster
        cdef object choice
        cdef Py_ssize_t partitions = self._partition_count(cluster, topic)
        if self._closed_batches:
            self._preparation.notify_of_closed_batches()
        try:
            choice = self._partitioner.partition(topic, key, key_bytes, value, value_bytes, cluster)
        except (Exception, CancelledError) as error:
            raise self._preparation.partitioner_failed(topic, error) from error
        if type(choice) is int and 0 <= choice < partitions:
            return choice
        return self._preparation.checked_choice(choice, topic, max(partitions, 0))

    cdef Py_ssize_t _partition_count(self, cluster, topic) except -2:
        """-1 if unknown. A Cluster is immutable, so the last result is cached."""
        if cluster is not self._cluster or topic is not self._topic:
            count = cluster.partition_count(topic)
            self._cluster, self._topic = cluster, topic
            self._partitions = -1 if count is None else count
        return self._partitions
