"""Decodes arguments: a command line is bytes, and Kafka's names are UTF-8."""

import os

from aioproducer.cli.running import usage_error


def text_of(name: str, argument: str) -> str:
    """Return an argument decoded as UTF-8, independent of the locale."""
    try:
        return os.fsencode(argument).decode()
    except UnicodeError:
        raise ValueError(f"{name} {argument!r}: not UTF-8") from None


def required_text(name: str, argument: str | None) -> str:
    """Return the argument as `text_of` does; a missing, empty or invalid one is a usage error."""
    if argument is None:
        usage_error(f"{name} is missing")
    try:
        text = text_of(name, argument)
    except ValueError as error:
        usage_error(str(error))
    if not text:
        usage_error(f"{name} must not be empty")
    return text
