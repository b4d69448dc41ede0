"""`lifespan`: producers, relays and spools that start and close with a web application."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import TypeIs

AppT = TypeVar("AppT")
StateT = TypeVar("StateT")


class Closes(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        ...


class Starts(Closes, Protocol):
    """A `Producer`, or what stands for one in tests."""

    async def start(self, *, wait: bool = True) -> object:
        """Start."""
        ...


class StartsAtOnce(Closes, Protocol):
    """A `Relay` or a `Spool`: its start waits for no broker."""

    async def start(self) -> object:
        """Start."""
        ...


@overload
def lifespan(
    *producers: Starts | StartsAtOnce, wait: bool = True
) -> Callable[[object], AbstractAsyncContextManager[None]]: ...


@overload
def lifespan(
    *producers: Starts | StartsAtOnce, wait: bool = True, then: Callable[[AppT], AbstractAsyncContextManager[StateT]]
) -> Callable[[AppT], AbstractAsyncContextManager[StateT]]: ...


def lifespan(
    *producers: Starts | StartsAtOnce,
    wait: bool = True,
    then: Callable[[AppT], AbstractAsyncContextManager[object]] | None = None,
) -> Callable[[AppT], AbstractAsyncContextManager[object]]:
    """Return a lifespan for FastAPI, Starlette and Litestar that starts producers, and delivers and closes at the end.

    `app = FastAPI(lifespan=lifespan(producer))`. A start that fails ends the application, and its server logs why. At
    shutdown accepted records are delivered, for at most `close_timeout_ms`: keep it below the time that the server or
    its supervisor grants.

    Args:
        *producers: each is a `Producer`, a `Relay` or a `Spool` that is not started; started in this order, closed in
            the other.
        wait: for the first response of a broker, at most `max_block_ms`; False lets the application begin without one,
            and leaves it to `readiness` to say so. Relays and spools never wait for one.
        then: a lifespan of your own, which runs inside: its producers are started, and closed after it. What it yields
            is the application's state.

    Raises:
        TypeError: not one of these, or `then` cannot be called; names it.
    """
    _check(producers, wait, then)

    @asynccontextmanager
    async def run(app: AppT) -> AsyncIterator[object]:
        async with AsyncExitStack() as stack:
            for producer in producers:
                await (producer.start(wait=wait) if _can_wait(producer) else producer.start())
                stack.push_async_exit(producer.__aexit__)
            yield None if then is None else await stack.enter_async_context(then(app))

    return run


def _can_wait(producer: Starts | StartsAtOnce) -> TypeIs[Starts]:
    parameters = inspect.signature(producer.start).parameters.values()
    return any(each.name == "wait" or each.kind is each.VAR_KEYWORD for each in parameters)


def _check(producers: tuple[object, ...], wait: object, then: object) -> None:
    if not producers:
        raise TypeError("producers is empty: lifespan needs at least one Producer")
    for number, producer in enumerate(producers):
        is_blocking = not hasattr(producer, "__aexit__")
        if isinstance(producer, type) or is_blocking or not callable(getattr(producer, "start", None)):
            text = f"producers[{number}] must be a Producer, not {type(producer).__name__}"
            raise TypeError(text)
    if not isinstance(wait, bool):
        text = f"wait must be True or False, not {wait!r}"
        raise TypeError(text)
    if then is not None and not callable(then):
        text = f"then must be a lifespan, a function of the application, not {type(then).__name__}"
        raise TypeError(text)
