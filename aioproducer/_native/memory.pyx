# cython: language_level=3
"""Memory of batches: one block, lent out read-only.

A batch writes its records into a `Chunk`; a transport reads them through memoryviews. How many of these are
alive is counted, because that is the exact answer to "does the transport still hold these bytes": a chunk may be
used again only when it is zero (the bug class of KAFKA-19012).
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef class Chunk:

    def __cinit__(self, Py_ssize_t capacity):
        if capacity <= 0:
            raise ValueError(f"capacity must be at least 1 byte, got {capacity}")
        self.data = <char*>malloc(capacity)
        if self.data == NULL:
            raise MemoryError(f"could not allocate a chunk of {capacity} bytes")
        self.capacity = capacity
        self.exports = 0
        self._when_returned = None

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.capacity, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.exports -= 1
        if self.exports == 0 and self._when_returned is not None:
            callback, self._when_returned = self._when_returned, None
            callback(self)

    def fill(self, data):
        cdef const unsigned char[::1] view = data
        if view.shape[0] > self.capacity:
            raise ValueError(f"{view.shape[0]} bytes do not fit a chunk of {self.capacity}")
        if view.shape[0]:
            memcpy(self.data, &view[0], view.shape[0])

    def when_returned(self, callback):
        if self.exports == 0:
            callback(self)
        else:
            self._when_returned = callback

    def __repr__(self):
        return f"<Chunk capacity={self.capacity} exports={self.exports}>"
