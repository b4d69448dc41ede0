"""The page on the architecture: its layers are those that import-linter checks, and its tree is that of the files."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.layers import layers

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PICTURE = re.compile(r"^## Layers\n.*?^```text\n(?P<lines>.*?)^```", re.DOTALL | re.MULTILINE)
TREE = re.compile(r"^## The tree\n.*?^```text\naioproducer/\n(?P<lines>.*?)^```", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"(?P<in_folder>│   )?[├└]── (?P<names>\S+(?:, \S+)*)  ")
LINE = re.compile(r"(?P<goes_on>\| )?(?P<names>\w+(?: [|>] \w+)*) {2,}\S")


def layers_of_the_picture() -> Iterator[list[str]]:
    """From the top: names with `|` between them are one layer, `>` leads to the next, a first `|` goes on."""
    picture = PICTURE.search(PAGE.read_text("utf-8"))
    assert picture is not None
    layer: list[str] = []
    for line in picture["lines"].splitlines():
        parts = LINE.match(line)
        assert parts is not None, f"no layer and what it is for: {line}"
        if not parts["goes_on"]:
            yield layer
            layer = []
        *above, last = parts["names"].split(" > ")
        for names in above:
            yield [*layer, *names.split(" | ")]
            layer = []
        layer += last.split(" | ")
    yield layer


def test_picture_of_the_layers_is_that_of_the_contract() -> None:
    """Each layer, in its order; who adds a module says in both what it is."""
    drawn = [sorted(layer) for layer in layers_of_the_picture() if layer]

    assert drawn == [sorted(layer) for layer in layers()]


def test_every_module_has_a_layer() -> None:
    """And there is none in the picture that does not exist."""
    package = ROOT / "aioproducer"
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }

    assert {name for layer in layers() for name in layer} == modules - {"__init__"}


def test_every_entry_of_the_tree_exists() -> None:
    """A reader who opens it finds it."""
    tree = TREE.search(PAGE.read_text("utf-8"))
    assert tree is not None
    entries, folder = [], ""
    for entry in ENTRY.finditer(tree["lines"]):
        names = entry["names"].split(", ")
        entries += [folder + name if entry["in_folder"] else name for name in names]
        folder = folder if entry["in_folder"] else names[-1]

    assert len(entries) > len(tree["lines"].splitlines()) // 2
    assert [entry for entry in entries if not (ROOT / "aioproducer" / entry).exists()] == []
