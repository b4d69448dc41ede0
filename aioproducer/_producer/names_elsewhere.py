"""One sentence for methods and keywords that other clients have: `producer.stop()`, `send(..., timeout=5)`.

A method elsewhere is a descriptor whose look-up on an object raises. A `__getattr__` would slow down all look-ups, a
send by a quarter. For the same reason a keyword is explained where its error leaves a block.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ClassT = TypeVar("ClassT")

_SENDS: Final = "send(topic, value, key=...) sends a record"
_CLOSES: Final = "close() ends it"
_POLLS: Final = "nothing is polled here: callbacks run by themselves, and flush() waits for what was sent"

OF_PRODUCERS: Final[Mapping[str, str]] = {
    "bootstrap_connected": "explain() says what it waits for",
    "connect": "start() connects",
    "create_batch": "send_many(topic, values) sends many records",
    "disconnect": _CLOSES,
    "list_topics": "partitions_for(topic) returns the partitions of a topic",
    "poll": _POLLS,
    "produce": _SENDS,
    "produce_batch": "send_many(topic, values) sends many records",
    "publish": _SENDS,
    "send_async": _SENDS,
    "send_batch": "send_many(topic, values) sends many records",
    "send_message": _SENDS,
    "send_offsets_to_transaction": "send_offsets(offsets, group) commits offsets with the transaction",
    "set_sasl_credentials": "give sasl_password a function, which is called for each authentication",
    "shutdown": _CLOSES,
    "stop": _CLOSES,
}
"""Method of another client -> what is called here."""

OF_AIOKAFKA: Final[Mapping[str, str]] = {
    "close": "stop() ends it, as in aiokafka",
    "connect": "start() connects",
    "enqueue": "await send(...) returns when the record is accepted, as in aiokafka",
    "poll": _POLLS,
    "produce": _SENDS,
    "publish": _SENDS,
    "send_message": _SENDS,
}
OF_TRANSACTIONS: Final[Mapping[str, str]] = {
    "abort": "an exception that leaves its block aborts it",
    "commit": "the end of its block commits it",
    "produce": _SENDS,
    "publish": _SENDS,
    "send_offsets_to_transaction": OF_PRODUCERS["send_offsets_to_transaction"],
}
OF_TOPICS: Final[Mapping[str, str]] = {
    "close": "the producer is closed, and a topic with it",
    "flush": "flush() of the producer waits for what was sent",
    "produce": "send(value, key=...) sends a record",
    "publish": "send(value, key=...) sends a record",
}

_TIMEOUT: Final = "deadline=, in seconds, limits one record, and max_block_ms= of the producer the wait for room"
_KEYWORDS: Final[Mapping[str, str]] = {
    "callback": "on_delivery= is called with the outcome",
    "cb": "on_delivery= is called with the outcome",
    "data": "value= is the content of the record",
    "message": "value= is the content of the record",
    "msg": "value= is the content of the record",
    "on_delivery_callback": "on_delivery= is called with the outcome",
    "payload": "value= is the content of the record",
    "timeout": _TIMEOUT,
    "timeout_ms": f"{_TIMEOUT}; flush() and close() take timeout=, in seconds",
    "timestamp_ms": "timestamp= is in ms since the epoch",
    "ts": "timestamp= is in ms since the epoch",
}
"""Keyword elsewhere -> what is given here."""

_UNEXPECTED: Final = re.compile(
    r"(?:^(?P<native>enqueue)|(?P<kind>\w+)\.(?:send|send_\w+|enqueue|flush|close))"
    r"\(\) got an unexpected keyword argument '(?P<keyword>\w+)'"
)
_KEY: Final = "what follows the value is given by name: key=..., partition=..."
_KEYS: Final = "what follows the values is given by name: keys=..., partition=..."
_TOO_MANY: Final = re.compile(
    r"(?:^(?P<native>enqueue)|(?P<kind>\w+)\.(?:send|send_nowait|send_and_wait|send_threadsafe|enqueue|send_(?P<many>many)))"
    r"\(\) takes .*\d positional argument"
)
"""As of `send(topic, value, key)`, which other clients take."""

_OURS: Final[set[str]] = set()
"""Names of the classes with such methods: an application's own `mail.send(timeout=5)` is none of our business."""


class NotHereError(AttributeError, TypeError):
    """A name of another client; what is used here instead is in the message."""


class _Elsewhere:
    """A name that objects of a class do not have, and the sentence about it; help of the class shows it."""

    def __init__(self, name: str, why: str) -> None:
        self._name = name
        self._why = why

    def __get__(self, instance: object, owner: type) -> Self:
        if instance is None:
            return self
        raise NotHereError(f"{owner.__name__!r} object has no attribute {self._name!r}: {self._why}")

    def __repr__(self) -> str:
        return f"<not here: {self._why}>"


def explains(names: Mapping[str, str], *, other_block: str = "") -> Callable[[type[ClassT]], type[ClassT]]:
    """Return a decorator that gives a class sentences for names that it does not have.

    Args:
        names: name -> what is used instead.
        other_block: the method with which the other kind of `with` would begin; only that one, so that no check takes
            the class for a context manager of this kind.
    """
    blocks = {"__enter__": "its block is `async with`", "__aenter__": "its block is `with`, without async"}
    every = {**names, **({other_block: blocks[other_block]} if other_block else {})}

    def decorate(kind: type[ClassT]) -> type[ClassT]:
        _OURS.update(base.__name__ for base in kind.__mro__ if base.__module__.startswith("aioproducer."))
        for name, why in every.items():
            if not hasattr(kind, name):
                setattr(kind, name, _Elsewhere(name, why))
        kind.__dir__ = _names_of  # type: ignore[method-assign,assignment]  # for completion
        return kind

    return decorate


def _names_of(instance: object) -> list[str]:
    kind = type(instance)
    return [name for name in object.__dir__(instance) if not isinstance(getattr(kind, name, None), _Elsewhere)]


def explain_keyword(error: BaseException) -> None:
    """Add a note to the error of a call with a keyword that only other clients have, or with a key in third place."""
    if type(error) is not TypeError:
        return
    why = _sentence_about(str(error))
    note = f"aioproducer: {why}"
    if why is not None and note not in getattr(error, "__notes__", ()):  # of the block within
        error.add_note(note)


def _sentence_about(message: str) -> str | None:
    unexpected, too_many = _UNEXPECTED.search(message), _TOO_MANY.search(message)
    found = unexpected or too_many
    if found is None or not (found["native"] or found["kind"] in _OURS):
        return None
    if unexpected is not None:
        return _KEYWORDS.get(unexpected["keyword"])
    return _KEYS if found["many"] else _KEY
