"""A node's log folder is a copy of a formatted one, with its own identity."""

import re
from pathlib import Path

from aioproducer.testing.kafka.folders import copy_log_folder, new_uuid

META = "#\n#Sat Nov 21 18:00:00 UTC 2026\nnode.id=1\ndirectory.id=abc\nversion=1\ncluster.id=def\n"


def test_copy_has_the_identity_of_its_node(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "meta.properties").write_text(META, "utf-8")
    (template / "bootstrap.checkpoint").write_bytes(b"\x00\x01")

    copy_log_folder(template, tmp_path / "copy", cluster_id="cluster", node_id=3)

    meta = dict(line.split("=") for line in (tmp_path / "copy" / "meta.properties").read_text("utf-8").splitlines())
    assert meta | {"directory.id": ""} == {"node.id": "3", "cluster.id": "cluster", "version": "1", "directory.id": ""}
    assert meta["directory.id"] != "abc"
    assert (tmp_path / "copy" / "bootstrap.checkpoint").read_bytes() == b"\x00\x01"


def test_new_uuid_is_as_kafka_writes_them() -> None:
    uuids = {new_uuid() for _ in range(1_000)}

    assert len(uuids) == 1_000
    assert all(re.fullmatch(r"[A-Za-z0-9_]{22}", uuid) for uuid in uuids)
