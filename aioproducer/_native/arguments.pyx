# cython: language_level=3
"""Checks of what callers pass for a record; each raises with the argument's name and what is allowed."""

from libc.stdint cimport int64_t

cdef int64_t MAX_INT64 = 0x7FFFFFFFFFFFFFFF


cdef bytes converted_to_bytes(value, str name):
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        raise TypeError(
            f"{name} must be bytes, got str: pass {name}={name}.encode(), or give the producer a {name}_serializer"
        )
    raise TypeError(
        f"{name} must be bytes, bytearray, memoryview or None, got {type(value).__name__}: "
        f"give the producer a {name}_serializer for other types"
    )


cdef inline bint is_int(value):
    """Whether it is an int, of an enum too, and no bool."""
    return type(value) is int or (isinstance(value, int) and not isinstance(value, bool))


cdef Py_ssize_t as_partition(partition) except -2:
    if partition is None:
        return -1
    if not is_int(partition):
        raise TypeError(f"partition must be an int or None, got {type(partition).__name__} ({partition!r})")
    if partition < 0:
        raise ValueError(f"partition must be 0 or more, or None to have it chosen, got {partition}")
    if partition > 0x7FFFFFFF:
        raise ValueError(f"partition must be below 2**31, got {partition}")
    return partition


cdef int64_t as_timestamp(timestamp) except -2:
    if not is_int(timestamp):
        raise TypeError(
            f"timestamp must be an int of milliseconds since the epoch, got {type(timestamp).__name__} ({timestamp!r})"
        )
    if timestamp < 0 or timestamp > MAX_INT64:
        raise ValueError(f"timestamp must be 0..2**63-1 milliseconds since the epoch, got {timestamp}")
    return timestamp


cdef object check_headers(headers):
    if isinstance(headers, (dict, str, bytes)):
        raise TypeError(
            f"headers must be an iterable of (str, bytes | None) pairs, got {type(headers).__name__}: "
            "pass list(headers.items()) for a dict"
        )
    if type(headers) is tuple:
        return headers
    try:
        return tuple(headers)
    except TypeError:
        raise TypeError(
            f"headers must be an iterable of (str, bytes | None) pairs, got {type(headers).__name__}"
        ) from None


cdef bytes header_value(pair):
    if type(pair) is not tuple and not isinstance(pair, (tuple, list)):
        raise TypeError(f"headers must hold (str, bytes | None) pairs, got {type(pair).__name__}")
    if len(pair) != 2:
        raise ValueError(f"headers must hold (str, bytes | None) pairs, got one of {len(pair)} elements")
    if not isinstance(pair[0], str):
        raise TypeError(f"headers: a name must be str, got {type(pair[0]).__name__}")
    if isinstance(pair[1], str):
        raise TypeError(f"headers: the value of {pair[0]!r} must be bytes or None, got str: use .encode()")
    if pair[1] is not None and not isinstance(pair[1], (bytes, bytearray, memoryview)):
        raise TypeError(f"headers: the value of {pair[0]!r} must be bytes or None, got {type(pair[1]).__name__}")
    value = pair[1]
    return value if value is None or type(value) is bytes else bytes(value)
