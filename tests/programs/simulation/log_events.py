"""Log events of a run: dropped, or a part of the recorded history, and searched for payloads."""

import contextlib
import logging
from collections.abc import Iterator, MutableMapping

import structlog

from tests.programs.simulation.history import History

_SILENT = structlog.make_filtering_bound_logger(logging.CRITICAL)
_SPEAKING = structlog.make_filtering_bound_logger(logging.DEBUG)


@contextlib.contextmanager
def recorded_in(history: History) -> Iterator[None]:
    def keep(_logger: object, level: str, event: MutableMapping[str, object]) -> str:
        name = event.pop("event")
        event.pop("client_id", None)
        text = " ".join(f"{key}={value}" for key, value in event.items())
        history.note("log", "%s %s %s", level, name, text)
        if history.secrecy is not None:
            history.secrecy.look_at(f"the event {name}", text)
        raise structlog.DropEvent

    before = structlog.get_config() if structlog.is_configured() else None
    is_heard = history.is_recording or history.secrecy is not None
    structlog.configure(processors=[keep], wrapper_class=_SPEAKING if is_heard else _SILENT)
    try:
        yield
    finally:
        structlog.reset_defaults()
        if before is not None:
            structlog.configure(**before)
