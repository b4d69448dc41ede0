"""This producer over TLS or plaintext on either loop, and OpenSSL's encryption alone."""

import asyncio
import contextlib
import ssl
import tempfile
import threading
from pathlib import Path
from time import process_time

import uvloop

from aioproducer import Producer, ProducerOptions
from aioproducer.testing.certificates import CertificateAuthority
from tests.benchmarks.clients.ours import configuration
from tests.benchmarks.job import Job, Outcome, Stopwatch, as_text

WRITE_BYTES = 900_000  # a full request of several batches


def enqueue(job: Job) -> Outcome:
    """`await enqueue` in a loop, then `flush`, on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return _enqueue(runner, job)


def enqueue_on_asyncio(job: Job) -> Outcome:
    """The same on asyncio's own loop."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return _enqueue(runner, job)


def enqueue_beside_a_busy_thread(job: Job) -> Outcome:
    """The same on uvloop, while another thread computes."""
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(100))

    busy = threading.Thread(target=compute, daemon=True)
    busy.start()
    try:
        return enqueue(job)
    finally:
        is_over.set()
        busy.join()


def encrypt(job: Job) -> Outcome:
    """Encrypt as many bytes as the records have, in memory: the least that TLS can cost."""
    client, ciphertext = _handshake_in_memory()
    data = bytes(WRITE_BYTES)
    writes = job.records * job.value_bytes // WRITE_BYTES + 1
    start_s = process_time()
    for _ in range(writes):
        client.write(data)
        ciphertext.read()
    cpu_s = (process_time() - start_s) / (writes * WRITE_BYTES) * job.value_bytes
    return Outcome(0, {"cpu_us_per_record": cpu_s * 1e6})


def _enqueue(runner: asyncio.Runner, job: Job) -> Outcome:
    options = configuration(job)
    if job.ca_file:
        options |= ProducerOptions(security_protocol="SSL", ssl_truststore_location=job.ca_file)

    async def main() -> dict[str, float]:
        async with Producer(job.secured_servers or job.bootstrap_servers, **options) as producer:
            topic, value = job.topic, job.value
            for _ in range(job.warmup_records):
                await producer.enqueue(topic, value)
            await producer.flush()
            stopwatch = Stopwatch()
            for _ in range(job.records):
                await producer.enqueue(topic, value)
            await producer.flush()
            return stopwatch.figures(job.records)

    return Outcome(job.warmup_records + job.records, runner.run(main()), as_text(dict(configuration(job))))


def _handshake_in_memory() -> tuple[ssl.SSLObject, ssl.MemoryBIO]:
    authority = CertificateAuthority(rsa=True)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_text(authority.issue("localhost").pem, "utf-8")
        server_side.load_cert_chain(path)
    client_side = ssl.create_default_context(cadata=authority.certificate)
    to_client, to_server, ciphertext, answers = (ssl.MemoryBIO() for _ in range(4))
    client = client_side.wrap_bio(to_client, ciphertext, server_hostname="localhost")
    server = server_side.wrap_bio(to_server, answers, server_side=True)
    for _ in range(2):
        for end, received, sent in ((client, to_server, ciphertext), (server, to_client, answers)):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
            received.write(sent.read())
    return client, ciphertext
