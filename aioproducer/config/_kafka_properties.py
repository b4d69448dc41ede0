"""Option names: Kafka's spelling and ours, and errors for names that are not options."""

from collections.abc import Collection, Mapping
from typing import Final, NoReturn

from aioproducer.config._foreign_names import ALIASES, REASONS, REPLACEMENTS, is_without_effect, reason_against
from aioproducer.errors import ConfigurationError, ConfigurationTypeError

_LEVELS: Final[Mapping[str, str]] = {
    "gzip": "compression_gzip_level, -1 or 1 to 9",
    "lz4": "compression_lz4_level, 1 to 17",
    "zstd": "compression_zstd_level, -131072 to 22",
}
"""Codec -> its option and range; librdkafka has one `compression.level` for all."""


def check_properties(properties: object) -> None:
    if not isinstance(properties, Mapping):
        text = f"properties must be a mapping of names to values, not {type(properties).__name__}"
        raise ConfigurationTypeError(text)


def in_python_spelling(options: Mapping[str, object], known: Collection[str]) -> dict[str, object]:
    """Return the options under their Python names, `linger_ms` for `linger.ms`.

    An option of Kafka without effect here, such as `metadata.recovery.strategy=rebootstrap`, is left out.
    """
    result: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for given, value in options.items():
        if not isinstance(given, str):
            raise ConfigurationTypeError(f"the name of an option must be a str, not {type(given).__name__} ({given!r})")
        name = python_name(given)
        if name not in known:
            if is_without_effect(name, value):
                continue
            _refuse_name(given, known, options)
        if name in result:
            raise ConfigurationError(f"{name} is given twice, as {spelled[name]!r} and {given!r}", option=name)
        result[name] = value
        spelled[name] = given
    return result


def python_name(name: str) -> str:
    """Return an option's name as it is spelled here, from either spelling."""
    name = name.replace(".", "_")
    return ALIASES.get(name, name)


def kafka_name(name: str) -> str:
    return name.replace("_", ".")


def _refuse_name(given: str, known: Collection[str], options: Mapping[str, object]) -> NoReturn:
    name = python_name(given)
    if name == "compression_level":
        raise ConfigurationTypeError(f"there is no option {given!r}; use {_level_options(options)}", option=name)
    if name in REPLACEMENTS:
        ours, note = REPLACEMENTS[name]
        text = f"there is no option {given!r}; use {_spelled_like(given, ours)!r}{note and f', {note}'}"
        raise ConfigurationTypeError(text, option=name)
    from difflib import get_close_matches  # noqa: PLC0415  # only for errors

    reason = reason_against(name)
    # A name that only begins as others do that there are not is more likely a misspelt one that there is.
    cutoff = 0.6 if reason is None else 0.9
    nearest = [] if name in REASONS else get_close_matches(name.lower(), known, n=1, cutoff=cutoff)
    if reason is not None and not nearest:
        raise ConfigurationTypeError(f"aioproducer has no option {given!r}: {reason}", option=name)
    if not nearest:
        raise ConfigurationTypeError(f"there is no option {given!r}", option=name)
    meant = _spelled_like(given, nearest[0])
    raise ConfigurationTypeError(f"there is no option {given!r}; did you mean {meant!r}?", option=name)


def _spelled_like(given: str, name: str) -> str:
    return kafka_name(name) if "." in given else name


def _level_options(given: Mapping[str, object]) -> str:
    codec = given.get("compression_type", given.get("compression.type"))
    level = _LEVELS.get(codec) if isinstance(codec, str) else None
    return level or "; ".join(_LEVELS.values())
