"""The time that a proxy gives a request."""

import time
from collections.abc import Mapping

import pytest
from starlette.requests import Request

from aioproducer.integrations.asgi import InvalidDeadlineError, deadline


def request(*headers: tuple[str, str]) -> Request:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw})


@pytest.mark.parametrize(
    "header,value,seconds",
    [
        ("x-request-timeout", "2.5", 2.5),
        ("x-request-timeout", " 15 ", 15),
        ("x-envoy-expected-rq-timeout-ms", "1500", 1.5),
        ("grpc-timeout", "2H", 7200),
        ("grpc-timeout", "3M", 180),
        ("grpc-timeout", "4S", 4),
        ("grpc-timeout", "500m", 0.5),
        ("grpc-timeout", "90000000u", 90),
        ("grpc-timeout", "99999999n", 0.099999999),
    ],
)
def test_deadline_reads_each_header_in_its_unit(header: str, value: str, seconds: float) -> None:
    assert deadline(request((header, value))) == pytest.approx(seconds)


def test_smallest_time_counts() -> None:
    several = request(("grpc-timeout", "3S"), ("x-request-timeout", "2"), ("x-request-timeout", "7"))

    assert deadline(several) == 2
    assert deadline(several, at_most=30) <= 2  # type: ignore[operator]  # not None
    assert deadline(several, at_most=0.5) <= 0.5  # type: ignore[operator]


def test_no_header_leaves_no_deadline() -> None:
    assert deadline(request()) is None
    assert deadline(request(), at_most=5) == 5


def test_time_counts_from_the_first_call() -> None:
    this = request(("x-request-timeout", "20"))
    first = deadline(this)
    time.sleep(0.01)

    assert deadline(this) < first - 0.009  # type: ignore[operator]  # neither is None
    assert deadline(this.scope) < 20 - 0.009  # type: ignore[operator]  # as above


def test_no_time_left_is_an_error() -> None:
    this = request(("x-request-timeout", "0.005"))
    deadline(this)
    time.sleep(0.01)

    with pytest.raises(TimeoutError, match=r"the deadline of the request has passed, 0\.0 s ago"):
        deadline(this)


def test_headers_of_the_users_choice() -> None:
    this = request(("x-budget-ms", "250"), ("x-request-timeout", "1"))

    assert deadline(this, headers=["X-Budget-MS"]) == 0.25


@pytest.mark.parametrize("value", ["", "0", "0.0", "-1", "1e3", "inf", "nan", "5s", "0x10", "1,5", "٣", "9" * 4000])
@pytest.mark.parametrize("header", ["x-request-timeout", "x-envoy-expected-rq-timeout-ms"])
def test_invalid_header_is_named(header: str, value: str) -> None:
    scope = {"headers": [(header.encode(), value.encode())]}

    with pytest.raises(InvalidDeadlineError, match=f"header {header} must be a number above 0") as raised:
        deadline(scope)
    assert len(str(raised.value)) < 150


@pytest.mark.parametrize("value", ["", "5", "S", "0S", "1.5S", "123456789S", "5s", "5 S", "-1S"])
def test_invalid_grpc_timeout_is_named(value: str) -> None:
    with pytest.raises(InvalidDeadlineError, match="header grpc-timeout must be a number above 0"):
        deadline(request(("grpc-timeout", value)))


@pytest.mark.parametrize(
    "options,kind,error",
    [
        ({"at_most": "5"}, TypeError, "at_most must be a number of seconds or None, not str"),
        ({"at_most": True}, TypeError, "at_most must be a number of seconds or None, not bool"),
        ({"at_most": 0}, ValueError, "at_most must be a number of seconds above 0, not 0"),
        ({"at_most": float("nan")}, ValueError, "at_most must be a number of seconds above 0, not nan"),
        ({"at_most": float("inf")}, ValueError, "at_most must be a number of seconds above 0, not inf"),
        ({"headers": "x-budget"}, TypeError, "headers must be a sequence of names, not str"),
        ({"headers": {"x-budget"}}, TypeError, "headers must be a sequence of names, not set"),
        ({"headers": [b"x-budget"]}, ValueError, "headers must be names of headers, not b'x-budget'"),
        ({"headers": ["x budget"]}, ValueError, "headers must be names of headers, not 'x budget'"),
    ],
)
def test_invalid_arguments_are_named(options: Mapping[str, object], kind: type[Exception], error: str) -> None:
    with pytest.raises(kind, match=error):
        deadline(request(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", [None, "a request", {"type": "http"}, object()])
def test_what_is_no_request_is_refused(what: object) -> None:
    with pytest.raises(TypeError, match="request must be a request or an ASGI scope, not"):
        deadline(what)  # type: ignore[arg-type]
