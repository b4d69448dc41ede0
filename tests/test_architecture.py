"""Limits on sizes, names and imports of the package and its tests."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.import_graph import import_graph, layers_above, layers_below, longest_chain, names_imported

PACKAGE = Path(__file__).parent.parent / "aioproducer"
SOURCES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".pyx"})
MODULES = [path for path in SOURCES if path.suffix == ".py"]

TESTS = sorted(Path(__file__).parent.rglob("*.py"))

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 600
ROWS = {"errors.py", "error_codes.py"}  # files of one short class or table row after another: they may be longer

MAX_TEST_NAME = 60
LONG_TEST_NAME = re.compile(rf"\bdef (test_\w{{{MAX_TEST_NAME - len('test_') + 1},}})")
HALF_SENTENCE = re.compile(r"(What|Where|Which|Who|Of)\b")

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
LOADED_LAZILY = {
    "aiokafka",
    "anyio",
    "google",
    "kio",
    "msgspec",
    "opentelemetry",
    "pyarrow",
    "pydantic",
    "rich",
    "structlog",
    "typer",
}
"""Libraries that `import aioproducer` must not load: slow to import, or brought by an extra."""

CYTHON_FUNCTION = re.compile(r"^(?P<indent> *)(?:cp?def|def)\b(?!.*\bclass\b)[^=]*\(")


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                yield f"{node.name} at line {node.lineno}", (body[-1].end_lineno or 0) - body[0].lineno + 1


def cython_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and length of each function of a Cython module; its docstring and the lines of its head not counted."""
    lines = text_of(path).splitlines()
    heads = [(number, match) for number, line in enumerate(lines) if (match := CYTHON_FUNCTION.match(line))]
    for number, match in heads:
        rest = [line for line in lines[number:] if line.strip()]
        deeper = match["indent"] + " "
        end = next(
            (i for i, line in enumerate(rest[1:], 1) if not line.startswith((deeper, match["indent"] + ")"))), len(rest)
        )
        text = re.sub(r'""".*?"""', "", "\n".join(rest[1:end]), count=1, flags=re.DOTALL)
        yield f"{lines[number].strip()} at line {number + 1}", len([line for line in text.splitlines() if line.strip()])


def docstrings(path: Path) -> Iterator[str]:
    if path.suffix == ".pyx":
        yield from re.findall(r'^\s*"""(.+)', text_of(path), re.MULTILINE)
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def layer_of(path: Path) -> str:
    """The module on top of the package that a file is, or is part of."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def below_native(path: Path) -> bool:
    return layer_of(path) in layers_below("_native")


def above_producer(path: Path) -> bool:
    return layer_of(path) in layers_above("_producer")


def relative(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def test_files_are_short() -> None:
    """A file that needs scrolling for minutes has two subjects."""
    lines = {path: len(text_of(path).splitlines()) for path in [*SOURCES, *TESTS] if path.name not in ROWS}

    assert {relative(path): many for path, many in lines.items() if many > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    too_long = {
        f"{relative(path)}: {name}": lines
        for path in [*SOURCES, *TESTS]
        for name, lines in (python_functions(path) if path.suffix == ".py" else cython_functions(path))
        if lines > MAX_FUNCTION_LINES
    }

    assert too_long == {}


def test_files_are_named_after_their_subjects() -> None:
    names = {path: {part.lower() for part in path.relative_to(PACKAGE).with_suffix("").parts} for path in SOURCES}

    assert [relative(path) for path, parts in names.items() if parts & FORBIDDEN_NAMES] == []


def test_files_say_what_they_are() -> None:
    assert [relative(path) for path in MODULES if not ast.get_docstring(parsed(path))] == []


def test_docstrings_stand_alone() -> None:
    """They begin with a verb or a noun."""
    halves = {relative(path): [text for text in docstrings(path) if HALF_SENTENCE.match(text)] for path in SOURCES}

    assert {path: texts for path, texts in halves.items() if texts} == {}


def test_names_of_tests_are_short() -> None:
    too_long = {relative(path): LONG_TEST_NAME.findall(text_of(path)) for path in TESTS}

    assert {path: names for path, names in too_long.items() if names} == {}


def imported_at_run_time(path: Path) -> set[str]:
    names = set(names_imported(path, with_types=False))
    return names | {name.rpartition(".")[0] for name in names}


def test_internal_modules_do_not_import_the_public_package() -> None:
    """A name is imported from where it is defined: `aioproducer` itself imports everything."""
    internal = [path for path in MODULES if not above_producer(path)]

    assert [relative(path) for path in internal if "aioproducer" in imported_at_run_time(path)] == []


def test_nothing_below_the_native_layer_imports_it() -> None:
    """The contract of layers cannot see Cython modules."""
    native = {
        relative(path): [name for name in imported_at_run_time(path) if name.startswith("aioproducer._native")]
        for path in MODULES
        if below_native(path)
    }

    assert {path: names for path, names in native.items() if names} == {}


def test_no_modules_import_each_other() -> None:
    """Imports for type checkers count: a circle of types, too, must be read as one piece."""
    TopologicalSorter(import_graph(with_types=True)).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("beginning,most", [("aioproducer", 16), (None, 24)])
def test_chains_of_imports_are_short(beginning: str | None, most: int) -> None:
    """The longest chain that begins at the package's own name, and the longest of all, in files."""
    graph = import_graph(with_types=False)
    chain = longest_chain(graph, [beginning] if beginning is not None else graph)

    assert len(chain) <= most, " > ".join(chain)


@pytest.mark.parametrize("module", ["aioproducer", "aioproducer.testing.kafka"])
def test_import_is_cheap(module: str) -> None:
    """Importing loads no library that is slow to import or that an extra brings."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert set(loaded.split()) & LOADED_LAZILY == set()
