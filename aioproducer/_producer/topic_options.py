"""Options that hold for one topic: `producer.topic("audit", value=bytes, linger_ms=500, compression_type="zstd")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from aioproducer._producer.component_settings import batch_options
from aioproducer.config._option_names import in_python_spelling, python_name
from aioproducer.config.producer_config import option_kinds
from aioproducer.config.producer_options import TopicOptions
from aioproducer.errors import ConfigurationError, ConfigurationTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer._accumulator.partition import BatchOptions
    from aioproducer.config import ProducerConfig, ProducerOptions

_NAMES: Final = tuple(TopicOptions.__annotations__)  # of the options that a topic may have


class OptionsByTopic:
    """Options of the topics that have some of their own.

    They are checked as the producer's own are, by making the configuration that a producer with them would have.

    Args:
        config: of the producer; holds for all other topics.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._configs: dict[str, ProducerConfig] = {}
        self.longest_delivery_timeout_ms = config.delivery_timeout_ms
        self.batching: dict[str, BatchOptions] = {}  # by topic; read once per batch, by the event loop's thread

    def config_of(self, topic: object) -> ProducerConfig:
        """Return what holds for a topic, whose name may be unchecked."""
        return self._configs.get(topic, self._config) if isinstance(topic, str) else self._config

    def add(self, topic: str, options: Mapping[str, object]) -> None:
        """Let options hold for a topic, from its next batch on."""
        if not options:
            return
        try:
            config = self._config.replace(**_checked_names(options))
        except ConfigurationError as error:
            raise type(error)(f"topic {topic!r}: {error}", option=error.option) from error
        first = self._configs.setdefault(topic, config)  # one step, since threads may make topics
        if first is not config:
            _check_same(topic, first, config)
            return
        self.longest_delivery_timeout_ms = max(self.longest_delivery_timeout_ms, config.delivery_timeout_ms)
        self.batching[topic] = batch_options(config)


def _checked_names(options: Mapping[str, object]) -> ProducerOptions:
    for given in options:
        if python_name(given) in option_kinds().keys() - set(_NAMES):
            text = f"{given!r} is an option of the whole producer; those of a topic are {', '.join(_NAMES)}"
            raise ConfigurationTypeError(text, option=python_name(given))
    return cast("ProducerOptions", in_python_spelling(options, _NAMES))


def _check_same(topic: str, first: ProducerConfig, other: ProducerConfig) -> None:
    differing = [name for name in _NAMES if getattr(first, name) != getattr(other, name)]
    if differing:
        had = ", ".join(f"{name}={getattr(first, name)!r}" for name in differing)
        wanted = ", ".join(f"{name}={getattr(other, name)!r}" for name in differing)
        text = f"topic {topic!r} was given {had} before, and cannot have {wanted}: a topic gets its options once"
        raise ConfigurationError(text, option=differing[0] if len(differing) == 1 else None)
