"""The states of a producer, and the errors of calls that a state refuses.

    NEW ──► STARTING ──► RUNNING ──► CLOSING ──► CLOSED
     │          │            │           │          ▲
     │          └────────────┴─► FAILED ◄┘          │
     └──────────────────────────────┴───────────────┘

FAILED means that a part the producer needs has died; every call raises the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

from aioproducer.errors import IllegalStateError, KafkaError, ProducerClosedError

if TYPE_CHECKING:
    from aioproducer._native.append import OwnLoop

CLOSE_AFTER_ERROR_S: Final = 5.0  # how long `async with` waits for deliveries when its body raised or was cancelled


class ProducerState(Enum):
    """The states."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


TRANSITIONS: Final[Mapping[ProducerState, frozenset[ProducerState]]] = {
    ProducerState.NEW: frozenset({ProducerState.STARTING, ProducerState.CLOSED}),
    ProducerState.STARTING: frozenset({ProducerState.RUNNING, ProducerState.CLOSING, ProducerState.FAILED}),
    ProducerState.RUNNING: frozenset({ProducerState.CLOSING, ProducerState.FAILED}),
    ProducerState.CLOSING: frozenset({ProducerState.CLOSED, ProducerState.FAILED}),
    ProducerState.FAILED: frozenset({ProducerState.CLOSED}),
    ProducerState.CLOSED: frozenset(),
}


def check_timeout(timeout: object) -> None:
    if timeout is None:
        return
    if not isinstance(timeout, int | float) or isinstance(timeout, bool):
        raise TypeError(f"timeout must be a number of seconds or None, not {type(timeout).__name__}")
    if not timeout >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
    try:
        float(timeout)
    except OverflowError as error:
        raise ValueError("timeout must be a number of seconds that a float can hold, not so many") from error


class ProducerStateMachine:
    """One producer's state, and the errors of calls that it refuses."""

    __slots__ = ("cause", "is_forked", "name", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ProducerState.NEW
        self.cause: BaseException | None = None
        self.is_forked = False

    def move_to(self, state: ProducerState) -> None:
        assert state in TRANSITIONS[self.state], f"a producer cannot go from {self.state.value} to {state.value}"
        self.state = state

    def fail(self, cause: BaseException) -> None:
        """Move to FAILED; the first cause counts."""
        if self.state in {ProducerState.CLOSED, ProducerState.FAILED, ProducerState.NEW}:
            return
        self.cause = cause
        self.move_to(ProducerState.FAILED)

    def state_and_note(self, *, is_started: bool) -> tuple[str, str]:
        """Return the state, and why nothing can be sent in it; an empty text where records are taken or delivered."""
        if self.is_forked:
            text = "the producer was made before a fork: what waits is in the parent; create a new one in this process"
            return "forked", text
        note = ""
        if self.state is ProducerState.CLOSED:
            note = "the producer is closed: nothing waits"
        elif not is_started:
            note = "it is not started"
        elif self.state is ProducerState.FAILED:
            note = f"the producer has failed, and with it all that waited ({self.failure()})"
        return self.state.value, note

    def failure(self) -> KafkaError:
        if isinstance(self.cause, KafkaError):
            return self.cause.fresh()
        error = IllegalStateError(f"producer {self.name!r} has failed: {type(self.cause).__name__}: {self.cause}")
        error.__cause__ = self.cause
        return error

    def close_unstarted(self) -> None:
        if self.state is ProducerState.NEW:
            self.move_to(ProducerState.CLOSED)

    def refuse_other_loop(self) -> NoReturn:
        """Refuse to start or close from another event loop than the producer's own."""
        raise IllegalStateError(
            f"producer {self.name!r} belongs to the event loop that started it: start and close it there, or use a "
            "BlockingProducer for threads and scripts"
        )

    def refuse_late(self, undelivered: str) -> NoReturn:
        """Refuse to close when the producer's own loop is closed; `undelivered` is as "2 records were"."""
        raise IllegalStateError(
            f"producer {self.name!r} belonged to an event loop that is closed, with which its connections were closed; "
            f"{undelivered} not delivered. Close a producer before its loop, as `async with` does"
        )

    def check_may_start(self, *, is_closing: bool) -> None:
        """Refuse to start a producer that is closed or has failed."""
        if is_closing or self.state in {ProducerState.CLOSING, ProducerState.CLOSED}:
            raise ProducerClosedError(f"producer {self.name!r} was closed; make a new one")
        if self.state is ProducerState.FAILED:
            raise self.failure()

    def refuse(self, own_loop: OwnLoop | None = None) -> NoReturn:
        """Raise the error of a call that the state refuses; a started producer must be called on its own loop.

        Raises:
            IllegalStateError: not started, forked, on another thread, or on another event loop.
            ProducerClosedError: closing or closed.
            KafkaError: the cause, once failed.
        """
        if self.is_forked:
            raise IllegalStateError(
                f"producer {self.name!r} was made before a fork: its connections belong to the parent; "
                "create a new producer in this process"
            )
        if self.state in {ProducerState.NEW, ProducerState.STARTING}:
            text = f"producer {self.name!r} is not started: use `async with Producer(...)`, or await producer.start()"
            raise IllegalStateError(text)
        if self.state is ProducerState.FAILED:
            raise self.failure()
        if own_loop is not None and not own_loop.is_on_thread():
            raise IllegalStateError(
                f"producer {self.name!r} was called from another thread than its event loop's: use "
                "producer.send_threadsafe(...), or a BlockingProducer for threads and scripts"
            )
        if own_loop is not None and not own_loop.is_here() and self.state is ProducerState.RUNNING:
            raise IllegalStateError(
                f"producer {self.name!r} was called from another event loop than the one that started it: start one "
                "producer on each loop, or give the fixture and its tests the same loop"
            )
        raise ProducerClosedError(f"producer {self.name!r} is {self.state.value}: it takes no more records")
