"""Commands on secured clusters: those that send and read by a `client.properties`, and the steps of `diagnose`."""

import os
import re
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.cli.broker_check import BrokerCheck, Step
from aioproducer.cluster import Node
from aioproducer.config import ProducerConfig
from aioproducer.testing import ClusterSecurity, FakeCluster
from aioproducer.testing.kafka import KafkaCluster
from tests.cli.commands import run
from tests.fakes.wrong_servers import dead_port
from tests.secured.ways import Place

PLACES = [("fake", "4.4.0"), pytest.param(("real", "4.4.0"), marks=pytest.mark.kafka)]


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("way", [("SASL_SSL", "SCRAM-SHA-512"), ("MTLS", "")], ids=["scram", "mtls"])
@pytest.mark.parametrize("place", PLACES, indirect=True, ids=["fake", "real"])
async def test_commands_send_and_read_by_a_file(place: Place, way: tuple[str, str], tmp_path: Path) -> None:
    topic = f"commands-{way[0].lower()}"
    path, lines, table = tmp_path / "client.properties", tmp_path / "lines", tmp_path / "rows.parquet"
    path.write_text("".join(f"{name}={value}\n" for name, value in place.client_properties(*way).items()), "utf-8")
    lines.write_text("a\nb\n", "utf-8")
    pq.write_table(pa.table({"value": ["c", "d"]}), table)
    config = ("--config", str(path))
    produced = await run("produce", topic, str(lines), "-X", "linger.ms=0", *config)
    loaded = await run("load", str(table), "--topic", topic, "--value", "value", *config)
    tailed = await run("tail", topic, "--from-beginning", "-n", "4", "--format", "value", *config)
    listed = await run("txn", "list", *config)

    assert (produced.code, re.sub(r" in .*", "", produced.errors[-1])) == (0, f"2 records delivered to {topic}")
    assert (loaded.code, re.sub(r" in .*", "", loaded.errors[-1])) == (0, f"2 records delivered to {topic}")
    assert (tailed.code, sorted(tailed.output.splitlines())) == (0, ["a", "b", "c", "d"])
    assert listed.code == 0
    assert isinstance(place, KafkaCluster) or listed.output == "no transactions\n"


PROVIDER = """
from aioproducer.testing import unsecured_token

class Tokens:
    async def token(self):
        return unsecured_token("alice")
"""


def tokens_file(cluster: FakeCluster, folder: Path) -> str:
    """A `client.properties` for OAUTHBEARER, which names no provider."""
    security = cluster.client_options("SASL_SSL", "OAUTHBEARER")
    path = folder / "client.properties"
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in security.items()), "utf-8")
    return str(path)


@pytest.mark.slow
@pytest.mark.timing
async def test_commands_authenticate_with_a_named_provider(tmp_path: Path) -> None:
    (tmp_path / "our_tokens.py").write_text(PROVIDER, "utf-8")
    (tmp_path / "lines").write_text("a\nb\n", "utf-8")
    pq.write_table(pa.table({"value": ["c", "d"]}), tmp_path / "rows.parquet")
    found = {"environment": {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}}
    async with FakeCluster(1, topics={"t": 1}, security=ClusterSecurity()) as cluster:
        options = ("--config", tokens_file(cluster, tmp_path), "--token-provider", "our_tokens:Tokens")
        load = ("load", str(tmp_path / "rows.parquet"), "--topic", "t", "--value", "value", *options)
        diagnosed = await run("diagnose", *options, **found)
        produced = await run("produce", "t", str(tmp_path / "lines"), *options, **found)
        transacted = await run("produce", "t", str(tmp_path / "lines"), "--transactional", *options, **found)
        loaded = await run(*load, **found)
        decided = await run(*load, "--exactly-once", "--sink", "s", **found)
        tailed = await run("tail", "t", "--from-beginning", "-n", "8", "--format", "value", *options, **found)
        listed = await run("txn", "list", "--sink", "s", *options, **found)
        resolved = await run("txn", "resolve", "--sink", "s", *options, **found)

    assert (diagnosed.code, "login      ok     OAUTHBEARER" in diagnosed.output) == (0, True), diagnosed.output
    ended = (produced, transacted, loaded, decided, tailed, listed, resolved)
    assert [each.code for each in ended] == [0] * len(ended), ended
    assert sorted(tailed.output.splitlines()) == sorted("aabbccdd")


@pytest.mark.slow
async def test_diagnose_explains_a_provider_that_gives_no_token(tmp_path: Path) -> None:
    async with FakeCluster(1, security=ClusterSecurity()) as cluster, dead_port() as dead:
        provider = f"ClientCredentials url=http://{dead}/token client_id=a client_secret=env:CLIENT_SECRET"
        options = ("--config", tokens_file(cluster, tmp_path), "--token-provider", provider)
        diagnosed = await run("diagnose", *options, environment={"CLIENT_SECRET": "canary"})

    assert diagnosed.code == 1
    words = " ".join(diagnosed.output.split())
    assert f"the token endpoint http://{dead}/token cannot be asked: Connection refused" in words
    assert "canary" not in words


async def steps_of(options: dict[str, object]) -> list[Step]:
    config = ProducerConfig(**cast("Any", options))
    host, port = config.bootstrap[0]
    return [step async for step in BrokerCheck(config, Node(-1, host, port), 10.0).steps()]


def names(steps: list[Step]) -> str:
    return " ".join(step.name if step.is_ok else f"{step.name}!" for step in steps).removeprefix("name ")


@pytest.mark.kafka
async def test_right_options_pass_all_steps(secured_kafka: KafkaCluster) -> None:
    steps = await steps_of(secured_kafka.client_options("SASL_SSL", "SCRAM-SHA-512"))

    assert names(steps) == "tcp tls versions mechanisms login metadata"
    texts = {step.name: step.text for step in steps}
    assert texts["tls"].startswith("TLSv1.3, ")
    assert "days left" in texts["tls"]
    assert "SCRAM-SHA-512" in texts["mechanisms"]
    assert texts["login"].startswith("SCRAM-SHA-512 as ")


@pytest.mark.kafka
async def test_wrong_password_fails_at_the_login(secured_kafka: KafkaCluster) -> None:
    steps = await steps_of(secured_kafka.client_options("SASL_SSL", "PLAIN") | {"sasl_password": "canary-wrong"})

    assert names(steps) == "tcp tls versions mechanisms login!"
    assert "sasl_password" in steps[-1].text
    assert "canary-wrong" not in str(steps)


@pytest.mark.kafka
async def test_unknown_ca_fails_at_tls(secured_kafka: KafkaCluster) -> None:
    options = secured_kafka.client_options("SSL", "")
    without = {name: value for name, value in options.items() if "truststore" not in name}
    steps = await steps_of(without)

    assert names(steps) == "tcp tls!"
    assert "ssl_truststore_location" in steps[-1].text


@pytest.mark.kafka
async def test_plaintext_to_tls_and_no_sasl_to_sasl_are_told_apart(secured_kafka: KafkaCluster) -> None:
    to_tls = secured_kafka.client_options("SSL", "")
    to_sasl = secured_kafka.client_options("SASL_PLAINTEXT", "PLAIN")
    of_tls = await steps_of({"bootstrap_servers": to_tls["bootstrap_servers"]})
    of_sasl = await steps_of({"bootstrap_servers": to_sasl["bootstrap_servers"]})

    assert (names(of_tls), names(of_sasl)) == ("tcp versions!", "tcp versions metadata!")
    assert "TLS" in of_tls[-1].text
    assert "security_protocol=SASL_PLAINTEXT, and sasl_mechanism to one of " in of_sasl[-1].remedy
