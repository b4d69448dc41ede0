# cython: language_level=3
"""Reports an exception without a caller through `sys.unraisablehook`.

The hook takes an object that only C can make (`sys.UnraisableHookArgs`), and what the hook itself raises ends here.
"""

from cpython.exc cimport PyErr_WriteUnraisable

cdef extern from "Python.h":
    void PyErr_SetObject(object kind, object value)


def report_unraisable(BaseException error not None, source):
    _write(error, source)


cdef void _write(error, source) noexcept:
    PyErr_SetObject(type(error), error)
    PyErr_WriteUnraisable(source)
