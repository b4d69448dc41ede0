"""Whether the event loop that runs on this thread is the producer's."""

cimport cython
from cpython.object cimport PyObject

cdef extern from *:
    """
    /* An event loop that runs has a hook for asynchronous generators set in its thread: another object for each loop,
       and for each run of one. So one look tells another thread, another loop, and another run. */
    static inline PyObject* hook_of_loop(void) { return PyThreadState_Get()->async_gen_firstiter; }
    """
    PyObject* hook_of_loop() noexcept


@cython.final
cdef class OwnLoop:
    cdef object _loop                        # loop that it was made on, or None
    cdef object _hook                        # of the last loop seen; kept alive, so that its address is unique
    cdef unsigned long _thread

    cdef inline bint was_seen(self) noexcept:
        return <PyObject*>self._hook == hook_of_loop()

    cdef bint look(self) except -1
