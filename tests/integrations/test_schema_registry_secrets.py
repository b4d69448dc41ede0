"""Credentials for a schema registry: in its URL, in logs and errors, and as it says them back."""

import base64
import traceback
from collections.abc import AsyncIterator, Callable

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

from aioproducer.integrations.schema_registry import ConfluentRegistry, Schema, SchemaRegistryError
from tests.fakes.schema_registry import FakeSchemaRegistry


@pytest.fixture
async def registry() -> AsyncIterator[FakeSchemaRegistry]:
    async with FakeSchemaRegistry() as running:
        yield running


@pytest.mark.parametrize("form", [str, lambda text: base64.b64encode(f"alice:{text}".encode()).decode()[:-4]])
@pytest.mark.parametrize("is_given", [False, True])
async def test_credentials_that_a_registry_says_back_are_hidden(
    registry: FakeSchemaRegistry, form: Callable[[str], str], *, is_given: bool
) -> None:
    said = form("canary-7f3a")
    registry.fault = lambda: (401, {"error_code": 40101, "message": f"no such user: {said}."})
    configuration = {"url": registry.url, "basic.auth.user.info": "alice:canary-7f3a"}
    async with AsyncSchemaRegistryClient(configuration) as given:
        client = ConfluentRegistry(given if is_given else configuration)
        with pytest.raises(SchemaRegistryError) as caught:
            await client.schema(1)
        await client.close()

    assert "error 40101: no such user: <hidden>" in str(caught.value)
    causes = [caught.value.__cause__, caught.value.__context__]
    assert said not in f"{caught.value!r} {causes!r} {causes[0]} {causes[1]}"
    for frame, _ in traceback.walk_tb(caught.value.__traceback__):
        assert "test" in frame.f_code.co_filename or said not in repr(frame.f_locals)


async def test_token_that_a_registry_says_back_is_hidden(registry: FakeSchemaRegistry) -> None:
    registry.fault = lambda: (403, {"error_code": 40301, "message": "bad canary-token-1"})
    client = ConfluentRegistry(
        {
            "url": registry.url,
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": "canary-token-1",
            "bearer.auth.logical.cluster": "lsrc-1",
            "bearer.auth.identity.pool.id": "pool-1",
        }
    )
    with pytest.raises(SchemaRegistryError, match="error 40301: bad <hidden>"):
        await client.schema(1)
    await client.close()


async def test_password_of_a_url_is_sent_and_not_logged(
    registry: FakeSchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    url = registry.url.replace("http://", "http://svc:s3%20cret@")
    client = ConfluentRegistry(url)
    with caplog.at_level("INFO"):
        await client.schema_id("orders-value", Schema('"int"', "AVRO"), register=True, normalize=False)
    await client.close()

    assert registry.credentials == {"svc:s3 cret"}
    assert "HTTP Request" in caplog.text
    assert "s3" not in caplog.text


def test_registry_that_is_refused_does_not_show_its_password() -> None:
    with pytest.raises(ValueError, match="registry: url must be") as caught:
        ConfluentRegistry("user:s3cret@registry:8081")

    assert "s3cret" not in str(caught.value)
