"""`deadline`: the time that a proxy gives a request."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Final, Protocol

_ARRIVED: Final = "aioproducer.arrived"
_HEADERS: Final = ("x-request-timeout", "x-envoy-expected-rq-timeout-ms", "grpc-timeout")
_SECONDS: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>)")
_GRPC: Final = re.compile(r"(?P<number>[0-9]{1,8})(?P<unit>[HMSmun])")
_GRPC_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SHOWN: Final = 40  # characters of an invalid header in its error
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class InvalidDeadlineError(ValueError):
    """A request's header has no time; the fault of who sent the request, so answer 400."""


class HasScope(Protocol):
    """A request of FastAPI, Starlette or Litestar."""

    @property
    def scope(self) -> object:
        """The ASGI scope."""
        ...


def deadline(
    request: HasScope | Mapping[str, object], *, at_most: float | None = None, headers: Sequence[str] = _HEADERS
) -> float | None:
    """Return the seconds that are left for a request, by a header of the proxy in front.

    The time counts from the first call with this request: call it first in a handler. With several headers the smallest
    time counts.

    Args:
        request: of FastAPI, Starlette or Litestar, or an ASGI scope.
        at_most: seconds for a request whose header gives more, or that has none.
        headers: names of headers; by default `x-request-timeout`, `x-envoy-expected-rq-timeout-ms` and `grpc-timeout`.
            The last one is read as gRPC writes it (`100m`), a name that ends in `-ms` in milliseconds, every other
            one in seconds.

    Returns:
        Seconds, above 0; None if there is neither a header nor `at_most`.

    Raises:
        InvalidDeadlineError: a header is not a time above 0; names it.
        TimeoutError: no time is left; answer 504.
        TypeError, ValueError: an argument; names it and what is allowed.
    """
    _check_at_most(at_most)
    _check_headers(headers)
    scope = _scope_of(request)
    now = time.monotonic()
    arrived = scope.setdefault(_ARRIVED, now)  # also without a time: a later call may have one
    assert isinstance(arrived, float)
    times = [*_times(scope, headers), *([] if at_most is None else [at_most])]
    if not times:
        return None
    left = min(times) - (now - arrived)
    if left <= 0:
        text = f"the deadline of the request has passed, {-left:.1f} s ago"
        raise TimeoutError(text)
    return left


def _scope_of(request: object) -> MutableMapping[str, object]:
    try:
        scope = request if isinstance(request, MutableMapping) else getattr(request, "scope", None)
    except Exception:  # noqa: BLE001  # Sanic's, under a server that is not ASGI
        scope = None
    if not isinstance(scope, MutableMapping) or "headers" not in scope:
        kind = f"{type(request).__module__}.{type(request).__qualname__}"
        text = f"request must be a request of an ASGI framework, such as FastAPI, or an ASGI scope, not {kind}"
        raise TypeError(text)
    return scope


def _times(scope: Mapping[str, object], wanted: Sequence[str]) -> Iterator[float]:
    names = {name.lower() for name in wanted}
    headers = scope["headers"]
    assert isinstance(headers, Iterable)
    for raw, value in headers:
        name = raw.decode("latin-1").lower()
        if name in names:
            yield _seconds(name, value.decode("latin-1").strip())


def _seconds(name: str, text: str) -> float:
    is_grpc = name == "grpc-timeout"
    match = (_GRPC if is_grpc else _SECONDS).fullmatch(text)
    scale = 1e-3 if name.endswith("-ms") else 1.0
    seconds = 0.0 if match is None else float(match["number"]) * _GRPC_UNITS.get(match["unit"], scale)
    if seconds <= 0:
        unit = "digits and one of H, M, S, m, u, n" if is_grpc else "milliseconds" if scale < 1 else "seconds"
        raise InvalidDeadlineError(f"header {name} must be a number above 0 ({unit}), not {text[:_SHOWN]!r}")
    return seconds


def _check_at_most(at_most: object) -> None:
    if at_most is None:
        return
    if not isinstance(at_most, int | float) or isinstance(at_most, bool):
        text = f"at_most must be a number of seconds or None, not {type(at_most).__name__}"
        raise TypeError(text)
    if not 0 < at_most < math.inf:
        text = f"at_most must be a number of seconds above 0, not {at_most}"
        raise ValueError(text)


def _check_headers(headers: object) -> None:
    if isinstance(headers, str) or not isinstance(headers, Sequence):
        text = f"headers must be a sequence of names, not {type(headers).__name__}"
        raise TypeError(text)
    for name in headers:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            text = f"headers must be names of headers, not {name!r}"
            raise ValueError(text)
