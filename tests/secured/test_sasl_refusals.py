"""What a start says about credentials, mechanisms and listeners that do not fit, on real brokers."""

from typing import Any, cast

import pytest

from aioproducer import (
    AuthenticationError,
    CredentialsError,
    Producer,
    TokenError,
    UnsupportedMechanismError,
    WrongListenerError,
)
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.security import Token
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.tokens import unsecured_token

pytestmark = pytest.mark.kafka


class OneToken:
    """Provider of a token that a test chose."""

    def __init__(self, value: str) -> None:
        self._value = value

    async def token(self) -> Token:
        return Token(value=self._value, expires_at=4e9)


async def error_of_start(options: dict[str, object]) -> AuthenticationError:
    producer = Producer(**cast("ProducerOptions", options))
    with pytest.raises(AuthenticationError) as caught:
        await producer.start()
    await producer.close()
    return caught.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"sasl_password": "canary-wrong"}, {"sasl_username": "nobody"}])
async def test_start_names_user_and_options_when_credentials_are_wrong(
    secured_kafka: KafkaCluster, mechanism: str, wrong: dict[str, object]
) -> None:
    error = await error_of_start(secured_kafka.client_options("SASL_PLAINTEXT", mechanism) | wrong)

    assert isinstance(error, CredentialsError)
    text = str(error)
    assert "sasl_username and sasl_password" in text
    assert "bootstrap broker localhost:" in text
    assert repr(wrong.get("sasl_username", "alice")) in text
    assert "canary-wrong" not in text


async def test_start_lists_the_mechanisms_that_are_offered(secured_kafka: KafkaCluster) -> None:
    options = secured_kafka.client_options("SASL_PLAINTEXT", "SCRAM-SHA-256")
    signed = secured_kafka.client_options("SIGNED", "OAUTHBEARER")
    error = await error_of_start(signed | {name: options[name] for name in options if name.startswith("sasl")})

    assert isinstance(error, UnsupportedMechanismError)
    assert "OAUTHBEARER" in str(error)


async def test_start_says_so_when_the_listener_wants_no_sasl(secured_kafka: KafkaCluster) -> None:
    options = secured_kafka.client_options("SASL_PLAINTEXT", "PLAIN")
    error = await error_of_start(options | {"bootstrap_servers": secured_kafka.bootstrap_servers})

    assert isinstance(error, WrongListenerError)
    assert "wants no authentication" in str(error)


async def test_start_says_so_when_the_listener_wants_sasl(secured_kafka: KafkaCluster) -> None:
    error = await error_of_start({"bootstrap_servers": secured_kafka.secured_servers("SASL_PLAINTEXT")})

    assert isinstance(error, WrongListenerError)
    assert "security_protocol" in str(error)


@pytest.mark.parametrize("lifetime_s, claim", [(-60.0, "expired"), (3600.0, None)], ids=["expired", "not-a-token"])
async def test_start_tells_the_claims_of_a_refused_token(
    secured_kafka: KafkaCluster, lifetime_s: float, claim: str | None
) -> None:
    value = "canary" if claim is None else unsecured_token("alice", lifetime_s=lifetime_s)
    options: dict[str, Any] = secured_kafka.client_options("SASL_PLAINTEXT", "OAUTHBEARER")
    error = await error_of_start(options | {"sasl_token_provider": OneToken(value)})

    assert isinstance(error, TokenError)
    assert value not in str(error)
    assert (claim or "not a JSON web token") in str(error)


async def test_password_that_is_mended_while_it_is_refused_is_taken(secured_kafka: KafkaCluster) -> None:
    answers = iter(["wrong"])
    asked = []

    async def password() -> str:
        asked.append(1)
        return next(answers, "alice-secret")

    options = secured_kafka.client_options("SASL_PLAINTEXT", "SCRAM-SHA-512") | {"sasl_password": password}
    error = await error_of_start(options)
    async with Producer(**cast("ProducerOptions", options)) as producer:
        result = await producer.send("sasl", b"value")

    assert isinstance(error, CredentialsError)
    assert result.offset >= 0
    assert len(asked) >= 2
