"""Producers that meet TLS servers at start: what cannot work is an error at once, which says what to change."""

import asyncio
import datetime as dt
import gc
import os
import ssl
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
import uvloop

from aioproducer import Producer
from aioproducer.errors import (
    ConfigurationError,
    KafkaError,
    MetadataTimeoutError,
    TlsRefusedError,
    TlsVerificationError,
)
from aioproducer.testing.certificates import DAY, Certificate, CertificateAuthority
from tests.fakes.tls_server import silent_tls_server

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
ResultT = TypeVar("ResultT")

ROOT = CertificateAuthority("root", rsa=True)
OTHER = CertificateAuthority("root", rsa=True)
BELOW = CertificateAuthority("below", issuer=ROOT, rsa=True)


def context_of(certificate: Certificate, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = folder / "server.pem"
    path.write_text(certificate.pem, encoding="utf-8")
    context.load_cert_chain(path)
    return context


def trusting(folder: Path, authority: CertificateAuthority = ROOT) -> dict[str, object]:
    path = folder / "ca.pem"
    path.write_text(authority.certificate, encoding="utf-8")
    return {"security_protocol": "SSL", "ssl_truststore_location": path}


async def failure_at_start(address: str, options: dict[str, object]) -> KafkaError:
    producer = Producer(address, **{"max_block_ms": 20_000, **options})  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    return caught.value


def in_loop(loop: str, run: Coroutine[object, object, ResultT]) -> ResultT:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(run)  # type: ignore[arg-type]


CERTIFICATES: dict[str, tuple[Callable[[], Certificate], str]] = {
    "another CA of the same name": (OTHER.issue, "is not known"),
    "another name": (
        lambda: ROOT.issue("broker.example", "10.0.0.1"),
        "is not for 'localhost'; it is for broker.example, 10.0.0.1",
    ),
    "expired": (lambda: ROOT.issue(begins=-2 * DAY, ends=-DAY), "has expired"),
    "not yet valid": (lambda: ROOT.issue(begins=DAY, ends=2 * DAY), "is not valid yet"),
    "for clients only": (lambda: ROOT.issue(usage=("client",)), "is not for servers"),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("case", CERTIFICATES)
def test_refused_certificate_of_a_broker_is_an_error_at_once(
    tmp_path: Path, case: str, *, version: str, loop: str
) -> None:
    make, text = CERTIFICATES[case]

    async def run() -> KafkaError:
        with silent_tls_server(context_of(make(), tmp_path)) as running:
            address = running.address
            return await failure_at_start(address, {**trusting(tmp_path), "ssl_enabled_protocols": [version]})

    error = in_loop(loop, run())
    assert isinstance(error, TlsVerificationError)
    assert text in str(error)
    assert "broker" in str(error)
    assert "localhost:" in str(error)


async def test_missing_intermediate_is_named(tmp_path: Path) -> None:
    issued = BELOW.issue()
    end = "-----END CERTIFICATE-----\n"
    alone = Certificate(issued.chain.partition(end)[0] + end, issued.key)
    with silent_tls_server(context_of(alone, tmp_path)) as running:
        address = running.address
        error = await failure_at_start(address, trusting(tmp_path))
    assert isinstance(error, TlsVerificationError)
    assert "does not send an intermediate certificate" in str(error)
    # A trust store with the intermediate alone is enough: partial chains are on.
    with silent_tls_server(context_of(alone, tmp_path)) as running:
        address = running.address
        options = {**trusting(tmp_path, BELOW), "max_block_ms": 300}
        assert isinstance(await failure_at_start(address, options), MetadataTimeoutError)


async def test_address_that_the_certificate_does_not_have_is_named(tmp_path: Path) -> None:
    with silent_tls_server(context_of(ROOT.issue("localhost"), tmp_path)) as running:
        address = running.address
        error = await failure_at_start(address.replace("localhost", "127.0.0.1"), trusting(tmp_path))
    assert isinstance(error, TlsVerificationError)
    assert "is not for '127.0.0.1'" in str(error)
    with silent_tls_server(context_of(ROOT.issue("localhost"), tmp_path)) as running:
        address = running.address
        unchecked = {"ssl_endpoint_identification_algorithm": "", "max_block_ms": 300}
        error = await failure_at_start(address.replace("localhost", "127.0.0.1"), {**trusting(tmp_path), **unchecked})
    assert isinstance(error, MetadataTimeoutError)


async def test_server_of_tls_1_1_is_refused(tmp_path: Path) -> None:
    context = context_of(ROOT.issue(), tmp_path)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of old versions, which are the subject
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with silent_tls_server(context) as running:
        address = running.address
        error = await failure_at_start(address, trusting(tmp_path))
    assert isinstance(error, TlsRefusedError)
    assert "ssl_enabled_protocols" in str(error)


@pytest.mark.parametrize("loop", LOOPS)
def test_listener_without_tls_is_named_after_three_closes(tmp_path: Path, loop: str) -> None:
    """T10: nothing is sent in plaintext, whatever fails."""
    seen: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(3))
        writer.close()

    async def run() -> KafkaError:
        running = await asyncio.start_server(take, "127.0.0.1", 0)
        async with running:
            address = f"localhost:{running.sockets[0].getsockname()[1]}"
            return await failure_at_start(address, trusting(tmp_path))

    error = in_loop(loop, run())
    assert isinstance(error, TlsRefusedError)
    assert "the port of a listener without TLS" in str(error)
    assert 3 <= len(seen) <= 5  # another task of the producer may ask once more before the error arrives
    assert {first[:2] for first in seen} == {b"\x16\x03"}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("loop", LOOPS)
def test_refused_client_certificate_is_an_error_at_once(tmp_path: Path, version: str, *, loop: str) -> None:
    context = context_of(ROOT.issue(), tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=ROOT.certificate)
    cases: dict[str, tuple[Certificate | None, str]] = {
        "missing": (None, "wants a client certificate"),
        "of another CA": (OTHER.issue("client"), "it does not accept our certificate"),
        "expired": (ROOT.issue("client", begins=-2 * DAY, ends=-DAY), "ssl_keystore_location needs a new one"),
        "for servers only": (ROOT.issue("client", usage=("server",)), "it does not accept our certificate"),
    }

    async def run() -> list[tuple[str, KafkaError]]:
        failures = []
        with silent_tls_server(context) as running:
            address = running.address
            for name, (certificate, _) in cases.items():
                options = {**trusting(tmp_path), "ssl_enabled_protocols": [version]}
                if certificate is not None:
                    path = tmp_path / f"{name}.pem"
                    path.write_text(certificate.pem, encoding="utf-8")
                    options["ssl_keystore_location"] = path
                failures.append((name, await failure_at_start(address, options)))
        return failures

    for name, error in in_loop(loop, run()):
        assert isinstance(error, TlsRefusedError), (name, error)
        assert cases[name][1] in str(error), (name, str(error))


async def test_unreadable_store_is_an_error_before_any_connection(tmp_path: Path) -> None:
    options = {"security_protocol": "SSL", "ssl_truststore_location": tmp_path / "missing.pem"}
    error = await failure_at_start("127.0.0.1:1", options)
    assert isinstance(error, ConfigurationError)
    assert error.option == "ssl_truststore_location"
    assert "there is no such file" in str(error)


async def test_context_function_that_returns_none_is_named() -> None:
    error = await failure_at_start("127.0.0.1:1", {"security_protocol": "SSL", "ssl_context": lambda: None})
    assert isinstance(error, ConfigurationError)
    assert "ssl_context returned NoneType" in str(error)


@pytest.mark.slow
async def test_thousand_failing_starts_leave_nothing(tmp_path: Path) -> None:
    """No task, thread, socket, timer or file descriptor, of a memfd either."""
    issued = ROOT.issue("client")
    options = {
        **trusting(tmp_path, OTHER),
        "ssl_keystore_key": issued.key,
        "ssl_keystore_certificate_chain": issued.chain,
    }
    process = psutil.Process()
    with silent_tls_server(context_of(ROOT.issue(), tmp_path)) as running:
        address = running.address
        for _ in range(3):
            await failure_at_start(address, options)
        await asyncio.sleep(0.1)
        before = process.num_fds(), threading.active_count(), len(asyncio.all_tasks())
        for _ in range(100):
            failures = await asyncio.gather(*(failure_at_start(address, options) for _ in range(10)))
            assert all(isinstance(each, TlsVerificationError) for each in failures)
        deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=10)
        while (process.num_fds(), threading.active_count(), len(asyncio.all_tasks())) > before:
            assert dt.datetime.now(dt.UTC) < deadline, (process.num_fds(), before)
            await asyncio.sleep(0.05)


def test_forked_child_sends_nothing(tmp_path: Path) -> None:
    """T20: neither a record nor close_notify leaves the child's copy of the connection."""
    with silent_tls_server(context_of(ROOT.issue(), tmp_path)) as running, asyncio.Runner() as runner:
        producer = runner.run(started(running.address, trusting(tmp_path)))
        runner.run(asyncio.to_thread(running.got_something.wait, 10))
        before = bytes(running.received)
        child = os.fork()
        if child == 0:
            del producer
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        runner.run(asyncio.sleep(0.2))
        assert before
        assert bytes(running.received) == before
        runner.run(producer.close(0))


async def started(address: str, options: dict[str, object]) -> Producer:
    producer = Producer(address, **options)  # type: ignore[arg-type]
    return await producer.start(wait=False)
