"""Our producer authenticates on real brokers with Kerberos tickets."""

import ast
import asyncio
import contextlib
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from aioproducer import ConfigurationError, Producer, ProducerConfig
from aioproducer.compat import AIOKafkaProducer
from aioproducer.errors import TicketError
from aioproducer.integrations._aiokafka_security import aiokafka_security, check_readable
from aioproducer.testing.kafka import KafkaCluster, Kdc
from tests.secured.diagnosed import names, steps_of
from tests.secured.kerberos import (
    LISTENERS,
    WITHOUT_KEYTAB,
    config_of,
    deliver,
    java_text,
    kerberos_options,
    kerberos_producer,
)

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("listener", LISTENERS)
async def test_record_is_delivered_with_a_keytab(kerberos_kafka: KafkaCluster, listener: str) -> None:
    async with kerberos_producer(kerberos_options(kerberos_kafka, listener=listener)) as producer:
        result = await producer.send("kerberos", b"value")

    assert result.offset >= 0
    assert producer.statistics().authentications >= 1


async def test_record_is_delivered_with_a_ticket_cache(
    kerberos_kafka: KafkaCluster, kdc: Kdc, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.kinit("alice", tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")

    await deliver(kerberos_options(kerberos_kafka, WITHOUT_KEYTAB))


async def test_canonical_name_is_that_of_the_ticket(kerberos_431: KafkaCluster, kdc: Kdc) -> None:
    assert kdc is not None
    by_address = {"bootstrap_servers": kerberos_431.secured_servers("SASL_PLAINTEXT").replace("localhost", "127.0.0.1")}
    with pytest.raises(TicketError, match=r"does not know kafka/127\.0\.0\.1"):
        await deliver(kerberos_options(kerberos_431, by_address))

    canonical = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
    await deliver(kerberos_options(kerberos_431, by_address | canonical))


async def test_file_of_a_java_client_is_taken_as_it_is(kerberos_kafka: KafkaCluster, tmp_path: Path) -> None:
    properties = kerberos_kafka.client_properties("SASL_SSL", "GSSAPI")
    del properties["sasl.mechanism"]  # GSSAPI is Java's default
    properties["sasl.kerberos.kinit.cmd"] = "/usr/bin/kinit"
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
    async with Producer(ProducerConfig.from_properties_file(file)) as producer:
        result = await producer.send("kerberos", b"value")

    assert result.offset >= 0


async def test_commands_take_the_file_of_a_java_client(kerberos_431: KafkaCluster, kdc: Kdc, tmp_path: Path) -> None:
    assert kdc is not None
    file = tmp_path / "client.properties"
    properties = kerberos_431.client_properties("SASL_PLAINTEXT", "GSSAPI")
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
    command = [sys.executable, "-m", "aioproducer", "diagnose", "--config", str(file), "--timeout", "30"]
    program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    printed, _ = await program.communicate()

    assert program.returncode == 0, printed
    assert b"GSSAPI as alice@EXAMPLE.TEST" in printed


async def test_ticket_cache_comes_before_the_keytab_in_a_jaas_text(
    kerberos_kafka: KafkaCluster, kdc: Kdc, tmp_path: Path
) -> None:
    """Without a ticket in the cache, the keytab is used, as in Java."""
    text = java_text(
        keytab=kdc.keytab("alice"), useTicketCache="true", ticketCache=str(tmp_path / "none"), serviceName="kafka"
    )
    of_text = {"sasl_jaas_config": text, "sasl_kerberos_service_name": None}
    await deliver(kerberos_options(kerberos_kafka, {**WITHOUT_KEYTAB, **of_text}))


async def test_diagnose_shows_the_ticket_or_why_there_is_none(kerberos_431: KafkaCluster, kdc: Kdc) -> None:
    assert kdc is not None
    right = await steps_of(kerberos_options(kerberos_431))
    wrong = await steps_of(kerberos_options(kerberos_431, WITHOUT_KEYTAB))

    assert names(right) == "tcp versions mechanisms ticket login metadata"
    assert names(wrong) == "tcp versions mechanisms ticket!"
    texts = {step.name: step.text for step in right}
    assert texts["ticket"].startswith("alice@EXAMPLE.TEST, ")
    assert texts["ticket"].endswith(" min left, for kafka/localhost")
    assert texts["login"] == "GSSAPI as alice@EXAMPLE.TEST"
    assert "run kinit, or set sasl_kerberos_keytab" in wrong[-1].text


async def test_aiokafkas_arguments_take_the_ticket_cache(
    kerberos_431: KafkaCluster, kdc: Kdc, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.kinit("alice", tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    producer = AIOKafkaProducer(
        bootstrap_servers=kerberos_431.secured_servers("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
    )
    async with producer:
        assert (await producer.send_and_wait("kerberos", b"value")).offset >= 0


async def test_commands_that_read_take_the_ticket_cache_too(
    kerberos_431: KafkaCluster, kdc: Kdc, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.kinit("alice", tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    config = config_of(kerberos_options(kerberos_431, WITHOUT_KEYTAB))
    check_readable(config)
    consumer = AIOKafkaConsumer(bootstrap_servers=list(config.bootstrap_servers), **await aiokafka_security(config))
    await consumer.start()
    topics = await consumer.topics()
    await consumer.stop()

    assert isinstance(topics, set)


async def test_commands_that_read_refuse_a_keytab(kerberos_431: KafkaCluster) -> None:
    with pytest.raises(ConfigurationError, match="run kinit, and leave out sasl_kerberos_keytab"):
        await aiokafka_security(config_of(kerberos_options(kerberos_431)))


PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "connect_to_a_secured_cluster.md"
OF_FILE = """
async with Producer(ProducerConfig.from_properties_file(path)) as producer:
    await producer.send_and_wait("payments", b"paid")
"""
BLOCK = re.compile(r"^```(python|properties)\n(.*?)^```", re.DOTALL | re.MULTILINE)


async def test_blocks_of_the_documentation_run(
    kerberos_431: KafkaCluster, kdc: Kdc, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = kdc.add("billing")
    kdc.kinit("billing", tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    here = {
        "kafka-1.example.com:9093": kerberos_431.secured_servers("SASL_SSL"),
        "/etc/security/billing.keytab": str(keytab),
        "EXAMPLE.COM": kdc.realm,
    }
    truststore = kerberos_431.client_options("SASL_SSL", "GSSAPI")["ssl_truststore_location"]
    blocks = [(kind, text) for kind, text in BLOCK.findall(PAGE.read_text("utf-8")) if re.search("GSSAPI|Krb5", text)]
    for kind, block in blocks:
        text = functools.reduce(lambda text, pair: text.replace(*pair), here.items(), block)
        if kind == "properties":
            (tmp_path / "client.properties").write_text(f"{text}ssl.truststore.location={truststore}\n", "utf-8")
            text = OF_FILE
        else:
            text = text.replace('"SASL_SSL",', f'"SASL_SSL", ssl_truststore_location={truststore!r},')
        code = compile(text, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        names = {"Producer": Producer, "ProducerConfig": ProducerConfig, "path": tmp_path / "client.properties"}
        await eval(code, names)

    assert len(blocks) == 3


@pytest.mark.timing
async def test_sessions_are_renewed_on_the_same_connection(kerberos_431: KafkaCluster, kdc: Kdc) -> None:
    """The tickets end before each session does, so that each renewal fetches one from the keytab."""
    keytab = kdc.add("olivia", max_life="2s")
    brief = {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": "olivia"}
    async with kerberos_producer(kerberos_options(kerberos_431, brief)) as producer:
        await producer.send("kerberos", b"first")
        before = producer.statistics()
        while producer.statistics().reauthentications < 2:
            await producer.send("kerberos", b"value")
            await asyncio.sleep(0.005)
        after = producer.statistics()

    assert after.connections_created == before.connections_created
    assert after.records_retried == before.records_retried


async def rotate(kdc: Kdc, cache: Path) -> None:
    """Restart the KDC, and replace the ticket cache and the keytab."""
    await asyncio.sleep(1)
    kdc.kill()
    await asyncio.sleep(3)
    kdc.restart()
    kdc.kinit("carol", cache)
    kdc.keytab("dave").unlink()
    kdc.write_keytab("dave", kdc.keytab("dave"), new_key=True)


class Rotation:
    """What goes on while a load runs: at least two sessions end, and everything is replaced."""

    def __init__(self, kdc: Kdc, cache: Path) -> None:
        self.task = asyncio.create_task(rotate(kdc, cache))

    def goes_on(self, producer: Producer) -> bool:
        return not self.task.done() or producer.statistics().reauthentications < 2


async def check_records(producer: Producer, topic: str, rotation: Rotation) -> None:
    """Send records all the time, sixty at most in flight: none is lost, doubled or out of order."""
    deliveries = [await producer.enqueue(topic, b"first", partition=0)]
    while rotation.goes_on(producer):
        if len(deliveries) >= 60:
            await deliveries[-60]
        deliveries += [await producer.enqueue(topic, b"x" * 100, partition=0) for _ in range(20)]
        await asyncio.sleep(0.01)
    offsets = [(await delivery).offset for delivery in deliveries]

    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


async def check_transactions(producer: Producer, rotation: Rotation) -> None:
    """Commit one transaction after the other: none is aborted."""
    while rotation.goes_on(producer):
        async with producer.transaction() as txn:
            await txn.send("load-transactions", b"value")
    after = producer.statistics()

    assert (after.transactions_aborted, after.records_failed) == (0, 0)


async def test_nothing_is_lost_while_kdc_and_tickets_change(
    kerberos_391: KafkaCluster, kerberos_431: KafkaCluster, *, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "tickets"
    kdc.add("carol")
    kdc.kinit("carol", cache)
    kdc.add("dave")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    dave: dict[str, object] = {"sasl_kerberos_keytab": kdc.keytab("dave"), "sasl_kerberos_principal": "dave"}
    plain, transactional = list[tuple[Producer, str]](), list[Producer]()
    for kafka in (kerberos_391, kerberos_431):
        plain += [
            (kerberos_producer(kerberos_options(kafka, WITHOUT_KEYTAB)), "load-cache"),
            (kerberos_producer(kerberos_options(kafka, dave)), "load-keytab"),
        ]
        transactional.append(kerberos_producer(kerberos_options(kafka), transactional_id="kerberos"))
    async with contextlib.AsyncExitStack() as stack:
        for producer in (*(producer for producer, _ in plain), *transactional):
            await stack.enter_async_context(producer)
        for producer, topic in plain:
            await producer.send(topic, b"first", partition=0)
        rotation = Rotation(kdc, cache)
        async with asyncio.TaskGroup() as tasks:
            for producer, topic in plain:
                tasks.create_task(check_records(producer, topic, rotation))
            for producer in transactional:
                tasks.create_task(check_transactions(producer, rotation))
