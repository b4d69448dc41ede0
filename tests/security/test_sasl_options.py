"""The `sasl_*` options: what is refused before any I/O, and with which words."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aioproducer import ConfigurationError, ConfigurationTypeError, ProducerConfig
from aioproducer.security import Secret

CANARY = "canary-password"
PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": CANARY,
}
SCRAM = PLAIN | {"sasl_mechanism": "SCRAM-SHA-512"}
MODULE = "org.apache.kafka.common.security"
JAAS = f'{MODULE}.plain.PlainLoginModule required username="alice" password="{CANARY}";'


class Provider:
    """Provider of tokens."""

    async def token(self) -> str:
        return "token"


OAUTH: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_token_provider": Provider(),
}


GSSAPI: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_service_name": "kafka",
}
KEYTAB = {"sasl_kerberos_keytab": "k", "sasl_kerberos_principal": "alice@R"}
needs_gssapi = pytest.mark.skipif(find_spec("gssapi") is None, reason="needs pip install 'aioproducer[kerberos]'")


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="localhost:9092", **options)


def refusal(options: dict[str, Any]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        config(**options)
    assert CANARY not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("options", [PLAIN, SCRAM, OAUTH])
def test_complete_options_are_accepted(options: dict[str, Any]) -> None:
    assert config(**options).sasl_mechanism == options["sasl_mechanism"]


def without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


@pytest.mark.parametrize(
    "options, option, words",
    [
        (PLAIN | {"security_protocol": "PLAINTEXT"}, "security_protocol", "no effect"),
        (PLAIN | {"security_protocol": "SSL"}, "security_protocol", "SASL_SSL"),
        (without(PLAIN, "security_protocol"), "security_protocol", "never guessed"),
        ({"sasl_username": "alice"}, "security_protocol", "never guessed"),
        ({"sasl_password": CANARY}, "security_protocol", "never guessed"),
        ({"sasl_mechanism": "PLAIN", "security_protocol": "SSL"}, "security_protocol", "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism", "SCRAM-SHA-512"),
        (PLAIN | {"sasl_mechanism": "MD5"}, "sasl_mechanism", "one of PLAIN"),
        (PLAIN | {"sasl_mechanism": "scram-sha-256"}, "sasl_mechanism", "'SCRAM-SHA-256'"),
        (PLAIN | {"sasl_mechanism": "SCRAM_SHA_512"}, "sasl_mechanism", "'SCRAM-SHA-512'"),
        (PLAIN | {"sasl_mechanism": "AWS_MSK_IAM"}, "sasl_mechanism", "OAUTHBEARER"),
        (without(PLAIN, "sasl_username"), "sasl_username", "needs sasl_username"),
        (PLAIN | {"sasl_username": ""}, "sasl_username", "not be empty"),
        (without(SCRAM, "sasl_password"), "sasl_password", "needs sasl_password"),
        (SCRAM | {"sasl_password": ""}, "sasl_password", "empty"),
        (PLAIN | {"sasl_username": "a\0b"}, "sasl_username", "NUL"),
        (PLAIN | {"sasl_password": f"{CANARY}\0"}, "sasl_password", "NUL"),
        (SCRAM | {"sasl_username": "\u00e4lice"}, "sasl_username", "ASCII"),
        (PLAIN | {"security_protocol": "SASL_PLAINTEXT"}, "security_protocol", "allow_plaintext_credentials"),
        (OAUTH | {"security_protocol": "SASL_PLAINTEXT"}, "security_protocol", "the token in the clear"),
        (without(OAUTH, "sasl_token_provider"), "sasl_token_provider", "ClientCredentials"),
        (PLAIN | {"sasl_token_provider": Provider()}, "sasl_token_provider", "OAUTHBEARER"),
        (PLAIN | {"sasl_jaas_config": JAAS}, "sasl_username", "twice"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": JAAS},
            "sasl_jaas_config",
            "PlainLoginModule, which is for PLAIN",
        ),
        (OAUTH | {"sasl_login_refresh_window_factor": 0.3}, "sasl_login_refresh_window_factor", "between 0.5 and 1"),
        (OAUTH | {"sasl_login_refresh_window_jitter": 0.3}, "sasl_login_refresh_window_jitter", "between 0 and 0.25"),
        (
            OAUTH | {"sasl_login_refresh_min_period_seconds": 901},
            "sasl_login_refresh_min_period_seconds",
            "between 0 and 900",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], option: str, words: str) -> None:
    error = refusal(options)

    assert error.option == option
    assert words in str(error)


@pytest.mark.parametrize(
    "options, option",
    [
        (OAUTH | {"sasl_token_provider": "token"}, "sasl_token_provider"),
        (OAUTH | {"sasl_token_provider": Provider}, "sasl_token_provider"),
        (PLAIN | {"sasl_mechanism": 1}, "sasl_mechanism"),
        (PLAIN | {"sasl_username": b"alice"}, "sasl_username"),
        (PLAIN | {"sasl_password": CANARY.encode()}, "sasl_password"),
        (PLAIN | {"sasl_jaas_config": JAAS.encode()}, "sasl_jaas_config"),
        (OAUTH | {"sasl_login_refresh_window_factor": True}, "sasl_login_refresh_window_factor"),
        (OAUTH | {"sasl_login_read_timeout_ms": 1.5}, "sasl_login_read_timeout_ms"),
        (PLAIN | {"allow_plaintext_credentials": 1}, "allow_plaintext_credentials"),
    ],
)
def test_value_of_the_wrong_type_is_refused(options: dict[str, Any], option: str) -> None:
    error = refusal(options)

    assert isinstance(error, ConfigurationTypeError)
    assert error.option == option


def test_scram_needs_no_permission_over_plaintext() -> None:
    assert config(**SCRAM | {"security_protocol": "SASL_PLAINTEXT"}).security_protocol == "SASL_PLAINTEXT"


@pytest.mark.parametrize("options", [PLAIN, OAUTH])
def test_plaintext_is_allowed_when_it_is_asked_for(options: dict[str, Any]) -> None:
    allowed = config(**options | {"security_protocol": "SASL_PLAINTEXT", "allow_plaintext_credentials": True})

    assert allowed.allow_plaintext_credentials


def test_password_may_come_later() -> None:
    for password in (Secret.from_env("AIOPRODUCER_NOT_SET"), Secret.from_file("/not/there"), lambda: CANARY):
        assert config(**PLAIN | {"sasl_password": password}).sasl_password is password


def test_no_repr_shows_password_or_jaas_text() -> None:
    alone = config(**PLAIN)
    jaas = config(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=JAAS)

    for each in (alone, jaas, alone.replace(client_id="x"), jaas.replace(client_id="x")):
        assert each.sasl_username == "alice"
        assert isinstance(each.sasl_password, Secret)
        assert each.sasl_password.reveal() == CANARY
        assert CANARY not in f"{each!r} {each} {each.given}"


@pytest.mark.parametrize(
    "name, words",
    [
        ("sasl.mechanisms", "sasl.mechanism"),
        ("sasl_plain_username", "sasl_username"),
        ("sasl_plain_password", "sasl_password"),
        ("sasl_oauth_token_provider", "sasl_token_provider"),
        ("sasl.oauthbearer.token.endpoint.url", "ClientCredentials"),
        ("sasl.client.callback.handler.class", "sasl_token_provider"),
        ("sasl.login.callback.handler.class", "sasl_token_provider"),
        ("sasl.login.class", "Java classes"),
        ("oauthbearer_token_refresh_cb", "sasl_token_provider"),
        ("oauth_cb", "sasl_token_provider"),
    ],
)
def test_names_of_other_clients_lead_to_ours(name: str, words: str) -> None:
    error = refusal({name: CANARY})

    assert words in str(error)


@needs_gssapi
@pytest.mark.parametrize("options", [GSSAPI, GSSAPI | KEYTAB, GSSAPI | {"security_protocol": "SASL_PLAINTEXT"}])
def test_complete_options_of_kerberos_are_accepted(options: dict[str, Any]) -> None:
    assert config(**options).sasl_mechanism == "GSSAPI"


@needs_gssapi
def test_options_of_kerberos_have_kafkas_spelling_and_take_paths() -> None:
    found = config(
        **{name: value for name, value in GSSAPI.items() if name != "sasl_kerberos_service_name"},
        **{"sasl.kerberos.service.name": "broker", "sasl_kerberos_keytab": Path("/etc/k")},
    )

    assert (found.sasl_kerberos_service_name, found.sasl_kerberos_keytab) == ("broker", "/etc/k")


@pytest.mark.parametrize(
    "options, option, words",
    [
        (without(GSSAPI, "sasl_kerberos_service_name"), "sasl_kerberos_service_name", "'kafka' nearly everywhere"),
        (GSSAPI | {"sasl_kerberos_service_name": ""}, "sasl_kerberos_service_name", "first part"),
        (GSSAPI | {"sasl_kerberos_service_name": "kafka/host"}, "sasl_kerberos_service_name", "only the first part"),
        (GSSAPI | {"sasl_kerberos_service_name": "kafka@R"}, "sasl_kerberos_service_name", "only the first part"),
        (GSSAPI | {"sasl_kerberos_principal": ""}, "sasl_kerberos_principal", "must not be empty"),
        (GSSAPI | {"sasl_kerberos_principal": "a\0b"}, "sasl_kerberos_principal", "NUL"),
        (GSSAPI | {"sasl_kerberos_keytab": ""}, "sasl_kerberos_keytab", "empty"),
        (GSSAPI | {"sasl_username": "alice"}, "sasl_username", "not for GSSAPI"),
        (GSSAPI | {"sasl_password": CANARY}, "sasl_password", "not for GSSAPI"),
        (GSSAPI | {"sasl_token_provider": Provider()}, "sasl_token_provider", "not for GSSAPI"),
        (GSSAPI | {"security_protocol": "SSL"}, "security_protocol", "no effect"),
        (KEYTAB, "security_protocol", "never guessed"),
        (PLAIN | {"sasl_kerberos_service_name": "kafka"}, "sasl_kerberos_service_name", "is for GSSAPI"),
        (OAUTH | {"sasl_kerberos_keytab": "k"}, "sasl_kerberos_keytab", "is for GSSAPI"),
        (GSSAPI | {"sasl_mechanism": "gssapi"}, "sasl_mechanism", "'GSSAPI'"),
        (GSSAPI | {"sasl_kerberos_kinit_cmd": "/opt/kinit"}, "sasl_kerberos_kinit_cmd", "no kinit is run"),
        (GSSAPI | {"sasl_kerberos_domain_name": "a"}, "sasl_kerberos_domain_name", "the cluster advertises"),
    ],
)
def test_options_of_kerberos_that_do_not_fit_are_refused(options: dict[str, Any], option: str, words: str) -> None:
    error = refusal(options)

    assert error.option == option
    assert words in str(error)


@pytest.mark.parametrize("option", ["sasl_kerberos_service_name", "sasl_kerberos_keytab", "sasl_kerberos_principal"])
def test_option_of_kerberos_of_the_wrong_type_is_refused(option: str) -> None:
    error = refusal(GSSAPI | {option: 7})

    assert isinstance(error, ConfigurationTypeError)
    assert error.option == option


def test_missing_library_is_refused_before_any_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)  # as where it is not installed

    error = refusal(GSSAPI)

    assert "pip install 'aioproducer[kerberos]'" in str(error)
