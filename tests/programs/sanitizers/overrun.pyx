# cython: language_level=3
"""Two deliberate defects, built beside the real modules: the sanitizers must report them, or they are not on."""

from libc.stdlib cimport free, malloc


def past_the_end(Py_ssize_t at):
    """Writes at an index of a block of eight bytes."""
    cdef char* block = <char*>malloc(8)
    block[at] = 1
    written = block[at]
    free(block)
    return written


def shifted(int bits):
    """Shifts by more than an int has bits, if told so."""
    cdef int one = 1
    return one << bits
