"""Token providers in the options of Spark, which are text: `kafka.sasl.token.provider` names one. No I/O."""

from collections.abc import Mapping
from typing import Final

from aioproducer.config._option_names import python_name
from aioproducer.security import TokenProvider

_OPTION: Final = "sasl_token_provider"


def with_token_provider(properties: Mapping[str, object]) -> dict[str, object]:
    """Return Kafka's properties with the token provider that one of them names in the place of its name.

    Raises:
        ConfigurationError: the provider cannot be had in this process; shows no value of an argument.
    """
    return {
        name: _named(value) if isinstance(value, str) and python_name(name) == _OPTION else value
        for name, value in properties.items()
    }


def _named(text: str) -> TokenProvider:
    from aioproducer.security._named_providers import named_provider  # noqa: PLC0415  # imports a client of HTTP

    return named_provider(text)
