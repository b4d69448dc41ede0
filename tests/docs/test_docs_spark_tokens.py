"""The options of "Kafka and Spark" for clouds with tokens write and read on the clusters that stand in for the clouds.

A task's producer and the reader's consumer get them, without Spark. The modules that the page names have the classes of
"Connect to a secured cluster", as they stand there.
"""

import asyncio
import contextlib
import importlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from aioproducer.errors import ConfigurationError
from aioproducer.integrations._aiokafka_security import aiokafka_security
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._record_parts import SinkColumns
from aioproducer.spark._source_options import SourceOptions, connection_config
from aioproducer.spark._task import TaskSender
from aioproducer.testing import CertificateAuthority
from tests.docs.code_blocks import CLOUDS, ROOT, code_blocks
from tests.docs.stand_ins import CONFLUENT, EVENT_HUBS, GOOGLE, MSK, PAGE_TOKEN, PASSWORD, stand_in
from tests.fakes.token_endpoint import granted, token_endpoint

PAGE = ROOT / "docs" / "how-to" / "spark.md"
CLASSES = ROOT / "docs" / "how-to" / "connect_to_a_secured_cluster.md"
CLOUD_OF = {"msk": MSK, "confluent": CONFLUENT, "entra": EVENT_HUBS, "google": GOOGLE}

pytestmark = pytest.mark.slow


def recipes() -> dict[str, dict[str, str]]:
    names: dict[str, dict[str, str]] = {}
    for block in code_blocks(PAGE, of_spark=True):
        if "kafka.sasl.token.provider" in block.code:
            exec(block.code, {}, names)
    return names


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CertificateAuthority]:
    """The CA is the system's, the page's module can be imported, and the clouds' credentials are there."""
    found = CertificateAuthority("a public CA")
    (tmp_path / "ca.pem").write_text(found.certificate, "ascii")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    for name in ("AWS_SECRET_ACCESS_KEY", "CLIENT_SECRET"):
        monkeypatch.setenv(name, PASSWORD)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", "billing@example.com")
    blocks = [block.code.partition("\n\n\nProducer(")[0] for block in code_blocks(CLASSES)]
    classes = [code for code in blocks if "class AzureTokens" in code or "class GoogleTokens" in code]
    assert len(classes) == 2
    module = "\n\n".join(["from aioproducer.security import Token", *classes])
    (tmp_path / "our_tokens.py").write_text(module, "utf-8")
    monkeypatch.syspath_prepend(CLOUDS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(importlib.import_module("azure.identity.aio").DefaultAzureCredential, "given", PAGE_TOKEN)
    yield found
    sys.modules.pop("our_tokens", None)


def test_page_has_a_recipe_for_each_cloud() -> None:
    assert set(recipes()) == set(CLOUD_OF)


@pytest.mark.parametrize("name", CLOUD_OF)
async def test_tasks_authenticate_with_the_provider_that_is_named(authority: CertificateAuthority, name: str) -> None:
    given = {**recipes()[name], "topic": "orders"}
    async with stand_in(CLOUD_OF[name], authority) as cluster:
        with identity_provider(given):
            place = cluster.secured_servers("SASL_SSL")
            given["kafka.address.map"] = f"{given['kafka.bootstrap.servers']}={place}"
            sender = TaskSender(SinkOptions.parse(given), SinkColumns(frozenset({"value"}), has_seconds=False))
            rows = pa.record_batch({"value": [b"a", b"b"]})
            counts, _ = await asyncio.to_thread(sender.send_all, iter([rows]), task=0)
        assert counts.rows == 2
        assert sorted(record.value or b"" for record in cluster.consumed("orders")) == [b"a", b"b"]
        assert "canary" not in repr(SinkOptions.parse(given))


@pytest.mark.parametrize("name", CLOUD_OF)
async def test_readers_authenticate_with_the_same_options(authority: CertificateAuthority, name: str) -> None:
    """Extensions of a token too; the name of the cloud is that of this machine, as aiokafka maps no addresses."""
    given = {**recipes()[name], "subscribe": "orders"}
    del given["kafka.bootstrap.servers"]
    given.pop("kafka.max.request.size", None)
    async with stand_in(CLOUD_OF[name], authority) as cluster:
        with identity_provider(given):
            given["kafka.bootstrap.servers"] = cluster.secured_servers("SASL_SSL")
            options = SourceOptions.parse(given, is_stream=False)
            security = await aiokafka_security(connection_config(options.kafka))
            consumer = AIOKafkaConsumer(bootstrap_servers=options.kafka["bootstrap.servers"], **security)
            await consumer.start()
            place = TopicPartition("orders", 0)
            assert await consumer.end_offsets([place]) == {place: 0}
            await consumer.stop()


@contextlib.contextmanager
def identity_provider(given: dict[str, str]) -> Iterator[None]:
    """Run the identity provider that an option names, and name its place instead."""
    with token_endpoint() as endpoint:
        endpoint.answer = granted(access_token=PAGE_TOKEN)
        option = given["kafka.sasl.token.provider"]
        given["kafka.sasl.token.provider"] = option.replace("https://idp.example.com/oauth2/token", endpoint.url)
        yield


@pytest.mark.parametrize(
    "provider, said",
    [
        ("no_such_module:Tokens secret=canary", "no_such_module cannot be imported"),
        ("MskIam", "missing a required argument: 'region'"),
        ("ClientCredentials url=https://h client_id=a client_secret=canary", "client_secret must be env:VARIABLE or"),
        ("software.amazon.msk.auth.iam.IAMClientCallbackHandler", "it is not like package.module:object"),
    ],
)
@pytest.mark.parametrize("is_read", [False, True])
def test_provider_that_cannot_be_had_is_refused_on_the_driver(
    provider: str,
    said: str,
    is_read: bool,  # noqa: FBT001  # a parameter
) -> None:
    """By the option's name, and without its arguments."""
    given = {**recipes()["msk"], "kafka.sasl.token.provider": provider}
    parse = partial(SourceOptions.parse, is_stream=False) if is_read else SinkOptions.parse
    with pytest.raises(ConfigurationError, match=r"^kafka\.sasl\.token\.provider: ") as caught:
        parse({**given, "subscribe" if is_read else "topic": "t"})
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)
