"""Commands that send and read by a `client.properties` of a secured cluster, embedded or real."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aioproducer.testing.kafka import KafkaCluster
from tests.cli.commands import run
from tests.secured.ways import Place

PLACES = [("fake", "4.3.1"), pytest.param(("real", "4.3.1"), marks=pytest.mark.kafka)]


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
