"""`sasl.jaas.config` as Java's clients read it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import ConfigurationError, ProducerConfig
from aioproducer.config._jaas import parse_jaas
from aioproducer.security import Secret

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CANARY = "canary-password"


@pytest.mark.parametrize(
    "text, options",
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"{PLAIN} required\n  username=u\n  password = 'p';", {"username": "u", "password": "p"}),
        (f'{PLAIN} Required username="a\\"b" password="c\\\\d;=";', {"username": 'a"b', "password": "c\\d;="}),
        (f'// why\n{PLAIN} /* really */ required username="u"; // end', {"username": "u"}),
        (f"{PLAIN} sufficient;", {}),
        (f'{PLAIN} required username="" password="a b";', {"username": "", "password": "a b"}),
        (f'{PLAIN} required password="\u00e4\\n";', {"password": "\u00e4\n"}),
    ],
)
def test_text_is_read(text: str, options: dict[str, str]) -> None:
    jaas = parse_jaas(text)

    assert jaas.module == "PlainLoginModule"
    assert dict(jaas.options) == options


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "ends where the class"),
        (PLAIN, "ends where a flag"),
        (f"{PLAIN} required", "ends where an option"),
        (f'{PLAIN} required username="u" password="{CANARY}"', "ends where an option or ;"),
        (f'{PLAIN} required username="u" password="{CANARY}', "not closed"),
        (f'{PLAIN} required username {CANARY}="p";', "= is expected"),
        (f'{PLAIN} username="u" password="{CANARY}";', '"required" is expected'),
        (f'com.example.MyLoginModule required password="{CANARY}";', "'MyLoginModule' is not known"),
        (f'{PLAIN} required username="u"; {SCRAM} required;', "one login module"),
        (f"KafkaClient {{ {PLAIN} required; }};", "'KafkaClient' is not known"),
    ],
)
def test_text_that_cannot_be_read_is_refused_without_its_values(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_jaas(text)

    assert words in str(caught.value)
    assert CANARY not in str(caught.value)
    assert caught.value.option == "sasl_jaas_config"


@given(st.text(alphabet=' ="\\;/*ab.\n', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_jaas(f"{PLAIN} required {text}")
    except ConfigurationError:
        return


def test_repr_shows_no_value() -> None:
    assert CANARY not in repr(parse_jaas(f'{PLAIN} required password="{CANARY}";'))


def test_delegation_token_is_recognised() -> None:
    assert parse_jaas(f'{SCRAM} required username="id" password="hmac" tokenauth="true";').is_delegation_token
    assert not parse_jaas(f'{PLAIN} required username="id" password="hmac" tokenauth="true";').is_delegation_token


def from_file(folder: Path, text: str, **options: Any) -> ProducerConfig:
    path = folder / "client.properties"
    path.write_text(text, "utf-8")
    return ProducerConfig.from_properties_file(path, **options)


def test_java_client_file_is_read_whole(tmp_path: Path) -> None:
    config = from_file(
        tmp_path,
        "bootstrap.servers=broker-1:9093,broker-2:9093\n"
        "security.protocol=sasl_ssl\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={SCRAM} required \\\n"
        f'    username="billing" \\\n    password="{CANARY}";\n'
        "sasl.login.refresh.window.factor=0.9\n"
        "acks=all\n",
    )

    assert config.security_protocol == "SASL_SSL"
    assert (config.sasl_mechanism, config.sasl_username) == ("SCRAM-SHA-512", "billing")
    assert isinstance(config.sasl_password, Secret)
    assert config.sasl_password.reveal() == CANARY
    assert config.sasl_login_refresh_window_factor == 0.9
    assert CANARY not in repr(config)


def test_error_in_a_jaas_text_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="line 2"):
        from_file(tmp_path, f"bootstrap.servers=h:1\nsasl.jaas.config={PLAIN} unless;\nsasl.mechanism=PLAIN\n")


def test_what_a_file_cannot_say_is_given_beside_it(tmp_path: Path) -> None:
    class Provider:
        async def token(self) -> str:
            return "token"

    text = (
        "bootstrap.servers=h:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f'sasl.jaas.config={OAUTH} required clientId="billing" clientSecret="{CANARY}";\n'
        "sasl.oauthbearer.token.endpoint.url=https://idp/token\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginCallbackHandler\n"
    )
    with pytest.raises(ConfigurationError, match="ClientCredentials"):
        from_file(tmp_path, text)
    provider = Provider()

    assert from_file(tmp_path, text, sasl_token_provider=provider).sasl_token_provider is provider


OF_AWS = (
    "bootstrap.servers=h:9098\nsecurity.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"
    "sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;\n"
    "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler\n"
)
"""The file of AWS's documentation."""


class Signer:
    async def token(self) -> str:
        return "token"


@pytest.mark.parametrize("options", [{}, {"sasl_mechanism": "OAUTHBEARER"}])
def test_file_of_msk_is_taken_with_a_provider_beside_it(tmp_path: Path, options: dict[str, str]) -> None:
    found = from_file(tmp_path, OF_AWS, sasl_token_provider=Signer(), **options)

    assert found.sasl_mechanism == "OAUTHBEARER"


def test_file_of_msk_names_the_provider_that_it_needs(tmp_path: Path) -> None:
    *lines, handler = OF_AWS.splitlines()
    with pytest.raises(ConfigurationError, match=r"line 5: .*tokens come from sasl_token_provider"):
        from_file(tmp_path, "\n".join([*lines, handler]))
    with pytest.raises(ConfigurationError, match=r"line 3: .*OAUTHBEARER with sasl_token_provider=MskIam"):
        from_file(tmp_path, "\n".join(lines))


KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB = f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="FILE:/etc/k" principal="alice@R"'
needs_gssapi = pytest.mark.skipif(find_spec("gssapi") is None, reason="needs pip install 'aioproducer[kerberos]'")


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="h:1", security_protocol="SASL_SSL", **options)


@needs_gssapi
@pytest.mark.parametrize("mechanism", [{}, {"sasl.mechanism": "GSSAPI"}])
def test_keytab_of_a_kerberos_module_is_taken(mechanism: dict[str, str]) -> None:
    """GSSAPI is the default of Java's clients, and so not in every file."""
    found = config(**mechanism, **{"sasl.jaas.config": f"{KEYTAB};", "sasl.kerberos.service.name": "kafka"})

    assert found.sasl_mechanism == "GSSAPI"
    assert (found.sasl_kerberos_keytab, found.sasl_kerberos_principal) == ("/etc/k", "alice@R")


@needs_gssapi
@pytest.mark.parametrize("name", [{}, {"sasl.kerberos.service.name": "kafka"}])
def test_service_name_may_stand_in_the_text(name: dict[str, str]) -> None:
    text = f'{KERBEROS} required useTicketCache=true serviceName="kafka";'

    assert config(**name, **{"sasl.jaas.config": text}).sasl_kerberos_service_name == "kafka"


@pytest.mark.parametrize(
    "text, options, option, words",
    [
        (f"{KERBEROS} required;", {}, "sasl_jaas_config", "useTicketCache=true"),
        (f'{KERBEROS} required keyTab="/etc/k";', {}, "sasl_jaas_config", "useKeyTab=true"),
        (f"{KERBEROS} required useKeyTab=true;", {}, "sasl_jaas_config", "keyTab"),
        (f"{KEYTAB};", {"sasl_mechanism": "PLAIN"}, "sasl_jaas_config", "Krb5LoginModule, which is for GSSAPI"),
        (f"{KEYTAB};", {"sasl_kerberos_keytab": "/etc/other"}, "sasl_kerberos_keytab", "twice"),
        (f"{KEYTAB} serviceName=other;", {}, "sasl_kerberos_service_name", "twice"),
    ],
)
def test_kerberos_module_that_does_not_fit_is_refused(
    text: str, options: dict[str, str], *, option: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config(**{"sasl_jaas_config": text, "sasl_kerberos_service_name": "kafka", **options})

    assert caught.value.option == option
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "flags, uses_cache, cache",
    [
        ("useTicketCache=true", True, None),
        ('useTicketCache=TRUE ticketCache="/tmp/t"', True, "/tmp/t"),
        ('useTicketCache=false ticketCache="/tmp/t"', False, None),
    ],
)
def test_ticket_cache_of_a_kerberos_module_is_followed(flags: str, *, uses_cache: bool, cache: str | None) -> None:
    jaas = parse_jaas(f"{KEYTAB} {flags};")

    assert (jaas.uses_ticket_cache, jaas.ticket_cache, jaas.keytab) == (uses_cache, cache, "/etc/k")
