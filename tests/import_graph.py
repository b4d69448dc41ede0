"""The layers of the package, as the contract in pyproject.toml has them, and the imports between its files."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def layers() -> list[list[str]]:
    contracts = tomllib.loads(PYPROJECT.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["id"] == "layers")
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


def layers_above(module: str) -> set[str]:
    found = layers()
    own = next(index for index, layer in enumerate(found) if module in layer)
    return {name for layer in found[:own] for name in layer}


def layers_below(module: str) -> set[str]:
    found = layers()
    own = next(index for index, layer in enumerate(found) if module in layer)
    return {name for layer in found[own + 1 :] for name in layer}


PACKAGE = Path(__file__).parent.parent / "aioproducer"

Graph = Mapping[str, set[str]]

_CYTHON_IMPORT = re.compile(
    r"^\s*(?:from\s+(aioproducer[\w.]*)\s+c?import|c?import\s+(aioproducer[\w.]*))", re.MULTILINE
)


def names_imported(path: Path, *, with_types: bool) -> Iterator[str]:
    """Names that a file imports: of modules, or of something in a module.

    Args:
        path: of a Python file; of a Cython file its `.pxd` is read too, but no stub.
        with_types: include the imports that only type checkers see.
    """
    if path.suffix == ".pyx":
        texts = [each.read_text("utf-8") for each in (path, path.with_suffix(".pxd")) if each.exists()]
        yield from (match[1] or match[2] for text in texts for match in _CYTHON_IMPORT.finditer(text))
        return
    tree = ast.parse(path.read_text("utf-8"))
    for_types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = {inner for node in for_types for statement in node.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if node in skipped and not with_types:
            continue
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def import_graph(*, with_types: bool) -> Graph:
    """Modules that each module imports, inside functions as well; both by their dotted names."""
    paths = {_module(path): path for path in PACKAGE.rglob("*.py*") if path.suffix in {".py", ".pyx"}}
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = set(names_imported(path, with_types=with_types))
        found = {name if name in paths else name.rpartition(".")[0] for name in names}
        graph[module] = {name for name in found if name in paths} - {module}
    return graph


def longest_chain(graph: Graph, beginning: Iterable[str]) -> list[str]:
    """Return the longest chain in which each module imports the next."""
    chains: dict[str, list[str]] = {}
    for module in TopologicalSorter(graph).static_order():
        below = max((chains[imported] for imported in sorted(graph[module])), key=len, default=[])
        chains[module] = [module, *below]
    return max((chains[module] for module in beginning), key=len)


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")
