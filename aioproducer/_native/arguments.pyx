# cython: language_level=3
"""Checks of the arguments of a record; each raises with the argument's name and what is allowed."""

from libc.stdint cimport int64_t

from aioproducer._shown_values import shown

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


cdef inline object as_int(value):
    """The value as a plain int, also of an enum; None if it is not an integer, as a bool.

    A plain one because no code of the user's has a say in how that is compared.
    """
    if type(value) is int:
        return value
    return int.__int__(value) if isinstance(value, int) and not isinstance(value, bool) else None


cdef Py_ssize_t as_partition(partition) except -2:
    if partition is None:
        return -1
    number = as_int(partition)
    if number is None:
        raise TypeError(f"partition must be an int or None, got {type(partition).__name__} ({shown(partition)})")
    if number < 0:
        raise ValueError(f"partition must be 0 or more, or None to have it chosen, got {shown(number)}")
    if number > 0x7FFFFFFF:
        raise ValueError(f"partition must be below 2**31, got {shown(number)}")
    return number


cdef int64_t as_timestamp(timestamp) except -2:
    number = as_int(timestamp)
    if number is None:
        raise TypeError(
            f"timestamp must be an int of milliseconds since the epoch, got {type(timestamp).__name__} "
            f"({shown(timestamp)})"
        )
    if number < 0 or number > MAX_INT64:
        raise ValueError(f"timestamp must be 0..2**63-1 milliseconds since the epoch, got {shown(number)}")
    return number


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


cdef tuple header_pair(pair):
    """A checked plain tuple of name and value, which no code of the user can change while it is written."""
    cdef tuple given
    if type(pair) is not tuple and not isinstance(pair, (tuple, list)):
        raise TypeError(f"headers must hold (str, bytes | None) pairs, got {type(pair).__name__}")
    given = pair if type(pair) is tuple else tuple(pair)
    if len(given) != 2:
        raise ValueError(f"headers must hold (str, bytes | None) pairs, got one of {len(given)} elements")
    name, value = given
    if not isinstance(name, str):
        raise TypeError(f"headers: a name must be str, got {type(name).__name__}")
    if isinstance(value, str):
        raise TypeError(f"headers: the value of {name!r} must be bytes or None, got str: use .encode()")
    if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"headers: the value of {name!r} must be bytes or None, got {type(value).__name__}")
    return given
