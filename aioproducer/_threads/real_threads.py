"""Threads of the operating system, also if gevent or eventlet has replaced Python's.

After `gevent.monkey.patch_all()` or `eventlet.monkey_patch()`, `threading.Thread` is a greenlet, and an event loop on
it would never let other greenlets run. Both libraries keep the original functions, which are used here.
"""

from __future__ import annotations

import _thread
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, TypeVarTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")
ArgumentTs = TypeVarTuple("ArgumentTs")

RealRLock = _thread.RLock  # the class behind `threading.RLock`, written in C; neither gevent nor eventlet replaces it


class _StartNewThread(Protocol):
    def __call__(self, function: Callable[[*ArgumentTs], object], args: tuple[*ArgumentTs], /) -> int: ...


def _gevent() -> ModuleType | None:
    monkey = sys.modules.get("gevent.monkey")
    return monkey if monkey is not None and monkey.is_module_patched("_thread") else None


def _eventlet() -> ModuleType | None:
    patcher = sys.modules.get("eventlet.patcher")
    return patcher if patcher is not None and patcher.is_monkey_patched("thread") else None


def _original(name: str) -> object:
    monkey, patcher = _gevent(), _eventlet()
    if monkey is not None:
        return monkey.get_original("_thread", name)
    return getattr(_thread if patcher is None else patcher.original("_thread"), name)


# Looked up once: a program may be patched before this module is imported, or after.

allocate_lock = cast("Callable[[], _thread.LockType]", _original("allocate_lock"))
"""Return a lock that threads of the operating system can wait for and release."""

thread_id = cast("Callable[[], int]", _original("get_ident"))
"""Return the identifier of the current thread; greenlets of one thread have the same."""

_start_new_thread = cast("_StartNewThread", _original("start_new_thread"))


def are_patched() -> bool:
    return _gevent() is not None or _eventlet() is not None


def start_thread(function: Callable[[], object], name: str) -> threading.Thread | None:
    """Start a daemon thread.

    Returns:
        The thread, to be joined once `function` has returned; None in a patched program.

    Raises:
        RuntimeError: the system, or the ending interpreter, allows no more threads.
    """
    if are_patched():
        _start_new_thread(function, ())
        return None
    # A daemon: the end of the interpreter, or of a forked child, must never wait for it.
    thread = threading.Thread(target=function, name=name, daemon=True)
    # `Thread.start` waits for a Condition, and Ctrl-C on the main thread could leave it locked. So another thread
    # calls it.
    _start_new_thread(_launch, (thread, function))
    return thread


def _launch(thread: threading.Thread, function: Callable[[], object]) -> None:
    try:
        thread.start()
    except RuntimeError:  # the system allows no second thread: this one does the work
        function()


def wait_for_lock(lock: _thread.LockType, timeout_s: float) -> bool:
    """Acquire a lock; greenlets of other callers run meanwhile."""
    if lock.acquire(blocking=False):
        return True
    if _gevent() is not None:
        hub = import_module("gevent").get_hub()
        if hub is not import_module("gevent").getcurrent():
            return bool(hub.threadpool.apply(lock.acquire, (True, timeout_s)))
    elif _eventlet() is not None:
        hub = import_module("eventlet.hubs").get_hub()
        if hub.greenlet is not import_module("greenlet").getcurrent():
            return bool(import_module("eventlet.tpool").execute(lock.acquire, True, timeout_s))
    # Not patched; or the hub itself runs this, which cannot wait for a greenlet.
    return lock.acquire(timeout=timeout_s)


def thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return an executor whose threads are real; a patched program gets one thread per job."""
    return _ThreadPerJob() if are_patched() else ThreadPoolExecutor(threads, thread_name_prefix=name)


class _ThreadPerJob(ThreadPoolExecutor):
    """Executor for patched programs, in which the base class would start greenlets."""

    def submit(
        self, fn: Callable[ArgumentsT, ResultT], /, *args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs
    ) -> Future[ResultT]:
        future = RealFuture[ResultT]()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  # raised by the future, as in the base class
                future.set_exception(error)
            else:
                future.set_result(result)

        start_thread(run, "aioproducer-job")
        return future


class RealFuture(Future[ResultT]):
    """Future with a real lock: its result is set on another thread."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = threading.Condition(RealRLock())
