"""`aioproducer diagnose` on secured real brokers."""

import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.secured.diagnosed import names, steps_of

pytestmark = pytest.mark.kafka


async def test_right_options_pass_all_steps(secured_kafka: KafkaCluster) -> None:
    steps = await steps_of(secured_kafka.client_options("SASL_SSL", "SCRAM-SHA-512"))

    assert names(steps) == "tcp tls versions mechanisms login metadata"
    texts = {step.name: step.text for step in steps}
    assert texts["tls"].startswith("TLSv1.3, ")
    assert "days left" in texts["tls"]
    assert "SCRAM-SHA-512" in texts["mechanisms"]
    assert texts["login"].startswith("SCRAM-SHA-512 as ")


async def test_wrong_password_fails_at_the_login(secured_kafka: KafkaCluster) -> None:
    steps = await steps_of(secured_kafka.client_options("SASL_SSL", "PLAIN") | {"sasl_password": "canary-wrong"})

    assert names(steps) == "tcp tls versions mechanisms login!"
    assert "sasl_password" in steps[-1].text
    assert "canary-wrong" not in str(steps)


async def test_unknown_ca_fails_at_tls(secured_kafka: KafkaCluster) -> None:
    options = secured_kafka.client_options("SSL", "")
    without = {name: value for name, value in options.items() if "truststore" not in name}
    steps = await steps_of(without)

    assert names(steps) == "tcp tls!"
    assert "ssl_truststore_location" in steps[-1].text


async def test_plaintext_to_tls_and_no_sasl_to_sasl_are_told_apart(secured_kafka: KafkaCluster) -> None:
    to_tls = secured_kafka.client_options("SSL", "")
    to_sasl = secured_kafka.client_options("SASL_PLAINTEXT", "PLAIN")
    of_tls = await steps_of({"bootstrap_servers": to_tls["bootstrap_servers"]})
    of_sasl = await steps_of({"bootstrap_servers": to_sasl["bootstrap_servers"]})

    assert (names(of_tls), names(of_sasl)) == ("tcp versions!", "tcp versions metadata!")
    assert "TLS" in of_tls[-1].text
    assert "security_protocol=SASL_PLAINTEXT, and sasl_mechanism to one of " in of_sasl[-1].remedy
