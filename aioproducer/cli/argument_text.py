"""Arguments as text: a command line is bytes, and what Kafka calls a name is UTF-8."""

import os

from aioproducer.cli.running import usage_error


def text_of(name: str, argument: str) -> str:
    """An argument as the UTF-8 that its bytes are, whatever the locale took them for.

    Args:
        name: of the argument, for the message.
        argument: as Python has decoded it; bytes that it could not are in it as lone surrogates.

    Raises:
        ValueError: it is not UTF-8; the message is for the user.
    """
    try:
        return os.fsencode(argument).decode()
    except UnicodeError:
        raise ValueError(f"{name} {argument!r}: not UTF-8") from None


def required_text(name: str, argument: str) -> str:
    """Return the argument as `text_of` does; end with a usage error if it is empty or not UTF-8."""
    try:
        text = text_of(name, argument)
    except ValueError as error:
        usage_error(str(error))
    if not text:
        usage_error(f"{name} must not be empty")
    return text
