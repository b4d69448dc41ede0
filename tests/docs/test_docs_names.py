"""Files, names, layers, log events and tests that the documentation mentions are there, and the index links all pages.

Pages write `_sender/sender.py : Sender.run_once`: a file, relative to the package, and something defined in it. A file
named alone, `_accumulator/buffer_pool.py`, must exist too, in the package or in the repository.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.import_graph import layers

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


DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?P<target>[^)#\s]+\.md)")


def test_every_page_is_linked_from_the_index() -> None:
    linked = {match["target"] for match in LINK.finditer((DOCS / "index.md").read_text("utf-8"))}

    pages = {str(page.relative_to(DOCS)) for page in DOCS.glob("*/*.md")}
    assert pages - linked == set()


# The page on the architecture


ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
PICTURE = re.compile(r"^## Layers\n.*?^```text\n(?P<lines>.*?)^```", re.DOTALL | re.MULTILINE)
TREE = re.compile(r"^## The tree\n.*?^```text\naioproducer/\n(?P<lines>.*?)^```", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"(?P<in_folder>│   )?[├└]── (?P<names>\S+(?:, \S+)*)  ")
LINE = re.compile(r"(?P<goes_on>\| )?(?P<names>\w+(?: [|>] \w+)*) {2,}\S")


def layers_of_the_picture() -> Iterator[list[str]]:
    """From the top: names with `|` between them are one layer, `>` leads to the next, a first `|` goes on."""
    picture = PICTURE.search(ARCHITECTURE.read_text("utf-8"))
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
    tree = TREE.search(ARCHITECTURE.read_text("utf-8"))
    assert tree is not None
    entries, folder = [], ""
    for entry in ENTRY.finditer(tree["lines"]):
        names = entry["names"].split(", ")
        entries += [folder + name if entry["in_folder"] else name for name in names]
        folder = folder if entry["in_folder"] else names[-1]

    assert len(entries) > len(tree["lines"].splitlines()) // 2
    assert [entry for entry in entries if not (ROOT / "aioproducer" / entry).exists()] == []


# The page of log events


LOG_EVENTS = ROOT / "docs" / "reference" / "log_events.md"
LEVELS = {"Errors": {"error"}, "Warnings": {"warning"}, "Info": {"info"}, "Debug": {"debug"}}
ROW = re.compile(r"^\| `(?P<event>\w+)` \| (?P<values>[^|]*) \|", re.MULTILINE)
SEVERAL_LEVELS = {"write": {"warning"}}
"""A variable that holds a method of the log, and the highest level that it may be of."""


def calls_of_the_log() -> Iterator[tuple[str, set[str], set[str]]]:
    for path in (ROOT / "aioproducer").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            event, function = node.args[0].value, node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            levels = SEVERAL_LEVELS.get(called, {called})
            is_event = isinstance(event, str) and event.isidentifier() and all(each.arg for each in node.keywords)
            if is_event and levels <= {"debug", "info", "warning", "error"}:
                yield event, levels, {str(each.arg) for each in node.keywords}


def events_of_the_page() -> dict[str, tuple[set[str], set[str]]]:
    found = {}
    for section in LOG_EVENTS.read_text("utf-8").split("\n## ")[1:]:
        levels = LEVELS[section.split(":")[0]]
        for row in ROW.finditer(section):
            found[row["event"]] = levels, set(re.findall(r"`(\w+)`", row["values"]))
    return found


def test_page_names_each_event_with_its_level_and_values() -> None:
    """An operator looks here at night."""
    logged = {event: (levels, values) for event, levels, values in calls_of_the_log()}

    assert len(logged) > 20
    assert events_of_the_page() == logged


def test_an_event_has_the_same_values_wherever_it_is_logged() -> None:
    shapes: dict[str, set[frozenset[str]]] = {}
    for event, _, values in calls_of_the_log():
        shapes.setdefault(event, set()).add(frozenset(values))

    assert {event for event, each in shapes.items() if len(each) > 1} == set()


# The page of threats


THREATS = ROOT / "docs" / "explanation" / "what_is_defended.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions}


def test_every_threat_has_a_row_with_its_tests() -> None:
    rows = re.findall(r"^\| (T\d+) \|.*$", THREATS.read_text("utf-8"), re.MULTILINE)
    lines = [line for line in THREATS.read_text("utf-8").splitlines() if re.match(r"\| T\d+ \|", line)]

    assert rows == [f"T{number}" for number in range(1, 24)]
    assert [line[:6] for line in lines if not NAMED.search(line)] == []


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(THREATS.read_text("utf-8"))

    assert len(named) > 50
    assert [f"{path}::{name}" for path, name in named if name not in functions_of(path)] == []
