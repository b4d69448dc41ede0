"""A clock that is off: Kerberos tolerates it, unless krb5.conf forbids that, and then the error names the clocks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaCluster, Kdc
from tests.preloaded import compiled
from tests.secured.kerberos import kerberos_options

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAM = """
import asyncio, json, sys
from aioproducer import Producer

async def main():
    async with Producer(**json.loads(sys.argv[1])) as producer:
        await producer.send_and_wait("clocks", b"value")

asyncio.run(main())
"""

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a library is preloaded as on Linux"),
]


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


def test_clock_of_the_client_is_corrected_by_the_kdcs(kerberos_kafka: KafkaCluster, ahead: str) -> None:
    assert sent(kerberos_kafka, LD_PRELOAD=ahead) == ""


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
