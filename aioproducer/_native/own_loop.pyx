# cython: language_level=3
"""Whether the event loop that runs on this thread is the producer's: one comparison for each record."""

import asyncio

from cpython.object cimport PyObject

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef object running_loop = asyncio._get_running_loop  # None where none runs


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
