"""Copies of arguments that the caller may change once the call that hands them to another thread has returned."""

from __future__ import annotations

from collections.abc import ItemsView
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from aioproducer._native.append import Headers

PayloadT = TypeVar("PayloadT")


def owned(payload: PayloadT) -> PayloadT:
    """Copy a `bytearray` or `memoryview`, to the same type, which a serializer may ask for; others are as they were."""
    if isinstance(payload, bytearray):
        return cast("PayloadT", bytearray(payload))
    if isinstance(payload, memoryview):
        return cast("PayloadT", memoryview(bytes(payload)))
    return payload


def owned_headers(headers: Headers | None) -> Headers | None:
    """Copy a list of headers; whatever they must not be is left for the send to refuse."""
    if not isinstance(headers, list | tuple | ItemsView):
        return headers
    return [_owned_pair(pair) for pair in headers]


def _owned_pair(pair: tuple[str, bytes | None]) -> tuple[str, bytes | None]:
    return cast("tuple[str, bytes | None]", tuple(map(owned, pair))) if isinstance(pair, tuple) else pair
