"""Every Python block in the README and the documentation runs, on the embedded cluster, and passes `mypy --strict`.

The blocks of a page run in order and share their names, with `await` on top as in `python -m asyncio`: what a page
shows runs with what it shows above. A block in an HTML comment sets variables of the environment, writes files, and
checks what the blocks have done; the names that it defines are not known to them. A page of docs/reference/ is no
program: there the public names are known already. Tutorials are whole programs with their output, and have tests of
their own.
"""

import ast
import asyncio
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import cast

import pytest

import aioproducer
from aioproducer.testing import FakeCluster
from tests.docs.code_blocks import CLOUDS, PAGES, ROOT, CodeBlock, code_blocks, is_tutorial, page_name
from tests.fakes.schema_registry import FakeSchemaRegistry


def compiled(page: Path, block: CodeBlock, addresses: Mapping[str, str]) -> CodeType:
    code = block.code
    for shown, real in addresses.items():
        code = code.replace(shown, real)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile("\n" * block.above + code, page_name(page), "exec", flags=flags, dont_inherit=True)


@contextmanager
def module_of(page: Path) -> Iterator[dict[str, object]]:
    """Yield the names of a module for a page, which can be imported: Litestar looks up the types of handlers there."""
    module = ModuleType(f"page_{page.stem}")
    sys.modules[module.__name__] = module
    yield vars(module)
    del sys.modules[module.__name__]


def run_page(page: Path, addresses: Mapping[str, str]) -> None:
    """Run the blocks; those that are not shown look at the names of the others, and have their own besides."""
    with module_of(page) as names, asyncio.Runner() as runner:
        if "reference" in page.parts:
            names |= {name: getattr(aioproducer, name) for name in aioproducer.__all__}
        unseen: dict[str, object] = {}
        for block in code_blocks(page):
            unseen |= names
            running = eval(compiled(page, block, addresses), names if block.is_shown else unseen)
            if running is not None:
                runner.run(cast("Coroutine[object, object, None]", running))


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Litestar puts a handler of its own in the place of the root logger's."""
    before = [*logging.root.handlers]
    yield
    logging.root.handlers[:] = before


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if not is_tutorial(page)], ids=page_name)
async def test_code_of_a_page_runs(
    page: Path, cluster: FakeCluster, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # pages write files
    monkeypatch.syspath_prepend(CLOUDS)
    async with FakeSchemaRegistry() as registry:
        addresses = {
            "localhost:9092": cluster.bootstrap_servers,
            "localhost:19092": cluster.bootstrap_servers.partition(",")[0],  # a port forward to it
            "http://localhost:8081": registry.url,
        }
        await asyncio.to_thread(run_page, page, addresses)


MYPY = [
    *(sys.executable, "-m", "mypy", "--strict", "--config-file="),
    "--follow-imports=silent",  # the package is checked by itself
    "--allow-redefinition",  # a page may use one name for the producer of each of its programs
    "--disable-error-code=import-untyped",  # aiokafka and pyarrow have no types
]
NAMES = "from aioproducer import *\nasync def page() -> None:\n"
"""In front of a page of docs/reference/, where the public names are known; then as `PAGE`."""

PAGE = "async def page() -> None:\n"
"""The blocks of a page share their names and have `await` on top; no block begins on the first lines of a page."""


def written_to(folder: Path, name: str, blocks: list[CodeBlock], *, front: str = "") -> None:
    lines = front.splitlines()
    for block in blocks:
        lines += [""] * (block.above - len(lines))
        lines += (textwrap.indent(block.code, "    ") if front else block.code).splitlines()
    (folder / f"{name}.py").write_text("\n".join([*lines, "    ..." if front else "", ""]), "utf-8")


def write_page(folder: Path, page: Path) -> None:
    name = page_name(page).removesuffix(".md").replace("/", "__")
    shown = [block for block in code_blocks(page) if block.is_shown]
    if is_tutorial(page):
        for block in shown:
            written_to(folder, f"{name}__{block.above}", [block])
    else:
        written_to(folder, name, shown, front=NAMES if "reference" in page.parts else PAGE)


@pytest.mark.slow
def test_code_of_all_pages_and_examples_passes_mypy_strict(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """As a user's program would; the lines named are those of the pages."""
    for page in PAGES:
        write_page(tmp_path, page)
    assert request.config.cache is not None
    cache = request.config.cache.mkdir("mypy-of-docs")
    command = [
        *MYPY,
        f"--cache-dir={cache}",
        *map(str, sorted(tmp_path.glob("*.py"))),
        *map(str, ROOT.glob("examples/*.py")),
    ]

    done = subprocess.run(
        command,
        env={**os.environ, "MYPYPATH": f"{ROOT}:{CLOUDS}"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.stdout.startswith("Success: no issues found"), done.stdout + done.stderr
