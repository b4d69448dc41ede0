"""Checks of the arguments of token providers; errors name the argument, and show no value that may be a secret."""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aioproducer._protocol.sasl_mechanisms import check_extensions
from aioproducer.errors import ConfigurationError, ConfigurationTypeError, TokenError
from aioproducer.security._secret import NOT_UNICODE, Secret, is_read_later, is_unicode

_LONGEST_TIMEOUT_S: Final = 86_400.0  # sockets refuse times that are too long


def text_argument(name: str, value: object, *, may_be_empty: bool = False) -> str:
    """Return text that UTF-8 can write."""
    if not isinstance(value, str):
        raise ConfigurationTypeError(f"{name} must be a str, not {type(value).__name__}")
    if not is_unicode(value):
        raise ConfigurationError(f"{name} {NOT_UNICODE}")
    if not value and not may_be_empty:
        raise ConfigurationError(f"{name} must not be empty")
    return value


def secret_argument(name: str, value: object) -> Secret:
    """Return a secret, of a text that is not empty, or of a variable or file that is read later."""
    if isinstance(value, str):
        return Secret(text_argument(name, value))
    if not isinstance(value, Secret):
        raise ConfigurationTypeError(f"{name} must be text or a Secret, not {type(value).__name__}")
    if not is_read_later(value) and not value.reveal():
        raise ConfigurationError(f"{name} must not be empty")
    return value


def seconds_argument(name: str, value: object) -> float:
    """Return a time-out in seconds."""
    allowed = f"{name} must be a number of seconds above 0, at most {_LONGEST_TIMEOUT_S:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationTypeError(f"{allowed}, not {type(value).__name__}")
    if math.isnan(value) or not 0 < value <= _LONGEST_TIMEOUT_S:
        raise ConfigurationError(f"{allowed}, not {value!r}")
    return float(value)


def texts_argument(name: str, value: object) -> dict[str, str]:
    """Return a mapping of text to text; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationTypeError(f"{name} must be a mapping of str to str, or None, not {type(value).__name__}")
    texts: dict[str, str] = {}
    for key, text in value.items():
        if not isinstance(key, str):
            raise ConfigurationTypeError(f"{name} must be a mapping of str to str: a name is of {type(key).__name__}")
        texts[text_argument(f"a name in {name}", key)] = text_argument(f"{name}[{key!r}]", text, may_be_empty=True)
    return texts


def extensions_argument(name: str, value: object) -> dict[str, str]:
    """Return SASL extensions that brokers can read."""
    extensions = texts_argument(name, value)
    try:
        check_extensions(extensions)
    except TokenError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    return extensions


def path_argument(name: str, value: object) -> Path:
    """Return the name of a file."""
    if not isinstance(value, str | os.PathLike):
        raise ConfigurationTypeError(f"{name} must be a path, not {type(value).__name__}")
    path = os.fspath(value)
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"{name} must be a path in text, not empty")
    if "\0" in path:
        raise ConfigurationError(f"{name} must be a path without a NUL character")
    return Path(path)


def tls_argument(name: str, value: object) -> ssl.SSLContext | None:
    """Return a context of TLS, or None for that of the system."""
    if value is not None and not isinstance(value, ssl.SSLContext):
        raise ConfigurationTypeError(f"{name} must be an ssl.SSLContext or None, not {type(value).__name__}")
    return value
