"""Wrong set-ups of Kerberos on real brokers: the error of `start`, and a right set-up works right after."""

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from aioproducer import AuthenticationError
from aioproducer.errors import KafkaError, TicketError
from aioproducer.testing.kafka import KafkaCluster, Kdc
from aioproducer.testing.kafka.kdc import BROKER_PRINCIPAL
from tests.secured.kerberos import WITHOUT_KEYTAB, deliver, java_text, kerberos_options, kerberos_producer

pytestmark = pytest.mark.kafka

Options: TypeAlias = Mapping[str, object]
Wrong: TypeAlias = Callable[[Kdc, Path], contextlib.AbstractContextManager[Options]]


class Case(NamedTuple):
    wrong: Wrong
    words: tuple[str, ...]


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
    "KDC down": Case(kdc_down, ("no KDC of the realm answers", "krb5.conf")),
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
        producer = kerberos_producer(kerberos_options(kerberos_kafka, changes), max_block_ms=30_000)
        with pytest.raises(AuthenticationError) as caught:
            await producer.start()
        await producer.close()

    assert isinstance(caught.value, TicketError)
    assert [word for word in case.words if word not in str(caught.value)] == [], str(caught.value)
    await deliver(kerberos_options(kerberos_kafka))


async def test_kdc_that_hangs_ends_at_the_set_up_time_out(kerberos_431: KafkaCluster, kdc: Kdc) -> None:
    producer = kerberos_producer(
        kerberos_options(kerberos_431), max_block_ms=1_000, socket_connection_setup_timeout_ms=300
    )
    kdc.pause()
    try:
        with pytest.raises(KafkaError) as caught:
            await producer.start()
        await producer.close()
    finally:
        kdc.resume()

    assert "no KDC of the realm has given a ticket" in str(caught.value)
    await deliver(kerberos_options(kerberos_431))


async def test_failed_starts_leave_no_task_and_no_thread(kerberos_431: KafkaCluster, kdc: Kdc) -> None:
    assert kdc is not None
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    for _ in range(20):
        producer = kerberos_producer(kerberos_options(kerberos_431, WITHOUT_KEYTAB))
        with pytest.raises(TicketError):
            await producer.start()
        await producer.close()
        assert asyncio.all_tasks() == tasks
    kdc.pause()
    try:
        for _ in range(5):  # cancelled while a ticket is asked for; threads end with the library's own time-out
            producer = kerberos_producer(kerberos_options(kerberos_431))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.start(), 0.2)
            await producer.close()
            assert asyncio.all_tasks() == tasks
    finally:
        kdc.resume()
    for each in set(threading.enumerate()) - threads:
        await asyncio.to_thread(each.join, 30)
    assert {each for each in threading.enumerate() if "sasl" in each.name} <= threads
