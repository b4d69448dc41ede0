"""T15: a canary in every kind of secret, searched in everything that a failure and a producer show."""

import asyncio
import contextlib
import io
import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from aioproducer import BlockingProducer, KafkaError, Producer
from aioproducer._network.proxy import Proxy
from aioproducer.cli.diagnose import Printed, check_all
from aioproducer.config import ProducerConfig
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.security import ClientCredentials, JwtBearer, Secret, Token
from aioproducer.testing import CertificateAuthority, FakeCluster
from tests import canaries
from tests.fakes.proxies import working_proxy
from tests.secured.ways import SECURITY

PASSWORD = "canary-password-of-sasl"
STORE = Path(__file__).parents[1] / "security" / "golden" / "trust.jks"
OTHER = CertificateAuthority("another authority")


class Tokens:
    async def token(self) -> Token:
        return Token(value="canary-token", expires_at=4e9, extensions={"logicalCluster": "canary-extension"})


def asks() -> str:
    return PASSWORD


async def asks_later() -> str:
    await asyncio.sleep(0)
    return PASSWORD


def raises() -> str:
    held = PASSWORD
    raise OSError(f"https://vault/secret?token={held} does not answer")


class RaisingTokens:
    async def token(self) -> Token:
        raise OSError("https://idp/token?client_secret=canary-client-secret does not answer")


def encrypted_key(folder: Path) -> dict[str, object]:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    issued = SECURITY.authority.issue(usage=("client",))
    key = serialization.load_pem_private_key(issued.key.encode(), None)
    secret = serialization.BestAvailableEncryption(b"canary-right-password")
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret).decode()
    path = folder / "client.pem"
    path.write_text(text + issued.chain, "ascii")
    return {"ssl_keystore_location": str(path), "ssl_key_password": "canary-wrong-password"}


def inline_key(_: Path) -> dict[str, object]:
    ours, theirs = SECURITY.authority.issue(usage=("client",)), OTHER.issue(usage=("client",))
    return {"ssl_keystore_key": ours.key, "ssl_keystore_certificate_chain": theirs.chain}


def own(**options: object) -> Callable[[Path], dict[str, object]]:
    return lambda _: options


CASES: Mapping[str, tuple[tuple[str, str], Callable[[Path], dict[str, object]]]] = {
    "password of PLAIN": (("SASL_SSL", "PLAIN"), own(sasl_password=PASSWORD)),
    "password of PLAIN without TLS": (("SASL_PLAINTEXT", "PLAIN"), own(sasl_password=PASSWORD)),
    "password of SCRAM": (("SASL_SSL", "SCRAM-SHA-512"), own(sasl_password=Secret(PASSWORD))),
    "password with NUL": (("SASL_SSL", "PLAIN"), own(sasl_password=lambda: f"{PASSWORD}\0")),
    "function": (("SASL_SSL", "SCRAM-SHA-256"), own(sasl_password=asks)),
    "async function": (("SASL_SSL", "SCRAM-SHA-256"), own(sasl_password=asks_later)),
    "function that raises": (("SASL_SSL", "PLAIN"), own(sasl_password=raises)),
    "provider that raises": (("SASL_SSL", "OAUTHBEARER"), own(sasl_token_provider=RaisingTokens())),
    "token": (("SASL_SSL", "OAUTHBEARER"), own(sasl_token_provider=Tokens())),
    "secret of a client": (
        ("SASL_SSL", "OAUTHBEARER"),
        own(
            sasl_token_provider=ClientCredentials(
                "https://localhost:1/token", client_id="me", client_secret=Secret("canary-client-secret")
            )
        ),
    ),
    "password of a key": (("MTLS", ""), encrypted_key),
    "private key": (("MTLS", ""), inline_key),
    "password of a store": (
        ("SSL", ""),
        own(ssl_truststore_location=str(STORE), ssl_truststore_password="canary-store-password"),
    ),
}


def shown_by_error(error: BaseException) -> Iterator[str]:
    """Texts, pickles, and the chain with the locals of all frames below the test."""
    yield f"{error} {error!r} {vars(error)}"
    yield pickle.dumps(error).decode("latin-1")
    whole = traceback.TracebackException.from_exception(error, capture_locals=True)
    seen, rest = set(), [whole]
    while rest:
        each = rest.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        rest += [other for other in (each.__cause__, each.__context__) if other is not None]
        for frame in each.stack:
            if "/tests/" not in frame.filename:
                yield f"{frame.filename}:{frame.lineno} {frame.name} {frame.locals}"


def look(what: str, texts: Iterator[str]) -> None:
    shown = [text for text in texts if canaries.SECRET.search(text)]
    assert shown == [], what


@pytest.mark.parametrize("name", CASES)
async def test_no_secret_is_shown_when_a_start_fails(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    way, make = CASES[name]
    async with FakeCluster(1, security=SECURITY) as cluster:
        changed = cluster.client_options(*way) | make(tmp_path)
        if "ssl_keystore_key" in changed:
            del changed["ssl_keystore_location"]
        servers = cast("str", changed.pop("bootstrap_servers"))
        config = ProducerConfig.of(servers, cast("ProducerOptions", {**changed, "max_block_ms": 500}))
        producer = Producer(config)
        with pytest.raises(KafkaError) as caught:
            await producer.start()
        look("error", shown_by_error(caught.value))
        look("producer", (text for _, text in canaries.shown_by(producer)))
        look("log", iter(caplog.messages))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert await check_all(config, Printed(as_json=True), 1.0)
        look("diagnose", iter(printed.getvalue().splitlines()))
        await producer.close()


@pytest.mark.parametrize("way", [("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_MTLS", "SCRAM-SHA-256")])
async def test_no_secret_is_shown_while_records_are_sent(
    way: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeCluster(1, security=SECURITY) as cluster:
        options = cast("ProducerOptions", cluster.client_options(*way))
        async with Producer(**options) as producer:  # type: ignore[call-arg]
            delivery = await producer.enqueue("orders", b"x")
            look("producer", (text for _, text in canaries.shown_by(producer)))
            await delivery
            look("tasks", (f"{task!r} {task.get_stack(limit=1)!r}" for task in asyncio.all_tasks()))
        await asyncio.to_thread(send_blocking, options)
        look("log", iter(caplog.messages))


def send_blocking(options: ProducerOptions) -> None:
    with BlockingProducer(**options) as producer:  # type: ignore[call-arg]
        producer.send("orders", b"x")
        look("blocking producer", (text for _, text in canaries.shown_by(producer)))


async def test_password_of_a_proxy_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with working_proxy(credentials="u:canary-right") as proxy:
        url = f"http://u:canary-wrong@127.0.0.1:{proxy.port}"
        producer = Producer("kafka-1:9092", proxy_url=url)
        with pytest.raises(KafkaError) as caught:
            await producer.start()
    look("error", shown_by_error(caught.value))
    look("producer", (text for _, text in canaries.shown_by(producer)))
    look("log", iter(caplog.messages))
    assert "canary" not in repr(Proxy("http", "p", 1, "u", Secret("canary-x")))


def test_jaas_text_and_assertion_key_are_shown_nowhere(tmp_path: Path) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="canary-jaas";'
    properties = {
        "bootstrap.servers": "kafka-1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
    }
    look(
        "configuration",
        (text for _, text in canaries.shown_by_config(ProducerConfig.from_kafka_properties(properties))),
    )
    path = tmp_path / "key.pem"
    path.write_text("canary-key", "ascii")
    signer = JwtBearer("https://localhost/token", private_key_file=path, issuer="me", subject="me", audience="it")
    look("provider", iter((repr(signer), json.dumps(signer, default=str))))


def test_the_watch_finds_what_is_shown() -> None:
    """The plugin that looks after every test is not blind."""
    watch = canaries.Watch()
    watch.look_at("a text", "something with canary-1 in it")
    watch.look_at("a token", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.")
    watch.look_at("a key", OTHER.issue().key)
    watch.look_at("nothing", "nothing")
    assert [each.partition(" holds")[0] for each in watch.found] == ["a text", "a token", "a key"]
