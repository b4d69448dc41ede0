"""A mutant: one deliberate bug, put into a copy of the package at a function and an expression.

The place is found by its meaning and not by its text, so that comments, line breaks and neighbouring code may change.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class StaleMutantError(Exception):
    """The code has moved on: the function is gone, or what is replaced does not stand in it exactly once."""


@dataclass(frozen=True, slots=True)
class Change:
    """One replacement in one function.

    Args:
        file: below the package's folder.
        function: qualified name, "Sender.run_once"; "" for the module. Of a Cython file the function's name alone.
        old: an expression, or statements, that stand there exactly once.
        new: takes their place.
    """

    file: str
    function: str
    old: str
    new: str

    def replaced(self, text: str) -> str:
        old, new = (textwrap.dedent(part).strip("\n") for part in (self.old, self.new))
        places = list((_python_places if self.file.endswith(".py") else _cython_places)(text, self.function, old))
        if len(places) != 1:
            raise StaleMutantError(f"{self.file}, {self.function} holds {len(places)} times what is replaced:\n{old}")
        ((begin, end),) = places
        line_start = text.rfind("\n", 0, begin) + 1
        indent = re.match(" *", text[line_start:])[0]  # type: ignore[index]  # matches always
        return text[:begin] + new.replace("\n", "\n" + indent) + text[end:]


class Mutant:
    """A bug: its name, what it breaks, and where.

    Args:
        families: of the simulation, those that find it fastest; tried before the others.
        tests: those that find it, for what the simulation sees late or not at all; they run first.
    """

    def __init__(
        self, name: str, breaks: str, *changes: Change, families: tuple[str, ...] = (), tests: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.breaks = breaks
        self.changes = changes
        self.families = families
        self.tests = tests

    def native_modules(self, package: Path) -> tuple[str, ...]:
        """Return the extension modules to build: a changed `.pxd` has code of all that use it."""
        changed = [Path(change.file) for change in self.changes]
        names = {path.stem for path in changed if path.suffix == ".pyx"}
        for header in (path for path in changed if path.suffix == ".pxd"):
            used = re.compile(rf"\b_native\.{header.stem} cimport\b")
            sources = (package / header.parent).glob("*.pyx")
            names |= {each.stem for each in sources if each.stem == header.stem or used.search(each.read_text("utf-8"))}
        return tuple(sorted(names))

    def apply(self, package: Path) -> None:
        for change in self.changes:
            path = package / change.file
            path.write_text(change.replaced(path.read_text("utf-8")), "utf-8")


def _python_places(text: str, function: str, old: str) -> Iterator[tuple[int, int]]:
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    scope = _scope(ast.parse(text), function)
    wanted = ast.parse(old).body
    found = _expressions if len(wanted) == 1 and isinstance(wanted[0], ast.Expr) else _statements
    for first, last in found(scope, wanted):
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        yield (starts[first.lineno - 1] + first.col_offset, starts[last.end_lineno - 1] + last.end_col_offset)


def _scope(module: ast.Module, function: str) -> ast.AST:
    scope: ast.AST = module
    for name in filter(None, function.split(".")):
        inner = (each for each in ast.walk(scope) if each is not scope and getattr(each, "name", None) == name)
        found = next((each for each in inner if isinstance(each, DEFINITIONS)), None)
        if found is None:
            raise StaleMutantError(f"there is no {function}")
        scope = found
    return scope


def _expressions(scope: ast.AST, wanted: list[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    (statement,) = wanted
    assert isinstance(statement, ast.Expr)
    target = ast.dump(statement.value)
    for node in ast.walk(scope):
        if isinstance(node, ast.expr) and ast.dump(node) == target:
            yield node, node


def _statements(scope: ast.AST, wanted: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    target = [ast.dump(statement) for statement in wanted]
    for block in _blocks(scope):
        dumped = [ast.dump(statement) for statement in block]
        for index in range(len(block) - len(target) + 1):
            if dumped[index : index + len(target)] == target:
                yield block[index], block[index + len(target) - 1]


def _blocks(scope: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(scope):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):  # the body of a lambda is an expression
                yield block


def _cython_places(text: str, function: str, old: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each place, white space not counted."""
    begin, end = 0, len(text)
    if function:
        head = re.search(rf"^( *)(?:cpdef|cdef|def)\b[^\n(=]*?\b{function}\(", text, re.MULTILINE)
        if head is None:
            raise StaleMutantError(f"there is no {function}")
        begin = head.start()
        after = re.compile(rf"^ {{0,{len(head[1])}}}(?:@|cpdef|cdef|def|class)\b", re.MULTILINE).search(
            text, head.end()
        )
        end = after.start() if after else len(text)
    words = r"\s+".join(re.escape(word) for word in old.split())
    for match in re.compile(words).finditer(text, begin, end):
        yield match.start(), match.end()
