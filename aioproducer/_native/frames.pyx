# cython: language_level=3
"""Frames of one connection: requests are numbered, and the broker's bytes are cut into responses.

Every request and every response passes here. What is wrong with a frame is found here, and said by
`_protocol/framing.py`, which also draws the frames.
"""

from collections import deque
from types import GenericAlias

from cpython.bytearray cimport PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.string cimport memcpy

from aioproducer._native.big_endian cimport get_int32, put_int16, put_int32

cdef enum:
    API_VERSIONS = 18
    SIZE_BYTES = 4
    CORRELATION_ID_BYTES = 4      # as many as the smallest frame has
    REQUEST_START_BYTES = 12      # size, api key, version, correlation id
    LAST_CORRELATION_ID = 0x7FFFFFFF
    LARGEST_SIZE = 0x7FFFFFFF


cdef class Frames:
    cdef bytes _client_id                    # as it stands in a header
    cdef bytes _tagged_client_id             # with the tagged fields of the header: none
    cdef Py_ssize_t _max_frame_bytes
    cdef readonly Py_ssize_t always_allowed  # bytes of a response, whichever request it answers
    cdef int _correlation_id                 # of the next request
    cdef readonly object unanswered          # (correlation id, header has tags, context, api key, most bytes), in order
    cdef bytes _start                        # of a frame: fewer bytes than its size takes
    # As much as there is of a frame whose size is known; not a list of its pieces, each of which costs some hundred
    # bytes: of a frame that comes byte by byte they would be its size many times.
    cdef bytearray _frame
    cdef Py_ssize_t _missing                 # bytes of that frame still to come; 0 between frames
    cdef public bint has_spoken              # whether the broker's first frame was found to be one, by `check_size`

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, bytes client_id, Py_ssize_t max_frame_bytes, Py_ssize_t always_allowed,
                 int first_correlation_id):
        self._client_id = len(client_id).to_bytes(2, "big", signed=True) + client_id
        self._tagged_client_id = self._client_id + b"\x00"
        self._max_frame_bytes = max_frame_bytes
        self.always_allowed = always_allowed
        self._correlation_id = first_correlation_id
        self.unanswered = deque()
        self._start = b""
        self._frame = bytearray()

    @property
    def in_flight(self):
        return len(self.unanswered)

    @property
    def held_bytes(self):
        return PyByteArray_GET_SIZE(self._frame)

    def drop_held(self):
        self._frame, self._start = bytearray(), b""

    def send(self, int api_key, int version, buffers, *, bint flexible, context, bint expects_response=True,
             largest_response=None):
        cdef bytes client_id = self._tagged_client_id if flexible else self._client_id
        cdef Py_ssize_t client_id_size = PyBytes_GET_SIZE(client_id)
        cdef Py_ssize_t size = REQUEST_START_BYTES - SIZE_BYTES + client_id_size
        cdef int correlation_id = self._correlation_id
        cdef bytes piece
        cdef char* at
        for buffer in buffers:
            size += len(buffer)
        if size > LARGEST_SIZE:
            raise OverflowError(f"a request of {size} bytes does not fit a frame, whose size has four bytes")
        self._correlation_id = 0 if correlation_id == LAST_CORRELATION_ID else correlation_id + 1
        if expects_response:
            # ApiVersions is answered with the plain header in every version: the broker may not know ours.
            largest = self._max_frame_bytes
            if largest_response is not None and largest_response < largest:
                largest = largest_response
            self.unanswered.append((correlation_id, flexible and api_key != API_VERSIONS, context, api_key, largest))
        piece = PyBytes_FromStringAndSize(NULL, REQUEST_START_BYTES + client_id_size)
        at = put_int32(PyBytes_AS_STRING(piece), size)
        at = put_int16(at, api_key)
        at = put_int16(at, version)
        at = put_int32(at, correlation_id)
        memcpy(at, PyBytes_AS_STRING(client_id), client_id_size)
        return [piece + buffers[0], *buffers[1:]]

    def receive(self, data):
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t length
        cdef Py_ssize_t size
        if self._start:
            data = self._start + bytes(data)
            self._start = b""
        view = memoryview(data)
        length = len(view)
        if self._missing:
            position = min(self._missing, length)
            self._frame += view[:position]
            self._missing -= position
            if self._missing:
                return
            frame, self._frame = memoryview(self._frame), bytearray()
            yield self.answer(frame, 0, len(frame))
        while length - position >= SIZE_BYTES:
            size = get_int32(bytes_of(view) + position)
            if not (self.has_spoken and CORRELATION_ID_BYTES <= size <= self.always_allowed):
                self.check_size(view[position:position + SIZE_BYTES], size)
            position += SIZE_BYTES
            if size > length - position:
                self._frame += view[position:]
                self._missing = size - (length - position)
                return
            position += size
            yield self.answer(view, position - size, position)
        self._start = bytes(view[position:])

    cdef tuple answer(self, view, Py_ssize_t start, Py_ssize_t end):
        """The context and the response of a frame that stands between `start` and `end`."""
        cdef const unsigned char* at = bytes_of(view) + start
        cdef Py_ssize_t begin = start
        cdef tuple request
        cdef int correlation_id = get_int32(at)
        if not self.unanswered:
            self.refuse_answer(correlation_id)
        request = self.unanswered[0]
        if correlation_id != request[0]:
            self.refuse_answer(correlation_id)
        start += CORRELATION_ID_BYTES
        if request[1]:
            # No tagged field of a response header is known, and brokers send none.
            if start < end and at[CORRELATION_ID_BYTES] == 0:
                start += 1
            else:
                start = begin + self.end_of_tags(view[begin:end], CORRELATION_ID_BYTES)
        self.unanswered.popleft()
        return request[2], view[start:end]


cdef inline const unsigned char* bytes_of(view):
    return <const unsigned char*>PyMemoryView_GET_BUFFER(view).buf
