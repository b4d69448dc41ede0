"""The picture of the layers is that of the contract which import-linter checks."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.layers import layers

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PICTURE = re.compile(r"^## Layers\n.*?^```text\n(?P<lines>.*?)^```", re.DOTALL | re.MULTILINE)
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
