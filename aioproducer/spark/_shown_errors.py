"""Errors as a person reads them in Spark: the text of this package first, and no traceback around it.

Spark shows what a Python process writes when it fails: by default a traceback of some 3,000 characters, with the error
at its end. An error of this package says all that a reader needs; other exceptions keep their tracebacks.
"""

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aioproducer.errors import KafkaError

_WITHOUT_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable that Spark's processes read when they write an error; they end after it."""


@contextmanager
def text_first() -> Iterator[None]:
    """Let Spark show an error of the block as its class and its text."""
    try:
        yield
    except KafkaError:
        os.environ[_WITHOUT_TRACEBACK] = "true"
        raise


@contextmanager
def text_first_from_pickle() -> Iterator[None]:
    """Do as `text_first` while Spark pickles: it wraps every error there, except those of pickle."""
    try:
        with text_first():
            yield
    except KafkaError as error:
        raise _unwrapped(error) from None


def _unwrapped(error: KafkaError) -> Exception:
    """Return an error of pickle that is shown as the error: only text leaves this process."""
    names = {"__module__": type(error).__module__, "__qualname__": type(error).__qualname__}
    shown: type[Exception] = type(type(error).__name__, (pickle.PickleError,), names)
    return shown(str(error))
