"""Every Python block in the README and the documentation runs, against the embedded cluster.

The blocks of a page run in order and share their names, with `await` on top as in `python -m asyncio`;
`localhost:9092` is the embedded cluster, `localhost:8081` a schema registry. What a reader need not see stands as a
block in an HTML comment: the data a page assumes, and assertions. A page of docs/reference/ is no program: there the
public names are known already. Tutorials are whole programs with their output, and have tests of their own.
"""

import ast
import asyncio
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import cast

import pytest

import aioproducer
from aioproducer.testing import FakeCluster
from tests.docs.code_blocks import CLOUDS, PAGES, code_blocks, is_tutorial, page_name
from tests.fakes.schema_registry import FakeSchemaRegistry


def compiled_blocks(page: Path, bootstrap_servers: str, registry: str) -> list[CodeType]:
    compiled = []
    for above, code in code_blocks(page):
        text = "\n" * above + code.replace("localhost:9092", bootstrap_servers).replace(
            "http://localhost:8081", registry
        )
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled.append(compile(text, page_name(page), "exec", flags=flags, dont_inherit=True))
    return compiled


@contextmanager
def module_of(page: Path) -> Iterator[dict[str, object]]:
    """Yield the names of a module for a page, which can be imported: Litestar looks up the types of handlers there."""
    module = ModuleType(f"page_{page.stem}")
    sys.modules[module.__name__] = module
    yield vars(module)
    del sys.modules[module.__name__]


def run_page(page: Path, bootstrap_servers: str, registry: str) -> None:
    with module_of(page) as names, asyncio.Runner() as runner:
        if "reference" in page.parts:
            names |= {name: getattr(aioproducer, name) for name in aioproducer.__all__}
        for block in compiled_blocks(page, bootstrap_servers, registry):
            running = eval(block, names)
            if running is not None:
                runner.run(cast("Coroutine[object, object, None]", running))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if not is_tutorial(page)], ids=page_name)
async def test_code_of_a_page_runs(
    page: Path, cluster: FakeCluster, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # pages write files
    monkeypatch.syspath_prepend(CLOUDS)
    async with FakeSchemaRegistry() as registry:
        await asyncio.to_thread(run_page, page, cluster.bootstrap_servers, registry.url)
