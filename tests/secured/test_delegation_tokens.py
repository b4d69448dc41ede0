"""A delegation token (KIP-48) that a real broker hands out, and with which a producer authenticates."""

import asyncio
import base64
import struct
from typing import NamedTuple

import pytest

from aioproducer import CredentialsError, Producer
from aioproducer.testing.kafka import KafkaCluster
from tests.secured.raw_client import RawClient, plain
from tests.secured.ways import Options, producer_of

pytestmark = pytest.mark.kafka

CREATE_DELEGATION_TOKEN = 38
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


class DelegationToken(NamedTuple):
    name: str
    password: str


async def token_of_alice(kafka: KafkaCluster) -> DelegationToken:
    """Ask for a token as a tool does: over a connection that is authenticated otherwise."""
    host, _, port = kafka.secured_servers("SASL_PLAINTEXT").partition(",")[0].rpartition(":")
    client = await RawClient.connect(host, int(port))
    await client.handshake("PLAIN")
    await client.authenticate(plain("alice", "alice-secret"))
    client.ask(CREATE_DELEGATION_TOKEN, 1, struct.pack(">iq", 0, 3_600_000))  # no renewers; how long it lives
    answer = await client.answer()
    client.abort()
    assert answer is not None
    assert answer[:2] == b"\x00\x00", answer
    name_at = _behind(answer, _behind(answer, 2)) + 3 * 8  # the owner's type and name, and three times
    password_at = _behind(answer, name_at)
    (size,) = struct.unpack_from(">i", answer, password_at)
    password = base64.b64encode(answer[password_at + 4 : password_at + 4 + size]).decode()
    return DelegationToken(answer[name_at + 2 : password_at].decode(), password)


def _behind(answer: bytes, position: int) -> int:
    return position + 2 + int(struct.unpack_from(">h", answer, position)[0])


def options_of(kafka: KafkaCluster, token: DelegationToken, mechanism: str) -> Options:
    login = f'{SCRAM} username="{token.name}" password="{token.password}" tokenauth="true";'
    options = kafka.client_options("SASL_SSL", mechanism)
    del options["sasl_username"], options["sasl_password"]
    return options | {"sasl_jaas_config": login}


async def started_when_known(options: Options) -> Producer:
    """Start a producer as soon as the broker knows the token, which its controller has made."""
    ends_at = asyncio.get_running_loop().time() + 20
    while True:
        producer = producer_of(options)
        try:
            return await producer.start()
        except CredentialsError:
            assert asyncio.get_running_loop().time() < ends_at
        await producer.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_record_is_delivered_with_a_delegation_token(secured_kafka: KafkaCluster, mechanism: str) -> None:
    token = await token_of_alice(secured_kafka)
    options = options_of(secured_kafka, token, mechanism)
    producer = await started_when_known(options)
    result = await producer.send("sasl", b"value")
    await producer.close()

    assert result.offset >= 0


async def test_wrong_delegation_token_is_named_as_one(secured_kafka: KafkaCluster) -> None:
    token = await token_of_alice(secured_kafka)
    wrong = DelegationToken(token.name, "canary-wrong")
    producer = producer_of(options_of(secured_kafka, wrong, "SCRAM-SHA-256"))
    with pytest.raises(CredentialsError, match="delegation token"):
        await producer.start()
    await producer.close()
