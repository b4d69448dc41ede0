"""A plaintext producer loads no code of TLS, of stores, or of the libraries of the extras."""

import subprocess
import sys

from aioproducer.testing import FakeCluster

PROGRAM = """
import sys, aioproducer
with aioproducer.BlockingProducer(sys.argv[1]) as producer:
    producer.send("t", b"v")
unwanted = ("cryptography", "gssapi", "boto3", "python_socks", "jwt", "aioproducer._network.tls")
print([name for name in sys.modules if name.startswith((*unwanted, "aioproducer.security._stores"))])
"""


def test_plaintext_producer_loads_nothing_of_tls() -> None:
    with FakeCluster.in_thread(1, topics={"t": 1}) as cluster:
        command = [sys.executable, "-c", PROGRAM, cluster.bootstrap_servers]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stdout.strip() == "[]", ended.stdout + ended.stderr
