"""Kerberos tickets on real brokers: each source, set-ups that are wrong, load while all is replaced, and clocks."""

import ast
import asyncio
import contextlib
import functools
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from aiokafka import AIOKafkaConsumer

from aioproducer import ConfigurationError, Producer, ProducerConfig
from aioproducer.compat import AIOKafkaProducer
from aioproducer.errors import KafkaError, MetadataTimeoutError, TicketError
from aioproducer.integrations._aiokafka_security import aiokafka_security, check_readable
from aioproducer.testing.cluster_security import BROKER_PRINCIPAL
from aioproducer.testing.kafka import KafkaCluster, Kdc
from tests.preloaded import compiled
from tests.secured.kerberos import (
    LISTENERS,
    WITHOUT_KEYTAB,
    config_of,
    deliver,
    java_text,
    kerberos_options,
    kerberos_producer,
)
from tests.secured.test_commands import names, steps_of
from tests.secured.ways import VERSIONS

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("kerberos_kafka", VERSIONS, indirect=True)
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


async def test_canonical_name_is_that_of_the_ticket(kerberos_440: KafkaCluster, kdc: Kdc) -> None:
    assert kdc is not None
    by_address = {"bootstrap_servers": kerberos_440.secured_servers("SASL_PLAINTEXT").replace("localhost", "127.0.0.1")}
    with pytest.raises(TicketError, match=r"does not know kafka/127\.0\.0\.1"):
        await deliver(kerberos_options(kerberos_440, by_address))

    canonical = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
    await deliver(kerberos_options(kerberos_440, by_address | canonical))


async def test_file_of_a_java_client_is_taken_as_it_is(kerberos_kafka: KafkaCluster, tmp_path: Path) -> None:
    properties = kerberos_kafka.client_properties("SASL_SSL", "GSSAPI")
    del properties["sasl.mechanism"]  # GSSAPI is Java's default
    properties["sasl.kerberos.kinit.cmd"] = "/usr/bin/kinit"
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
    async with Producer(ProducerConfig.from_properties_file(file)) as producer:
        result = await producer.send("kerberos", b"value")

    assert result.offset >= 0


async def test_commands_take_the_file_of_a_java_client(kerberos_440: KafkaCluster, kdc: Kdc, tmp_path: Path) -> None:
    assert kdc is not None
    file = tmp_path / "client.properties"
    properties = kerberos_440.client_properties("SASL_PLAINTEXT", "GSSAPI")
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


async def test_diagnose_shows_the_ticket_or_why_there_is_none(kerberos_440: KafkaCluster, kdc: Kdc) -> None:
    assert kdc is not None
    right = await steps_of(kerberos_options(kerberos_440))
    wrong = await steps_of(kerberos_options(kerberos_440, WITHOUT_KEYTAB))

    assert names(right) == "tcp versions mechanisms ticket login metadata"
    assert names(wrong) == "tcp versions mechanisms ticket!"
    texts = {step.name: step.text for step in right}
    assert texts["ticket"].startswith("alice@EXAMPLE.TEST, ")
    assert texts["ticket"].endswith(" min left, for kafka/localhost")
    assert texts["login"] == "GSSAPI as alice@EXAMPLE.TEST"
    assert "run kinit, or set sasl_kerberos_keytab" in wrong[-1].text


async def test_aiokafkas_arguments_take_the_ticket_cache(
    kerberos_440: KafkaCluster, kdc: Kdc, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.kinit("alice", tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    producer = AIOKafkaProducer(
        bootstrap_servers=kerberos_440.secured_servers("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
    )
    async with producer:
        assert (await producer.send_and_wait("kerberos", b"value")).offset >= 0


async def test_commands_that_read_take_the_ticket_cache_too(
    kerberos_440: KafkaCluster, kdc: Kdc, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.kinit("alice", tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    config = config_of(kerberos_options(kerberos_440, WITHOUT_KEYTAB))
    check_readable(config)
    consumer = AIOKafkaConsumer(bootstrap_servers=list(config.bootstrap_servers), **await aiokafka_security(config))
    await consumer.start()
    topics = await consumer.topics()
    await consumer.stop()

    assert isinstance(topics, set)


async def test_commands_that_read_refuse_a_keytab(kerberos_440: KafkaCluster) -> None:
    with pytest.raises(ConfigurationError, match="run kinit, and leave out sasl_kerberos_keytab"):
        await aiokafka_security(config_of(kerberos_options(kerberos_440)))


PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "connect_to_a_secured_cluster.md"
OF_FILE = """
async with Producer(ProducerConfig.from_properties_file(path)) as producer:
    await producer.send_and_wait("payments", b"paid")
"""
BLOCK = re.compile(r"^```(python|properties)\n(.*?)^```", re.DOTALL | re.MULTILINE)


async def test_blocks_of_the_documentation_run(
    kerberos_440: KafkaCluster, kdc: Kdc, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = kdc.add("billing")
    kdc.kinit("billing", tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    here = {
        "kafka-1.example.com:9093": kerberos_440.secured_servers("SASL_SSL"),
        "/etc/security/billing.keytab": str(keytab),
        "EXAMPLE.COM": kdc.realm,
    }
    truststore = kerberos_440.client_options("SASL_SSL", "GSSAPI")["ssl_truststore_location"]
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
async def test_sessions_are_renewed_on_the_same_connection(kerberos_440: KafkaCluster, kdc: Kdc) -> None:
    """The tickets end before each session does, so that each renewal fetches one from the keytab."""
    keytab = kdc.add("olivia", max_life="2s")
    brief = {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": "olivia"}
    async with kerberos_producer(kerberos_options(kerberos_440, brief)) as producer:
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
    kerberos_391: KafkaCluster, kerberos_440: KafkaCluster, *, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "tickets"
    kdc.add("carol")
    kdc.kinit("carol", cache)
    kdc.add("dave")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    dave: dict[str, object] = {"sasl_kerberos_keytab": kdc.keytab("dave"), "sasl_kerberos_principal": "dave"}
    plain, transactional = list[tuple[Producer, str]](), list[Producer]()
    for kafka in (kerberos_391, kerberos_440):
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


Options: TypeAlias = Mapping[str, object]
Wrong: TypeAlias = Callable[[Kdc, Path], contextlib.AbstractContextManager[Options]]


class Case(NamedTuple):
    wrong: Wrong
    words: tuple[str, ...]
    may_pass: bool = False
    """Tried until `max_block_ms`; what is refused ends the start at once."""


def changed(**options: object) -> Wrong:
    return lambda _kdc, _folder: contextlib.nullcontext(options)


def with_keytab(write: Callable[[Path], object], **options: object) -> Wrong:
    def make(_kdc: Kdc, folder: Path) -> contextlib.AbstractContextManager[Options]:
        path = folder / "bad.keytab"
        write(path)
        return contextlib.nullcontext({"sasl_kerberos_keytab": path, **options})

    return make


def of_cache(path: Path) -> Options:
    text = java_text(useTicketCache="true", ticketCache=str(path))
    return {**WITHOUT_KEYTAB, "sasl_jaas_config": text}


@contextlib.contextmanager
def expired(kdc: Kdc, folder: Path) -> Iterator[Options]:
    kdc.kinit("alice", folder / "tickets", life="1s")
    time.sleep(1.1)  # for the end of the ticket
    yield of_cache(folder / "tickets")


@contextlib.contextmanager
def of_another(kdc: Kdc, folder: Path) -> Iterator[Options]:
    kdc.kinit("alice", folder / "tickets")
    yield {**of_cache(folder / "tickets"), "sasl_kerberos_principal": "erin@EXAMPLE.TEST"}


@contextlib.contextmanager
def damaged_cache(_kdc: Kdc, folder: Path) -> Iterator[Options]:
    (folder / "tickets").write_text("no ticket", "ascii")
    yield of_cache(folder / "tickets")


@contextlib.contextmanager
def kdc_down(kdc: Kdc, _folder: Path) -> Iterator[Options]:
    kdc.kill()
    try:
        yield {}
    finally:
        kdc.restart()


@contextlib.contextmanager
def deleted(kdc: Kdc, _folder: Path) -> Iterator[Options]:
    keytab = kdc.add("frank")
    kdc.delete("frank")
    yield {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": "frank"}


@contextlib.contextmanager
def old_key(kdc: Kdc, folder: Path) -> Iterator[Options]:
    name = f"grace-{folder.name}"
    keytab = kdc.add(name)
    kdc.write_keytab(name, folder / "new.keytab", new_key=True)
    yield {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": name}


@contextlib.contextmanager
def key_of_broker_changed(kdc: Kdc, folder: Path) -> Iterator[Options]:
    """The broker has the old key until its keytab is written again."""
    keytab = kdc.write_keytab(BROKER_PRINCIPAL, folder / "broker.keytab", new_key=True)
    try:
        yield {}
    finally:
        keytab.replace(kdc.keytab(BROKER_PRINCIPAL))


@contextlib.contextmanager
def without_realm(_kdc: Kdc, folder: Path) -> Iterator[Options]:
    (folder / "krb5.conf").write_text("[libdefaults]\n dns_lookup_kdc = false\n", "ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(folder / "krb5.conf"))
        yield {}


@contextlib.contextmanager
def without_configuration(_kdc: Kdc, folder: Path) -> Iterator[Options]:
    gc.collect()  # credentials cannot be released while the file is damaged
    (folder / "krb5.conf").write_text("[libdefaults\n", "ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(folder / "krb5.conf"))
        yield {}


CASES: Mapping[str, Case] = {
    "no ticket": Case(
        lambda _kdc, _folder: contextlib.nullcontext(WITHOUT_KEYTAB), ("no ticket", "kinit", "sasl_kerberos_keytab")
    ),
    "expired ticket": Case(expired, ("expired", "kinit", "sasl_kerberos_keytab")),
    "ticket of another principal": Case(of_another, ("another principal", "erin@EXAMPLE.TEST", "klist")),
    "damaged ticket cache": Case(damaged_cache, ("ticket cache", "KRB5CCNAME")),
    "wrong service": Case(
        changed(sasl_kerberos_service_name="kafka2"), ("kafka2/localhost", "sasl_kerberos_service_name")
    ),
    "KDC down": Case(kdc_down, ("no KDC of the realm answers", "krb5.conf"), may_pass=True),
    "no keytab": Case(changed(sasl_kerberos_keytab="/nowhere/k"), ("'/nowhere/k'", "No such file")),
    "keytab is a folder": Case(changed(sasl_kerberos_keytab="/"), ("sasl_kerberos_keytab='/'", "directory")),
    "keytab is empty": Case(with_keytab(Path.touch), ("sasl_kerberos_keytab is not a keytab",)),
    "keytab is none": Case(
        with_keytab(lambda path: path.write_text("keytab", "ascii")), ("sasl_kerberos_keytab is not a keytab",)
    ),
    "keytab without the principal": Case(
        changed(sasl_kerberos_principal="heidi"), ("sasl_kerberos_keytab has no key for heidi", "klist -k")
    ),
    "malformed principal": Case(changed(sasl_kerberos_principal="a@b@c"), ("a@b@c is not the name of a principal",)),
    "unknown principal": Case(deleted, ("does not know frank", "sasl_kerberos_principal")),
    "old key": Case(old_key, ("another key for grace", "sasl_kerberos_keytab")),
    "realm unknown": Case(without_realm, ("realm", "krb5.conf")),
    "krb5.conf damaged": Case(without_configuration, ("krb5.conf cannot be read", "KRB5_CONFIG")),
    "broker has another key": Case(key_of_broker_changed, ("the broker refused the ticket of alice", "keytab")),
}


@pytest.mark.parametrize("name", CASES)
async def test_wrong_set_up_is_the_error_of_start(
    kerberos_kafka: KafkaCluster, *, kdc: Kdc, name: str, tmp_path: Path
) -> None:
    case = CASES[name]
    with case.wrong(kdc, tmp_path) as changes:
        limit_ms = 3_000 if case.may_pass else 30_000
        producer = kerberos_producer(kerberos_options(kerberos_kafka, changes), max_block_ms=limit_ms)
        with pytest.raises(MetadataTimeoutError if case.may_pass else TicketError) as caught:
            await producer.start()
        await producer.close()

    error = caught.value.last_broker_error if case.may_pass else caught.value
    assert isinstance(error, TicketError)
    assert [word for word in case.words if word not in str(caught.value)] == [], str(caught.value)
    await deliver(kerberos_options(kerberos_kafka))


async def test_kdc_that_hangs_ends_at_the_set_up_time_out(kerberos_440: KafkaCluster, kdc: Kdc) -> None:
    producer = kerberos_producer(
        kerberos_options(kerberos_440), max_block_ms=1_000, socket_connection_setup_timeout_ms=300
    )
    kdc.pause()
    try:
        with pytest.raises(KafkaError) as caught:
            await producer.start()
        await producer.close()
    finally:
        kdc.resume()

    assert "no KDC of the realm has given a ticket" in str(caught.value)
    await deliver(kerberos_options(kerberos_440))


async def test_failed_starts_leave_no_task_and_no_thread(kerberos_440: KafkaCluster, kdc: Kdc) -> None:
    assert kdc is not None
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    for _ in range(20):
        producer = kerberos_producer(kerberos_options(kerberos_440, WITHOUT_KEYTAB))
        with pytest.raises(TicketError):
            await producer.start()
        await producer.close()
        assert asyncio.all_tasks() == tasks
    kdc.pause()
    try:
        for _ in range(5):  # cancelled while a ticket is asked for; threads end with the library's own time-out
            producer = kerberos_producer(kerberos_options(kerberos_440))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.start(), 0.2)
            await producer.close()
            assert asyncio.all_tasks() == tasks
    finally:
        kdc.resume()
    for each in set(threading.enumerate()) - threads:
        await asyncio.to_thread(each.join, 30)
    assert {each for each in threading.enumerate() if "sasl" in each.name} <= threads


HERE = Path(__file__).parent
ROOT = HERE.parents[1]
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a library is preloaded as on Linux")
PROGRAM = """
import asyncio, json, sys
from aioproducer import Producer

async def main():
    async with Producer(**json.loads(sys.argv[1])) as producer:
        await producer.send_and_wait("clocks", b"value")

asyncio.run(main())
"""


@pytest.fixture
def ahead(tmp_path: Path) -> str:
    """A library that sets the clock of a process an hour ahead."""
    return str(compiled(HERE / "shifted_clock.c", tmp_path))


def sent(kafka: KafkaCluster, **environment: str) -> str:
    """Send a record from a process of its own; return the last line of its error, or nothing."""
    options = json.dumps({name: str(value) for name, value in kerberos_options(kafka).items()})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, options],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip().rpartition("\n")[2]


@on_linux
def test_clock_of_the_client_is_corrected_by_the_kdcs(kerberos_kafka: KafkaCluster, ahead: str) -> None:
    assert sent(kerberos_kafka, LD_PRELOAD=ahead) == ""


@on_linux
def test_clock_that_is_not_corrected_is_named(
    kerberos_kafka: KafkaCluster, kdc: Kdc, ahead: str, *, tmp_path: Path
) -> None:
    config = tmp_path / "krb5.conf"
    text = Path(kdc.environment["KRB5_CONFIG"]).read_text("utf-8")
    config.write_text(text.replace("[libdefaults]", "[libdefaults]\n    kdc_timesync = 0"), "utf-8")

    said = sent(kerberos_kafka, LD_PRELOAD=ahead, KRB5_CONFIG=str(config))

    assert "TicketError" in said
    assert "the clocks of this machine, the KDC and the broker differ by more than five minutes" in said
    assert sent(kerberos_kafka, KRB5_CONFIG=str(config)) == ""
