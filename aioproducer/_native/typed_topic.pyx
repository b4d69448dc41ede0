# cython: language_level=3
"""Send methods of a typed topic: check types, serialize, and pass on to the producer's pipeline."""

from types import GenericAlias

cimport cython

from aioproducer._native.delivery cimport Delivery
from aioproducer._native.enqueue cimport EnqueueMethod, new_accepted
from aioproducer._native.record_pipeline cimport RecordPipeline

from aioproducer.records import normalize_headers


cdef inline bint is_of(part, tuple types) except -1:
    return part is None or types is None or type(part) is types[0] or isinstance(part, types)


@cython.auto_pickle(False)
cdef class TypedMethods:

    def __init__(self, EnqueueMethod producer not None, records, *, bint asks_producer):
        key, value = records.key, records.value
        self._producer = producer
        self._asks_producer = asks_producer
        self._records = records
        self._topic = str.__str__(records.name)  # of a StrEnum, its text
        self._headers = records.headers or None
        self._key_types, self._key_serializer = key.types, key.serialize
        self._value_types, self._value_serializer = value.types, value.serialize

    @classmethod
    def __class_getitem__(cls, parameters):
        return GenericAlias(cls, parameters)

    cdef object _give(self, value, key, partition, timestamp, headers, on_delivery, bint may_wait):
        """A Delivery, or a RecordArguments or UnfinishedRecord if it has to wait."""
        cdef RecordPipeline pipeline = self._producer._pipeline
        if pipeline is None:
            pipeline = self._open_pipeline()  # raises if no records are accepted
        if not (is_of(value, self._value_types) and is_of(key, self._key_types)):
            self._records.check(value, key)
        if headers is None:
            headers = self._headers
        else:
            headers = normalize_headers(headers) if self._headers is None else self._records.headers_with(headers)
        if self._asks_producer and not pipeline.has_hooks:
            return None
        return pipeline.run(
            self._topic, value, key, partition, timestamp, headers, on_delivery,
            self._key_serializer, self._value_serializer, may_wait,
        )

    def _take(self, value, key, partition, timestamp, headers, on_delivery):
        return self._give(value, key, partition, timestamp, headers, on_delivery, False)

    def _append_or_wait(self, value, key, partition, timestamp, headers, on_delivery):
        return self._give(value, key, partition, timestamp, headers, on_delivery, True)

    def enqueue(self, value=None, *, key=None, partition=None, timestamp=None, headers=None, on_delivery=None,
                deadline=None):
        """As `Producer.enqueue`.

        Raises:
            TypeError: key or value is not of the topic's types; else as `Producer.enqueue`.
        """
        cdef object taken
        if deadline is not None:
            return self._enqueue_within(deadline, value, key, partition, timestamp, headers, on_delivery)
        taken = self._give(value, key, partition, timestamp, headers, on_delivery, True)
        if type(taken) is Delivery:
            return new_accepted((<RecordPipeline>self._producer._pipeline).appender, <Delivery>taken)
        return self._enqueue_slowly(taken, value, key, partition, timestamp, headers, on_delivery)
