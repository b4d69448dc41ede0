"""Reads options of mappings and property files, which other clients may share, and says what of them is not used.

Source: ProducerConfig and AbstractConfig.logUnused in Apache Kafka.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.config._network_types import parse_bootstrap_servers
from aioproducer.config._option_names import check_properties, python_name, read_names
from aioproducer.config._option_types import ignores_keys
from aioproducer.config._problems import placed, raise_any
from aioproducer.config._token_texts import without_token_options
from aioproducer.config._variables import NO_OPTIONS
from aioproducer.errors import ConfigurationError, ConfigurationTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from aioproducer.config._option_types import OptionKind
    from aioproducer.config._properties_file import Property

_SERVERS: Final = "bootstrap_servers"


class ReadOptions(NamedTuple):
    """Options in Python's spelling, as values, and a line for each kind of option that is not used."""

    options: dict[str, object]
    notes: tuple[str, ...]


def read_options(
    properties: Mapping[str, object], kinds: Mapping[str, OptionKind], *, is_shared: bool = True
) -> ReadOptions:
    """Return the options, `bootstrap_servers` among them.

    Args:
        kinds: of all options but `bootstrap_servers`.
        is_shared: whether options of consumers and others are ignored, as Java does, and not refused.

    Raises:
        ConfigurationError: names each option that is refused, and each value that cannot be read.
    """
    check_properties(properties)
    left, replaced = without_token_options(properties)
    found = read_names(left, {_SERVERS, *kinds}, is_shared=is_shared)
    problems, options = list(found.problems), found.options
    if _SERVERS not in options:
        problems.append(ConfigurationTypeError("bootstrap.servers is missing", option=_SERVERS))
    parsed: dict[str, object] = {}
    for name, value in options.items():
        try:
            parsed[name] = _parsed(name, value, kinds.get(name))
        except ConfigurationError as error:
            problems.append(error)
    raise_any(problems)
    if ignores_keys(options.get("partitioner")):
        parsed["partitioner_ignore_keys"] = True
    return ReadOptions(parsed, (*_notes(found.ignored), *replaced))


def _parsed(name: str, value: object, kind: OptionKind | None) -> object:
    """Return the value, of a text what it says; raise the error of a value that the configuration refuses."""
    if kind is None:
        parse_bootstrap_servers(value)
        return value
    parsed = kind.parse(name, value) if isinstance(value, str) else value
    kind.accept(name, parsed)
    return parsed


def _notes(ignored: Mapping[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        by_reason.setdefault(reason, []).append(name)
    if not by_reason:
        return []
    rows = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
    return [f"not used here: {rows}"]


def notes_of_file(path: str | PathLike[str], properties: Mapping[str, Property]) -> tuple[str, ...]:
    """Return what is read differently from Java."""
    differing = [name for name, found in properties.items() if found.is_utf8]
    if not differing:
        return ()
    names = ", ".join(differing)
    how = "read as UTF-8, which Java takes for ISO-8859-1: an escape such as \\u00e9 is the same to both"
    return (f"{path}: {names}: {how}",)


def in_file(
    error: ConfigurationError, path: str | PathLike[str], properties: Mapping[str, Property]
) -> ConfigurationError:
    """Return the error with the file, and the lines on which refused options stand."""

    def line(problem: ConfigurationError) -> str:
        lines = [found.line for name, found in properties.items() if python_name(name) == problem.option]
        return f"line {max(lines)}" if lines else ""

    return placed(error, line, source=str(path))


def options_of_variables(prefix: str) -> dict[str, str]:
    """Return the options of the environment variables that begin with the prefix, without those of `_variables`."""
    named = {name: text for name, text in os.environ.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix).lower(): text for name, text in named.items() if name not in NO_OPTIONS}


def in_environment(error: ConfigurationError, prefix: str) -> ConfigurationError:
    """Return the error with the names of the variables."""
    return placed(error, lambda problem: f"{prefix}{(problem.option or '...').upper()}")


def accept_all(
    kinds: Mapping[str, OptionKind], named: Mapping[str, object], defaults: Mapping[str, object]
) -> dict[str, object]:
    """Return the value of each option.

    Raises:
        ConfigurationError: names each option with an invalid value.
    """
    values, problems = dict[str, object](), list[ConfigurationError]()
    for name, kind in kinds.items():
        try:
            values[name] = kind.accept(name, named[name]) if name in named else defaults[name]
        except ConfigurationError as error:
            problems.append(error)
    raise_any(problems)
    return values
