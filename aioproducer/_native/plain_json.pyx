# cython: language_level=3
"""JSON by a fast library, where it writes the same bytes as Python's `json`.

Libraries agree with `json` on plain values: dicts with `str` keys, lists, tuples, `str`, `int`, `bool`, None, and
floats that are written without an exponent. They differ in floats with one, in NaN (null), and in what they take
besides: enums, dataclasses, UUIDs, times. So a value is looked through first, which costs little.
"""

from libc.math cimport fabs

cdef enum:
    MAX_DEPTH = 100                          # below the libraries' limits; a circular value is endless

cdef object NOT_PLAIN = object()


cdef class PlainJson:

    cdef object _encode                      # of the library
    cdef object _default                     # as of `json`; None

    def __cinit__(self, encode, default):
        self._encode = encode
        self._default = default

    def __call__(self, value):
        try:
            value = self._plain(value, MAX_DEPTH)
            return None if value is NOT_PLAIN else self._encode(value)
        except Exception:                    # such as a long int; `json` raises it again
            return None

    cdef object _plain(self, value, int depth):
        """The value as `json` sees it: other objects are replaced by their `default`."""
        cdef object kind = type(value)
        cdef double size
        if value is None or kind is str or kind is int or kind is bool:
            return value
        if kind is float:
            size = fabs(<double>value)
            return value if size == 0 or 1e-4 <= size < 1e16 else NOT_PLAIN
        if depth == 0:
            return NOT_PLAIN
        if kind is dict:
            return self._plain_dict(<dict>value, depth - 1)
        if kind is list or kind is tuple:
            return self._plain_array(value, depth - 1)
        if self._default is None or isinstance(value, (str, int, float, dict, list, tuple)):
            return NOT_PLAIN
        return self._plain(self._default(value), depth - 1)

    cdef object _plain_dict(self, dict value, int depth):
        cdef dict copy = None
        for name, part in value.items():
            if type(name) is not str:
                return NOT_PLAIN
            made = self._plain(part, depth)
            if made is NOT_PLAIN:
                return NOT_PLAIN
            if made is not part:
                copy = dict(value) if copy is None else copy
                copy[name] = made
        return value if copy is None else copy

    cdef object _plain_array(self, value, int depth):
        cdef list copy = None
        cdef Py_ssize_t index = 0
        for part in value:
            made = self._plain(part, depth)
            if made is NOT_PLAIN:
                return NOT_PLAIN
            if made is not part:
                copy = list(value) if copy is None else copy
                copy[index] = made
            index += 1
        return value if copy is None else copy
