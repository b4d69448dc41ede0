"""Memory of batches: one block, lent out read-only."""

cdef class Chunk:
    cdef char* data                      # malloc'ed block, NULL once freed
    cdef readonly Py_ssize_t capacity    # bytes in the block
    cdef readonly Py_ssize_t exports     # memoryviews of it that are still alive
    cdef object _when_returned           # called once, when the last memoryview is gone
