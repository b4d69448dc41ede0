"""The `sasl_*` and `ssl_*` options: what is refused before any I/O, and with which words."""

import ssl
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aioproducer import ConfigurationError, ConfigurationTypeError, ProducerConfig
from aioproducer.security import Secret
from aioproducer.testing import FakeCluster

CANARY = "canary-password"
TLS: dict[str, object] = {"security_protocol": "SSL"}
KEY = "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
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
    assert "canary" not in str(caught.value)
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
        # Kerberos
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
        (GSSAPI | {"sasl_kerberos_kinit_cmd": "/opt/kinit"}, "sasl_kerberos_kinit_cmd", "nothing here"),
        (GSSAPI | {"sasl_kerberos_domain_name": "a"}, "sasl_kerberos_domain_name", "use sasl_kerberos_service_name"),
        # TLS
        ({"ssl_truststore_location": "ca.pem"}, "ssl_truststore_location", "PLAINTEXT, the default: set"),
        (
            {"ssl_key_password": "x", "security_protocol": "SASL_PLAINTEXT"},
            "ssl_key_password",
            "set security_protocol='SASL_SSL'",
        ),
        (
            TLS | {"ssl_context": ssl.create_default_context(), "ssl_truststore_location": "ca.pem"},
            "ssl_truststore_location",
            "ssl_context takes the place of all other ssl_ options",
        ),
        (TLS | {"ssl_keystore_key": KEY}, "ssl_keystore_certificate_chain", "needs ssl_keystore_certificate_chain"),
        (TLS | {"ssl_keystore_certificate_chain": CERTIFICATE}, "ssl_keystore_key", "needs ssl_keystore_key"),
        (
            TLS
            | {
                "ssl_keystore_location": "a",
                "ssl_keystore_key": KEY,
                "ssl_keystore_certificate_chain": CERTIFICATE,
            },
            "ssl_keystore_location",
            "leave out one",
        ),
        (TLS | {"ssl_key_location": "tls.key"}, "ssl_keystore_location", "needs ssl_keystore_location, the PEM file"),
        (TLS | {"ssl_key_location": KEY, "ssl_keystore_location": "a"}, "ssl_key_location", "as ssl_keystore_key"),
        (
            TLS
            | {
                "ssl_key_location": "tls.key",
                "ssl_keystore_key": KEY,
                "ssl_keystore_certificate_chain": CERTIFICATE,
            },
            "ssl_key_location",
            "ssl_key_location and ssl_keystore_key both give a key; leave out one",
        ),
        (
            TLS | {"ssl_truststore_location": "a", "ssl_truststore_certificates": CERTIFICATE},
            "ssl_truststore_location",
            "leave out one",
        ),
        (TLS | {"ssl_enabled_protocols": []}, "ssl_enabled_protocols", "at least one of TLSv1.2, TLSv1.3"),
        (TLS | {"ssl_enabled_protocols": "TLSv1.1,TLSv1.2"}, "ssl_enabled_protocols", "TLSv1.1 is not safe"),
        (TLS | {"ssl_enabled_protocols": ["TLS 1.3"]}, "ssl_enabled_protocols", "'TLS 1.3' is not one of"),
        (TLS | {"ssl_enabled_protocols": ["TLSv1.3"], "ssl_protocol": "TLSv1.2"}, "ssl_protocol", "leaves no version"),
        (TLS | {"ssl_endpoint_identification_algorithm": "none"}, "ssl_endpoint_identification_algorithm", '"https"'),
        (TLS | {"ssl_truststore_type": "BKS"}, "ssl_truststore_type", "PEM, PKCS12, JKS"),
        (TLS | {"ssl_truststore_location": ""}, "ssl_truststore_location", "not empty"),
        (TLS | {"ssl_truststore_location": CERTIFICATE}, "ssl_truststore_location", "given as ssl_truststore_certifi"),
        (TLS | {"ssl_keystore_location": KEY}, "ssl_keystore_location", "given as ssl_keystore_key"),
        (TLS | {"ssl_truststore_certificates": "ca.pem"}, "ssl_truststore_certificates", "as ssl_truststore_location"),
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
        (GSSAPI | {"sasl_kerberos_service_name": 7}, "sasl_kerberos_service_name"),
        (GSSAPI | {"sasl_kerberos_keytab": 7}, "sasl_kerberos_keytab"),
        (GSSAPI | {"sasl_kerberos_principal": 7}, "sasl_kerberos_principal"),
        (TLS | {"ssl_context": "default"}, "ssl_context"),
        (TLS | {"ssl_truststore_location": 5}, "ssl_truststore_location"),
        (TLS | {"ssl_truststore_certificates": b"x"}, "ssl_truststore_certificates"),
        (TLS | {"ssl_keystore_key": KEY.encode()}, "ssl_keystore_key"),
        (TLS | {"ssl_key_password": 5}, "ssl_key_password"),
        (TLS | {"ssl_cipher_suites": 5}, "ssl_cipher_suites"),
        (TLS | {"ssl_enabled_protocols": [5]}, "ssl_enabled_protocols"),
        (TLS | {"ssl_keystore_type": 5}, "ssl_keystore_type"),
        (TLS | {"ssl_endpoint_identification_algorithm": False}, "ssl_endpoint_identification_algorithm"),
    ],
)
def test_value_of_the_wrong_type_is_refused(options: dict[str, Any], option: str) -> None:
    error = refusal(options)

    assert isinstance(error, ConfigurationTypeError)
    assert error.option == option


@pytest.mark.parametrize("given", ["SASL_PLAINTEXT", "sasl_plaintext", " SASL_PLAINTEXT "])
def test_scram_needs_no_permission_over_plaintext(given: str) -> None:
    """The protocol is read in any case."""
    assert config(**SCRAM | {"security_protocol": given}).security_protocol == "SASL_PLAINTEXT"


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
        ("ssl.engine.factory.class", "pass ssl_context=, an ssl.SSLContext or a function"),
        ("ssl.trustmanager.algorithm", "pass ssl_context=, an ssl.SSLContext or a function"),
        ("ssl.ca.location", "use 'ssl.truststore.location'"),
        ("ssl.certificate.location", "use 'ssl.keystore.location', one file in PEM"),
        ("ssl.key.pem", "use 'ssl.keystore.key'"),
        ("ssl_cafile", "use 'ssl_truststore_location'"),
        ("ssl_check_hostname", "use 'ssl_endpoint_identification_algorithm', \"\" for False"),
        ("ssl.crl.location", "pass ssl_context="),
        ("enable.ssl.certificate.verification", "pass ssl_context="),
    ],
)
def test_names_of_other_clients_lead_to_ours(name: str, words: str) -> None:
    error = refusal({name: CANARY})

    assert isinstance(error, ConfigurationTypeError)
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


def test_missing_library_is_refused_before_any_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)  # as where it is not installed

    error = refusal(GSSAPI)

    assert "pip install 'aioproducer[kerberos]'" in str(error)


@pytest.mark.parametrize("name", ["ssl_keystore_key", "ssl_key_password", "ssl_keystore_password"])
def test_secret_option_is_shown_nowhere(name: str) -> None:
    more = {"ssl_keystore_certificate_chain": CERTIFICATE} if name == "ssl_keystore_key" else {}
    made = config(**TLS, **more, **{name: "canary"})

    assert "canary" not in repr(made) + repr(made.given) + repr(made.replace(client_id="x"))
    assert getattr(made, name).reveal() == "canary"


def test_password_may_be_a_secret_or_a_function() -> None:
    secret = Secret.from_env("X")

    async def ask() -> str:
        return "x"

    made = config(**TLS, ssl_key_password=secret, ssl_keystore_password=ask)
    assert made.ssl_key_password is secret
    assert made.ssl_keystore_password is ask


def test_java_property_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=a:9093\nsecurity.protocol=ssl\nssl.truststore.location=/etc/kafka/trust.jks\n"
        "ssl.truststore.password=canary\nssl.truststore.type=jks\nssl.enabled.protocols=TLSv1.2, TLSv1.3\n"
        "ssl.protocol=TLSv1.3\nssl.endpoint.identification.algorithm=\nssl.keymanager.algorithm=SunX509\n"
        "ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384\n",
        encoding="utf-8",
    )
    made = ProducerConfig.from_properties_file(path)

    assert made.security_protocol == "SSL"
    assert made.ssl_truststore_location == "/etc/kafka/trust.jks"
    assert made.ssl_truststore_type == "JKS"
    assert made.ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert not made.ssl_endpoint_identification_algorithm
    assert made.ssl_cipher_suites == ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384")
    assert "canary" not in repr(made)


def test_default_of_a_tls_option_asks_for_nothing() -> None:
    config(ssl_protocol="TLSv1.3", ssl_endpoint_identification_algorithm="https", ssl_truststore_location=None)


PROGRAM = """
import sys, aioproducer
with aioproducer.BlockingProducer(sys.argv[1]) as producer:
    producer.send("t", b"v")
unwanted = ("cryptography", "gssapi", "boto3", "python_socks", "jwt", "aioproducer._network.tls")
print([name for name in sys.modules if name.startswith((*unwanted, "aioproducer.security._stores"))])
"""


def test_plaintext_producer_loads_nothing_of_tls() -> None:
    with FakeCluster.in_thread(1, topics={"t": 1}) as cluster:
        command = [sys.executable, "-c", PROGRAM, cluster.bootstrap_servers]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stdout.strip() == "[]", ended.stdout + ended.stderr


NO_UNICODE = f"{CANARY}\udce9"
FILE_WITH_KEY = {"ssl_keystore_location": "client.pem"}


@pytest.mark.parametrize(
    "options, option",
    [
        (PLAIN | {"sasl_password": NO_UNICODE}, "sasl_password"),
        (SCRAM | {"sasl_password": NO_UNICODE}, "sasl_password"),
        (PLAIN | {"sasl_password": Secret.from_env("NO_UNICODE")}, "sasl_password"),
        (PLAIN | {"sasl_username": NO_UNICODE}, "sasl_username"),
        (without(PLAIN, "sasl_username", "sasl_password") | {"sasl_jaas_config": f"{JAAS}\ud83d"}, "sasl_jaas_config"),
        (
            without(PLAIN, "sasl_username", "sasl_password") | {"sasl_jaas_config": Secret.from_env("NO_UNICODE")},
            "sasl_jaas_config",
        ),
        (TLS | FILE_WITH_KEY | {"ssl_key_password": NO_UNICODE}, "ssl_key_password"),
        (TLS | FILE_WITH_KEY | {"ssl_key_password": Secret.from_env("NO_UNICODE")}, "ssl_key_password"),
        (TLS | FILE_WITH_KEY | {"ssl_keystore_password": NO_UNICODE}, "ssl_keystore_password"),
        ({"proxy_url": Secret.from_env("NO_UNICODE")}, "proxy_url"),
        (GSSAPI | {"sasl_kerberos_service_name": NO_UNICODE}, "sasl_kerberos_service_name"),
    ],
)
def test_text_that_is_not_unicode_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], option: str
) -> None:
    monkeypatch.setenv("NO_UNICODE", NO_UNICODE)
    error = refusal(options)

    assert error.option == option
    assert option in str(error)
    assert "is not valid Unicode: it has lone surrogates" in str(error)
    assert CANARY not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


def test_half_of_a_surrogate_pair_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers=h:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"sasl.username=alice\nsasl.password={CANARY}\\ud83d\n"
    )
    with pytest.raises(ConfigurationError, match="line 5: sasl_password is not valid Unicode") as caught:
        ProducerConfig.from_properties_file(path)

    assert CANARY not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize("suite", ["a\0b", "é", "a\ud83d"])
def test_cipher_suite_with_other_characters_is_refused(suite: str) -> None:
    error = refusal(TLS | {"ssl_cipher_suites": [suite]})

    assert error.option == "ssl_cipher_suites"
    assert "other than printable ASCII" in str(error)
