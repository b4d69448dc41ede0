"""Names that each worker fills in for itself: `"billing-{hostname}"`, `"billing-{env.WORKER}"`.

A transactional id must be a worker's own, and the same one after its restart. Where all workers are started with the
same configuration, the worker's part has to come from its surroundings.
"""

from __future__ import annotations

import os
import socket
from string import Formatter
from typing import Final

from aioproducer.errors import ConfigurationError

HOSTNAME: Final = "hostname"
ENVIRONMENT: Final = "env."
CHANGES_AT_EACH_START: Final = frozenset({"pid", "random", "uuid", "time"})
"""What one might think of, and what would leave a transaction of the last life open until its time is over."""


def fill_in(option: str, template: str) -> str:
    """Return the name with its fields filled in; `{{` and `}}` stand for braces.

    Args:
        option: for the error.
        template: with fields `{hostname}` and `{env.NAME}`, or none.

    Raises:
        ConfigurationError: another field, a variable that is not set or empty, or braces that do not match.
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(f"{option}={template!r}: {error}; for a brace write {{{{", option=option) from None
    filled = []
    for text, field, *_ in parts:
        filled.append(text)
        if field is not None:
            filled.append(_value_of(option, template, field))
    return "".join(filled)


def _value_of(option: str, template: str, field: str) -> str:
    if field == HOSTNAME:
        return socket.gethostname()
    variable = field.removeprefix(ENVIRONMENT)
    if variable != field and os.environ.get(variable):
        return os.environ[variable]
    if variable != field:
        why = f"the environment has no {variable!r}"
    elif field in CHANGES_AT_EACH_START:
        why = f"{{{field}}} is another one after each start, and a transactional id must stay the same"
    else:
        why = f"there is no field {{{field}}}"
    raise ConfigurationError(
        f"{option}={template!r}: {why}; fields are {{hostname}} and {{env.NAME}}, and {{{{ is a brace", option=option
    )
