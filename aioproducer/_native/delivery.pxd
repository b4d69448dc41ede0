"""The handle of a record, and the result that the records of a batch share."""

from libc.stdint cimport int64_t


cdef class BatchResult:
    cdef readonly object loop                # the producer's event loop; None only in sans-IO tests
    cdef readonly object topic_partition     # TopicPartition; None while its only record waits
    cdef readonly int64_t base_offset        # offset of the batch's first record; -1 unknown
    cdef readonly int64_t log_append_time    # ms since the epoch; -1 when the topic keeps CreateTime
    cdef readonly int64_t log_start_offset   # -1 unknown
    cdef readonly object error               # KafkaError that every record of the batch gets; None = written
    cdef readonly bint done
    cdef readonly bint wanted                # someone waits for a record of this batch
    cdef readonly bint awaited               # by an `await`, in a task's own step; not by a callback
    cdef readonly int count                  # records of the batch
    cdef set seen                            # positions of records whose failure a caller has seen; None = none
    cdef public object on_wanted             # called once with self, when the first waiter comes; or None
    cdef list waiting                        # Deliveries of this batch that have waiters or callbacks
    cdef list callbacks                      # (index, timestamp, on_delivery, context of its call) in record order
    cdef list failure_counts                 # counts that include its unseen records; None = none
    cdef list parts                          # after a move: (first index here, BatchResult, index there)

    cpdef add_callback(self, int index, int64_t timestamp, callback, context=*)
    cdef int want(self) except -1
    cdef void note_seen(self, int index)


cdef class Followers:
    cdef list waiters                        # private futures of waiters; None: no more
    cdef list callbacks                      # (callable, contextvars.Context); None: no more
    cdef object cancel_message


cdef class Delivery:
    cdef BatchResult _result
    cdef int _index                          # position in the batch
    cdef int64_t _timestamp                  # the record's own, ms since the epoch
    cdef Followers _followers                # None for most: no waiter and no callback
    cdef bint _cancelled
    cdef bint _registered                    # already in _result.waiting

    cdef Followers followers(self)
    cdef BatchResult settle(self)
    cdef int register(self, BatchResult result) except -1
    cdef void look(self, BatchResult result)
    cdef object add_waiter(self, BatchResult result)
    cdef object metadata(self, BatchResult result)


cdef class DeliveryWaiter:
    cdef Delivery _delivery
    cdef bint _waited


cdef Delivery new_delivery(BatchResult result, int index, int64_t timestamp)
