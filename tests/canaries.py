"""Canaries: the secrets of all tests, searched in everything that is shown while each test runs.

A secret of a test begins with `canary-`, or is a password of the test clusters' users. Looked at are the text and the
attributes of every `KafkaError`, every event of the log, what a test prints and logs, warnings, the output of
commands, and, for each secured producer at its end: `repr`, configuration, statistics, metrics and `explain()`.
A test during which one is found fails.
"""

import contextlib
import dataclasses
import functools
import json
import pickle
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar

import pytest

from aioproducer._logs import GuardedLog
from aioproducer._producer.lifecycle import LifecycleMethods
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError

SelfT = TypeVar("SelfT")
ArgumentsT = ParamSpec("ArgumentsT")

SECRET = re.compile(
    "canary-|alice-secret|bob-secret"
    r"|eyJhbGciOi[\w-]+\.ey"  # tokens, signed or not
    "|BEGIN [A-Z ]*PRIVATE KEY"
)
_FEW = 20


class Watch:
    """What one test, and what ran beside it, has shown."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._secured: list[weakref.ref[LifecycleMethods]] = []

    def look_at(self, what: str, text: str) -> None:
        """Note a secret in a text."""
        match = SECRET.search(text)
        if match is not None and len(self.found) < _FEW:
            around = text[max(0, match.start() - 80) : match.end() + 40]
            self.found.append(f"{what} holds a secret: ...{around}...")

    def follow(self, producer: LifecycleMethods) -> None:
        """Remember a producer that has secrets."""
        config = producer._config  # noqa: SLF001  # as a debugger sees it
        if config.security_protocol != "PLAINTEXT" or config.proxy_url is not None:
            self._secured.append(weakref.ref(producer))

    def look_at_producers(self) -> None:
        while self._secured:
            producer = self._secured.pop()()
            if producer is not None:
                for what, text in shown_by(producer):
                    self.look_at(what, text)

    def forget(self) -> None:
        self.found.clear()
        self._secured.clear()


WATCH = Watch()


def shown_by(producer: object) -> Iterator[tuple[str, str]]:
    """What a producer says of itself."""
    config = getattr(producer, "_config", None)
    yield "repr of a producer", repr(producer)
    yield from shown_by_config(config)
    for name in ("statistics", "metrics", "explain"):
        with contextlib.suppress(KafkaError):  # of a producer that was never started
            yield f"{name}()", str(getattr(producer, name, str)())


def shown_by_config(config: object) -> Iterator[tuple[str, str]]:
    yield "a configuration", f"{config!r} {config}"
    if isinstance(config, ProducerConfig):
        values = values_of(config)
        yield "values of a configuration", str(values)
        yield "a configuration as JSON", json.dumps(values, default=str)
        if config.sasl_token_provider is None and not callable(config.sasl_password):  # whose pickles are the user's
            with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):  # a secret given as text
                yield "a pickled configuration", pickle.dumps(config).decode("latin-1")


def values_of(config: ProducerConfig) -> dict[str, object]:
    try:
        return dataclasses.asdict(config)
    except TypeError:  # an object of the user's that cannot be copied
        return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


# Where things are shown


def install() -> None:
    """Watch errors, events of the log, and producers of this process."""
    KafkaError.__init__ = _with(KafkaError.__init__, _look_at_error)  # type: ignore[method-assign, assignment]
    GuardedLog._write = _with(GuardedLog._write, _look_at_event)  # type: ignore[method-assign, assignment]  # noqa: SLF001
    LifecycleMethods.__init__ = _with(LifecycleMethods.__init__, _follow)  # type: ignore[method-assign, assignment]


def _with(
    method: Callable[Concatenate[SelfT, ArgumentsT], None], look: Callable[[SelfT, tuple[object, ...]], None]
) -> Callable[Concatenate[SelfT, ArgumentsT], None]:
    @functools.wraps(method)
    def watched(self: SelfT, /, *args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> None:
        method(self, *args, **kwargs)
        look(self, args)

    return watched


def _look_at_error(error: KafkaError, _: tuple[object, ...]) -> None:
    for each in (*error.args, *error.__dict__.values()):
        if isinstance(each, str):  # other errors among them are looked at by themselves
            WATCH.look_at(type(error).__name__, each)


def _look_at_event(_: GuardedLog, what: tuple[object, ...]) -> None:
    WATCH.look_at("an event of the log", f"{what}")


def _follow(producer: LifecycleMethods, _: tuple[object, ...]) -> None:
    WATCH.follow(producer)


# pytest's part, used in conftest.py


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail a test that has shown a secret."""
    try:
        return (yield)
    finally:
        for when, key, content in item._report_sections:  # noqa: SLF001  # stdout, stderr and log of each phase
            WATCH.look_at(f"{key} in the {when} of the test", content)
        WATCH.look_at_producers()
        found = list(WATCH.found)
        WATCH.forget()
        if found:
            pytest.fail("\n".join(found), pytrace=False)


def pytest_warning_recorded(warning_message: object) -> None:
    """Look at a warning; it belongs to this test or to the one before."""
    WATCH.look_at("a warning", str(warning_message))
