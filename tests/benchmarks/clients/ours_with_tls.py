"""This producer over TLS or plaintext on asyncio's loop and beside a busy thread, and OpenSSL's encryption alone."""

import asyncio
import contextlib
import ssl
import tempfile
import threading
from pathlib import Path
from time import process_time

from aioproducer.testing.certificates import CertificateAuthority
from tests.benchmarks.clients.ours import enqueue
from tests.benchmarks.job import Job, Outcome

WRITE_BYTES = 900_000  # a full request of several batches


def enqueue_on_asyncio(job: Job) -> Outcome:
    """`await enqueue` in a loop on asyncio's own event loop."""
    return enqueue(job, asyncio.run)


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
