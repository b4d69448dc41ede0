"""Lines of evidence name the code that ran, and what came of it."""

import json
from pathlib import Path

from tests.programs.evidence import Evidence, package_hash


def test_hash_changes_with_the_package(tmp_path: Path) -> None:
    """With a file's content and with its name, not with what is no source."""
    source = tmp_path / "a.py"
    source.write_text("1", "utf-8")
    first = package_hash(tmp_path)
    (tmp_path / "a.so").write_bytes(b"built")
    assert package_hash(tmp_path) == first
    source.write_text("2", "utf-8")
    second = package_hash(tmp_path)
    source.rename(tmp_path / "b.py")

    assert len({first, second, package_hash(tmp_path)}) == 3


def test_lines_are_appended(tmp_path: Path) -> None:
    """One JSON object a run, in a file that need not be there."""
    file = tmp_path / "evidence" / "chaos.jsonl"
    run = Evidence(command="c", seeds=[1, 2], start="s", outcome="no violation", digest="d", totals={"records": 3})

    run.append_to(file)
    run.append_to(file)

    first, second = (json.loads(line) for line in file.read_text("utf-8").splitlines())
    assert first["totals"] == {"records": 3}
    assert first["seeds"] == [1, 2]
    assert {**first, "end": ""} == {**second, "end": ""}
    assert len(first["package"]) == 64
