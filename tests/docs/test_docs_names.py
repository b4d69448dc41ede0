"""Every file and every name of the code that the documentation mentions exists.

Pages write `_sender/sender.py : Sender.run_once`: a file, relative to the package, and something defined in it. A file
named alone, `_accumulator/buffer_pool.py`, must exist too, in the package or in the repository.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "aioproducer"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MENTION = re.compile(r"`?(?P<file>[\w./-]+\.(?:pyx|pxd|pyi|py))(?: : (?P<name>[A-Za-z_][\w.]*))?(?![\w/])")
NATIVE_DEFINITION = re.compile(r"^(?P<indent> *)(?:cdef|cpdef|def|class)\b[^#]*?\b(?P<name>\w+)(?=\(|:|$)")


def page_name(page: Path) -> str:
    """The page as shown in a failure."""
    return str(page.relative_to(ROOT))


def mentions(text: str) -> list[tuple[str, str]]:
    """(file, name) pairs of a page; the name is empty where a file stands alone."""
    return sorted({(match["file"].replace("../", ""), match["name"] or "") for match in MENTION.finditer(text)})


def is_missing(file: str, name: str) -> bool:
    """Whether a mention leads nowhere. A file without a folder may be an example's own: `conftest.py`."""
    places = [path for path in (PACKAGE / file, ROOT / file) if path.is_file()]
    if not places:
        return bool(name) or "/" in file
    return bool(name) and not any(name in defined_names(path) for path in places)


@cache
def defined_names(path: Path) -> frozenset[str]:
    """Functions, classes, their members and constants of a source, `Class.member` for members."""
    text = path.read_text("utf-8")
    return frozenset(python_names(ast.parse(text)) if path.suffix in {".py", ".pyi"} else native_names(text))


def python_names(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    """Names that a module or class defines, classes within included."""
    for child in node.body:
        match child:
            case ast.ClassDef(name=name):
                yield prefix + name
                yield from python_names(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
                yield from (prefix + attribute for attribute in own_attributes(child))
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield prefix + name


def own_attributes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Attributes that an `__init__` sets on `self`."""
    for node in ast.walk(function) if function.name == "__init__" else ():
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def native_names(text: str) -> Iterator[str]:
    """Names that a Cython source defines, by its indentation."""
    owner = ""
    for line in text.splitlines():
        match = NATIVE_DEFINITION.match(line)
        if match is None:
            continue
        if not match["indent"]:
            owner = match["name"] if "class" in line.split("(")[0].split() or "class" in line else ""
            yield match["name"]
        elif owner:
            yield f"{owner}.{match['name']}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_names_of_the_code_exist(page: Path) -> None:
    missing = [pair for pair in mentions(page.read_text("utf-8")) if is_missing(*pair)]

    assert missing == []


def test_a_name_that_is_gone_is_noticed() -> None:
    here = "`_sender/sender.py : Sender.run_once`, `_sender/sender.py : Sender.gone`"
    text = f"{here}, `_sender/gone.py`, `_native/append.pyx : gone`"

    missing = [pair for pair in mentions(text) if is_missing(*pair)]

    assert missing == [("_native/append.pyx", "gone"), ("_sender/gone.py", ""), ("_sender/sender.py", "Sender.gone")]
