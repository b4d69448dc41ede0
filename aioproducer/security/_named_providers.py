"""Token providers by name, for those who have text alone: `module:object`, or one of this package, with arguments."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NoReturn, cast

from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security._secret import Secret
from aioproducer.security._token_providers import ClientCredentials, JwtBearer, MskIam
from aioproducer.security._tokens import check_token_provider

if TYPE_CHECKING:
    from types import ModuleType

    from aioproducer.security._tokens import TokenProvider

SHIPPED: Final[Mapping[str, object]] = {each.__name__: each for each in (ClientCredentials, JwtBearer, MskIam)}
_SECRETS: Final = frozenset({"client_secret", "private_key_password"})
_MAPPINGS: Final = frozenset({"extensions", "parameters"})
_NUMBERS: Final = frozenset({"timeout_s"})
_OBJECTS: Final = frozenset({"ssl_context"})
_SOURCES: Final[Mapping[str, Callable[[str], Secret]]] = {"env": Secret.from_env, "file": Secret.from_file}


def named_provider(text: str) -> TokenProvider:
    """Return a provider: the object, or what it returns if it is a class or a function.

    Args:
        text: `package.module:object`, looked for in the current folder too, or the name of a class of this package;
            behind it `name=value` for each argument of the class or function, with blanks between, as a shell quotes
            them. The classes of this package take their secrets as `env:VARIABLE` or `file:PATH`, and a part of a
            mapping as `extensions.logicalCluster=lkc-1`.

    Raises:
        ConfigurationError: the object cannot be had, or is no provider; shows no value of an argument.
    """
    name, *arguments = _words(text)
    found: object = SHIPPED[name] if name in SHIPPED else _imported(name)
    given = _arguments(name, arguments, is_ours=found in SHIPPED.values())
    is_made = isinstance(found, type) or not callable(getattr(found, "token", None))
    if is_made and callable(found):
        found = _made(name, found, given)
    elif given:
        _refuse(name, "it is an object already, and takes no arguments")
    try:
        check_token_provider(found)
    except TypeError as error:
        _refuse(name, str(error).replace("sasl_token_provider", "it", 1))
    return cast("TokenProvider", found)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        _refuse(text.partition(" ")[0], f"it cannot be read: {error}")
    if not words:
        _refuse(text, "it is empty")
    return words


def _imported(name: str) -> object:
    module, _, path = name.partition(":")
    if not module or not path or not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
        _refuse(name, f"it is not like package.module:object, and none of {', '.join(SHIPPED)}")
    try:
        return attrgetter(path)(_module(name, module))
    except AttributeError:
        _refuse(name, f"the module {module} has no {path}")


def _module(name: str, module: str) -> ModuleType:
    # At the end, so that no file of the folder takes the place of a library.
    here = os.getcwd()  # noqa: PTH109  # as text
    if here not in sys.path:
        sys.path.append(here)
    try:
        return import_module(module)
    except ImportError as error:
        _refuse(name, f"{module} cannot be imported: {error}; the current folder and PYTHONPATH are searched")
    except Exception as error:  # noqa: BLE001  # of the user's module; only the class, since its text may hold a secret
        last = traceback.extract_tb(error.__traceback__)[-1]
        _refuse(name, f"importing {module} raised {type(error).__name__} at {last.filename}, line {last.lineno}")


def _made(  # type: ignore[explicit-any]  # a class or function of the user
    name: str, make: Callable[..., object], given: Mapping[str, object]
) -> object:
    try:
        bound = inspect.signature(make).bind(**given)
    except TypeError as error:
        _refuse(name, f"{error}; arguments stand behind it, as NAME=VALUE")
    try:
        return make(*bound.args, **bound.kwargs)
    except ConfigurationError as error:
        _refuse(name, str(error))
    except Exception as error:  # noqa: BLE001  # of the user's code; only the class, since its text may hold a secret
        _refuse(name, f"making it raised {type(error).__name__}")


def _arguments(name: str, arguments: Sequence[str], *, is_ours: bool) -> dict[str, object]:
    given: dict[str, object] = {}
    for each in arguments:
        argument, equals, text = each.partition("=")
        if not (argument and equals):
            _refuse(name, "an argument is not like NAME=VALUE")
        mapping, dot, key = argument.partition(".")
        if is_ours and dot and mapping in _MAPPINGS:
            part = given.setdefault(mapping, {})
            assert isinstance(part, dict)
            part[key] = text
        elif argument in given:
            _refuse(name, f"the argument {argument} is given twice")
        else:
            given[argument] = _value(name, argument, text) if is_ours else text
    return given


def _value(name: str, argument: str, text: str) -> object:
    """Return the value of an argument of a class of this package."""
    if argument in _MAPPINGS:
        _refuse(name, f"give each part of {argument} as {argument}.NAME=VALUE")
    if argument in _OBJECTS:
        _refuse(name, f"{argument} is an object: give a function of a module that makes the provider, module:function")
    if argument in _NUMBERS:
        try:
            return float(text)
        except ValueError:
            _refuse(name, f"{argument} must be a number")
    if argument not in _SECRETS:
        return text
    source, colon, place = text.partition(":")
    if source not in _SOURCES or not colon or not place:
        why = "other users of this machine can read a command's arguments"
        _refuse(name, f"{argument} must be env:VARIABLE or file:PATH: {why}")
    return _SOURCES[source](place)


def _refuse(name: str, why: str) -> NoReturn:
    # Without a cause, whose text and frames may hold a secret.
    raise ConfigurationTypeError(f"the token provider {name!r}: {why}", option="sasl_token_provider") from None
