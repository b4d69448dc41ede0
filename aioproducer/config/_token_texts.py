"""Options of Java and librdkafka about the tokens of OAUTHBEARER, beside a `sasl_token_provider`.

A provider takes the place of what fetches tokens there. Extensions are sent with the provider's tokens. What is said
twice must be the same: the argument of a provider of this package is compared with the text.

Source: OAuthBearerLoginCallbackHandler in Apache Kafka; aws-msk-iam-auth; KIP-342, KIP-768; librdkafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aioproducer._protocol.sasl_mechanisms import check_extensions
from aioproducer.config._option_names import kafka_name, python_name
from aioproducer.errors import ConfigurationError, TokenError
from aioproducer.security._tokens import arguments_of

if TYPE_CHECKING:
    from aioproducer.config._jaas import JaasConfig

PROVIDER: Final = "sasl_token_provider"
_JAAS: Final = "sasl_jaas_config"
_EXTENSION: Final = "extension_"
_FETCHING: Final = (
    "sasl_oauthbearer_",
    "sasl_login_callback_",
    "sasl_login_class",
    "sasl_client_callback_handler_class",
)
"""Beginnings of the options with which other clients fetch tokens."""
_MSK_MECHANISM: Final = "AWS_MSK_IAM"
_EXTENSIONS: Final = "sasl_oauthbearer_extensions"

ARGUMENTS: Final[Mapping[str, str]] = {
    "sasl_oauthbearer_client_credentials_client_id": "client_id",
    "sasl_oauthbearer_client_id": "client_id",
    "sasl_oauthbearer_scope": "scope",
    "sasl_oauthbearer_token_endpoint_url": "url",
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session_name",
    "clientId": "client_id",
    "scope": "scope",
}
"""Option of a file, or of a login module -> the argument of a provider of this package that says the same."""


def without_token_options(properties: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Return the properties without those that a given provider replaces, and a line that names them.

    Raises:
        ConfigurationError: one says something else than the provider.
    """
    provider = next((value for name, value in properties.items() if _name_of(name) == PROVIDER), None)
    if provider is None:
        return dict(properties), []
    left: dict[str, object] = {}
    replaced: dict[str, object] = {}
    for given, value in properties.items():
        name = _name_of(given)
        is_of_msk = name == "sasl_mechanism" and str(value).strip() == _MSK_MECHANISM  # its module says OAUTHBEARER
        is_replaced = name.startswith(_FETCHING) and name != _EXTENSIONS
        if is_replaced or is_of_msk:
            replaced[given] = value
        else:
            left[given] = value
    for given, value in replaced.items():
        _check_same(provider, _name_of(given), str(value).strip(), jaas=False)
    return left, _line(list(replaced))


def options_of_module(jaas: JaasConfig, provider: object) -> list[str]:
    """Return a line that names the options of a login module for tokens that a provider replaces.

    Raises:
        ConfigurationError: one says something else than the provider.
    """
    for name, value in jaas.options.items():
        _check_same(provider, name, value, jaas=True)
    replaced = [name for name in jaas.options if not name.startswith(_EXTENSION)]
    return [f"sasl.jaas.config: {line}" for line in _line(replaced)]


def _check_same(provider: object, name: str, value: str, *, jaas: bool) -> None:
    """Raise a ConfigurationError if a text says something else than the argument of a provider of this package."""
    is_extension = name.startswith(_EXTENSION)
    argument, given = name if is_extension else ARGUMENTS.get(name, ""), arguments_of(provider)
    if argument not in given or given[argument] == value:
        return
    said_by = f"{name} of sasl.jaas.config" if jaas else kafka_name(name)
    made = f"{type(provider).__name__}({'extensions' if is_extension else argument}=...)"
    text = f"{said_by} is not what sasl_token_provider has: {made} takes its place; give it the same, or leave it out"
    raise ConfigurationError(text, option=_JAAS if jaas else name)


def extensions_of_module(jaas: JaasConfig | None) -> dict[str, str]:
    """Return the SASL extensions of a login module, such as Confluent Cloud's `extension_logicalCluster`.

    Raises:
        ConfigurationError: brokers could not read one.
    """
    if jaas is None or jaas.module != "OAuthBearerLoginModule":
        return {}
    found = {
        name.removeprefix(_EXTENSION): value for name, value in jaas.options.items() if name.startswith(_EXTENSION)
    }
    try:
        check_extensions(found)
    except TokenError as error:
        raise ConfigurationError(f"sasl.jaas.config: {error}", option=_JAAS) from None
    return found


def _line(names: list[str]) -> list[str]:
    return [f"not used beside sasl_token_provider, which takes their place: {', '.join(names)}"] if names else []


def _name_of(given: object) -> str:
    return python_name(given) if isinstance(given, str) else ""
