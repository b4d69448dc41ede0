"""The keyword arguments of send methods, written once: `**fields: Unpack[RecordFields[...]]`.

`send`, `send_nowait` and `enqueue` name each keyword in their own signatures, as a call through `**fields` costs as
much as the append itself. A test compares them with the classes here.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Final, Generic, ParamSpec, TypedDict, TypeVar

from aioproducer._producer.arguments import from_call, owned, owned_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Mapping

    from aioproducer._native.append import Headers
    from aioproducer._native.delivery import OnDelivery

KeyT = TypeVar("KeyT")
ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")


class RecordFields(TypedDict, Generic[KeyT], total=False):
    """The keyword arguments of a record; `Producer.send` says what each means."""

    key: KeyT | None
    partition: int | None
    timestamp: int | None
    headers: Headers | None
    on_delivery: OnDelivery | None
    deadline: float | None


class ColumnFields(TypedDict, Generic[KeyT], total=False):
    """The keyword arguments of many records; `Producer.send_many` says what each means."""

    keys: Iterable[KeyT | None] | AsyncIterable[KeyT | None] | None
    partition: int | None
    timestamp: int | None
    headers: Headers | None
    timestamps: Iterable[int | None] | AsyncIterable[int | None] | None
    record_headers: Iterable[Headers | None] | AsyncIterable[Headers | None] | None


class BlockingColumnFields(TypedDict, Generic[KeyT], total=False):
    """As `ColumnFields`; a thread reads no asynchronous iterable."""

    keys: Iterable[KeyT | None] | None
    partition: int | None
    timestamp: int | None
    headers: Headers | None
    timestamps: Iterable[int | None] | None
    record_headers: Iterable[Headers | None] | None


class ArrowFields(TypedDict, total=False):
    """The names of an Arrow batch's columns; `Producer.send_arrow` says what each means."""

    value: str | None
    key: str | None
    partition: str | None
    timestamp: str | None
    headers: str | None


_CLASSES: Final[Mapping[str, type]] = {
    kind.__name__: kind for kind in (RecordFields, ColumnFields, BlockingColumnFields, ArrowFields)
}
_ANNOTATION: Final = re.compile(r"Unpack\[(?P<name>\w+)(?:\[(?P<key>\w+)\])?\]")


def shows_fields(function: Callable[ArgumentsT, ResultT]) -> Callable[ArgumentsT, ResultT]:
    """Let `help()` and completion show each keyword of a method that takes `**fields`."""
    signature = inspect.signature(function)
    *others, fields = signature.parameters.values()
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in keywords_of(str(fields.annotation)).items()
    ]
    function.__signature__ = signature.replace(parameters=[*others, *named])  # type: ignore[attr-defined]  # PEP 362
    return function


def keywords_of(annotation: str) -> dict[str, str]:
    """Return the keywords of an annotation such as `Unpack[RecordFields[KeyT]]`, with their types as written here."""
    found = _ANNOTATION.fullmatch(annotation)
    if found is None or found["name"] not in _CLASSES:
        return {}
    written = _CLASSES[found["name"]].__annotations__
    types = {name: _KEY.sub(found["key"] or "", reference.__forward_arg__) for name, reference in written.items()}
    return {name: type_.replace("object | None", "object") for name, type_ in types.items()}


_KEY: Final = re.compile(r"\bKeyT\b")
_NAMES: Final = {name: frozenset(kind.__annotations__) for name, kind in _CLASSES.items()}


def check_names(method: str, fields: Mapping[str, object], *, of: type = RecordFields) -> None:
    """Refuse a keyword that there is not, in the call itself; for methods whose work is done later, or elsewhere.

    Raises:
        TypeError: as Python raises it for a method that names its keywords.
    """
    if not fields.keys() <= (known := _NAMES[of.__name__]):
        unknown = next(name for name in fields if name not in known)
        raise TypeError(f"{method}() got an unexpected keyword argument {unknown!r}")


def owned_fields(fields: RecordFields[KeyT], delivery_timeout_ms: int) -> RecordFields[KeyT]:
    """Copy what the caller may change before another thread reads it, and let the deadline count from now."""
    if "key" in fields:
        fields["key"] = owned(fields["key"])
    if "headers" in fields:
        fields["headers"] = owned_headers(fields["headers"])
    if "deadline" in fields:
        fields["deadline"] = from_call(fields["deadline"], delivery_timeout_ms)
    return fields
