"""Options of TLS that cannot be used are refused before any I/O, and the text says what to do."""

import ssl
from pathlib import Path

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigurationError, ConfigurationTypeError
from aioproducer.security import Secret

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n"
TLS: dict[str, object] = {"security_protocol": "SSL"}


def config(**options: object) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="a:9092", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options, option, text",
    [
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
def test_options_that_cannot_go_together_are_refused(options: dict[str, object], option: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config(**options)

    assert text in str(caught.value)
    assert caught.value.option == option
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_context": "default"},
        {"ssl_truststore_location": 5},
        {"ssl_truststore_certificates": b"x"},
        {"ssl_keystore_key": KEY.encode()},
        {"ssl_key_password": 5},
        {"ssl_cipher_suites": 5},
        {"ssl_enabled_protocols": [5]},
        {"ssl_keystore_type": 5},
        {"ssl_endpoint_identification_algorithm": False},
    ],
)
def test_option_of_a_wrong_type_is_refused_without_its_value(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationTypeError) as caught:
        config(**TLS, **options)

    assert "canary" not in str(caught.value)
    assert caught.value.option in options


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


@pytest.mark.parametrize(
    "name, text",
    [
        ("ssl.engine.factory.class", "ssl_context, an ssl.SSLContext or a function, takes its place"),
        ("ssl.trustmanager.algorithm", "ssl_context, an ssl.SSLContext or a function, takes its place"),
        ("ssl.ca.location", "use 'ssl.truststore.location'"),
        ("ssl.certificate.location", "use 'ssl.keystore.location', one file in PEM"),
        ("ssl.key.pem", "use 'ssl.keystore.key'"),
        ("ssl_cafile", "use 'ssl_truststore_location'"),
        ("ssl_check_hostname", "use 'ssl_endpoint_identification_algorithm', \"\" for False"),
        ("ssl.crl.location", "pass ssl_context="),
        ("enable.ssl.certificate.verification", "pass ssl_context="),
    ],
)
def test_option_of_another_client_names_what_replaces_it(name: str, text: str) -> None:
    with pytest.raises(ConfigurationTypeError) as caught:
        config(**{name: "canary"})

    assert text in str(caught.value)
    assert "canary" not in str(caught.value)


def test_default_of_a_tls_option_asks_for_nothing() -> None:
    config(ssl_protocol="TLSv1.3", ssl_endpoint_identification_algorithm="https", ssl_truststore_location=None)
