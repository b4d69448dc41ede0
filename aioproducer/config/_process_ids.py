"""Ids that are completed when the producer starts, in the process that starts it.

A server may make a producer before it forks its workers: an id with the process id in it would then be the master's.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aioproducer.config._option_types import ClientId, TransactionalId
from aioproducer.errors import ConfigurationError

if TYPE_CHECKING:
    from aioproducer.config.producer_config import ProducerConfig

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KINDS: Final[Mapping[str, ClientId | TransactionalId]] = {
    "client_id": ClientId(),
    "transactional_id": TransactionalId(),
}


def for_this_process(config: ProducerConfig) -> ProducerConfig:
    """Return the configuration with `{pid}`, and the environment variables of its ids, replaced by their values.

    Raises:
        ConfigurationError: a variable is not set, or empty, or what it holds makes no id.
    """
    given = {name: text for name in _KINDS if (text := getattr(config, name))}
    completed = {name: _KINDS[name].accept(name, _completed(name, text)) for name, text in given.items()}
    if all(getattr(config, name) == text for name, text in completed.items()):
        return config
    twin = copy.copy(config)
    for name, text in completed.items():
        object.__setattr__(twin, name, text)  # a frozen dataclass
    return twin


def _completed(option: str, text: str) -> str:
    def value_of(place: re.Match[str]) -> str:
        if place[1] == "pid":
            return str(os.getpid())
        value = os.environ.get(place[1])
        if not value:
            reason = f"{option}={text!r}: the environment variable {place[1]!r} is not set in process {os.getpid()}"
            raise ConfigurationError(reason, option=option)
        return value

    return _PLACE.sub(value_of, text)
