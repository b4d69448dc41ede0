"""Writes `evidence/diagnoses.md`: `aioproducer diagnose` on ten wrong set-ups of a secured embedded cluster.

Run it after a change of its texts: `python docs/generate_diagnoses.py`. A test fails while the page is old.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from aioproducer.cli.diagnose import Printed, check_all
from aioproducer.config import ProducerConfig
from aioproducer.testing import CertificateAuthority, ClusterSecurity, FakeCluster

PAGE = Path(__file__).parent / "evidence" / "diagnoses.md"

_PAGE: Final = """\
<!-- Written by docs/generate_diagnoses.py, which runs the command: change that. -->

# Ten wrong set-ups, diagnosed

What `aioproducer diagnose --config client.properties` prints for ten files that are wrong in one thing each, against a
secured embedded cluster. Each ends with exit code 1.
[When it does not connect](../how-to/when_it_does_not_connect.md) has all symptoms with their remedies.

"""
_SCRAM: Final = ("SASL_SSL", "SCRAM-SHA-512")
_PORTS: Final = {
    "PLAINTEXT": 9092,
    "SSL": 9093,
    "MTLS": 9094,
    "SASL_PLAINTEXT": 9095,
    "SASL_SSL": 9096,
    "SASL_MTLS": 9097,
    "SIGNED": 9098,
}
"""Ports as the page shows them; those of a run are chosen by the system."""


class WrongSetUp(NamedTuple):
    """Right properties of one listener, with a few replaced; None removes one.

    Attributes:
        address_of: the listener whose address is used; that of `way` if empty.
    """

    title: str
    way: tuple[str, str]
    replaced: Mapping[str, str | None]
    address_of: str = ""


WRONG: Final = (
    WrongSetUp("The name does not exist", _SCRAM, {"bootstrap.servers": "kafka-1.invalid:9096"}),
    WrongSetUp("Nothing listens on the port", _SCRAM, {"bootstrap.servers": "localhost:1"}),
    WrongSetUp("No TLS where the listener wants TLS", ("PLAINTEXT", ""), {}, "SSL"),
    WrongSetUp("TLS where the listener has none", ("SSL", ""), {}, "PLAINTEXT"),
    WrongSetUp("Another CA", ("SSL", ""), {"ssl.truststore.location": "other-ca.pem"}),
    WrongSetUp("Another name than the certificate's", ("SSL", ""), {"bootstrap.servers": "kafka-1.internal:9093"}),
    WrongSetUp(
        "No certificate of the client", ("MTLS", ""), {"ssl.keystore.location": None, "ssl.keystore.type": None}
    ),
    WrongSetUp("No SASL where the listener wants SASL", ("PLAINTEXT", ""), {}, "SASL_PLAINTEXT"),
    WrongSetUp("A mechanism that the listener does not offer", ("SIGNED", "SCRAM-SHA-512"), {}),
    WrongSetUp("A wrong password", _SCRAM, {"sasl.jaas.config": None}),
)


class _Run:
    """The commands of one cluster."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        places = {name: cluster.secured_servers(name) for name in _PORTS if name != "PLAINTEXT"}
        places["PLAINTEXT"] = cluster.bootstrap_servers
        self._ports = {place.rpartition(":")[2]: _PORTS[name] for name, place in places.items()}
        self._places = places

    def properties(self, wrong: WrongSetUp) -> dict[str, str]:
        found: dict[str, str] = self._cluster.client_properties(*wrong.way)
        found["bootstrap.servers"] = self._places[wrong.address_of or wrong.way[0]]
        for name, value in wrong.replaced.items():
            found.pop(name, None)
            if value is not None:
                found[name] = value
        if "sasl.jaas.config" in wrong.replaced:
            login = 'ScramLoginModule required username="alice" password="not-hers";'
            found["sasl.jaas.config"] = f"org.apache.kafka.common.security.scram.{login}"
        if found["bootstrap.servers"] == "kafka-1.internal:9093":
            found["address.map"] = f"kafka-1.internal:9093={self._places['SSL']}"
        return found

    async def diagnosis(self, wrong: WrongSetUp) -> str:
        properties = self.properties(wrong)
        in_folder = {
            name: str(self._folder / value) if value == "other-ca.pem" else value for name, value in properties.items()
        }
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            failed = await check_all(ProducerConfig.from_kafka_properties(in_folder), Printed(as_json=False), 5.0)
        assert failed, f"{wrong.title}: nothing failed"
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        file = re.sub(r'password="[^"]*"', 'password="..."', text)
        shown = f"## {wrong.title}\n\n```properties\n{file}```\n\n```text\n{printed.getvalue()}```\n\n"
        return self._as_shown(shown)

    def _as_shown(self, text: str) -> str:
        for folder in (self._folder, self._cluster.security_folder):
            text = text.replace(f"{folder}/", "")
        return re.sub(r"(?<=:)\d+\b", lambda port: str(self._ports.get(port[0], port[0])), text)


async def _run() -> str:
    loop = asyncio.get_running_loop()
    ask = loop.getaddrinfo

    async def getaddrinfo(host: str, *arguments: object, **options: object) -> object:
        if host.endswith(".invalid"):  # name servers word it in many ways
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return await ask(host, *arguments, **{**options, "family": socket.AF_INET})  # type: ignore[arg-type]

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]  # as applications do
    security = ClusterSecurity(mechanisms=("SCRAM-SHA-512",), failed_authentication_delay_ms=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "other-ca.pem").write_text(CertificateAuthority("other CA").certificate, "ascii")
        async with FakeCluster(1, security=security) as cluster:
            run = _Run(cluster, folder)
            return _PAGE + "".join([await run.diagnosis(wrong) for wrong in WRONG]).rstrip() + "\n"


def render() -> str:
    """Return the whole page."""
    return asyncio.run(_run())


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
