"""Every Python block in the README and the documentation runs, against the embedded cluster.

The blocks of a page run in order and share their names, with `await` on top as in `python -m asyncio`;
`localhost:9092` is the embedded cluster. What a reader need not see stands as a block in an HTML comment: the data a
page assumes, and assertions. A page of docs/reference/ is no program: there the public names are known already.
Tutorials are whole programs with their output, and have tests of their own.
"""

import ast
import asyncio
import re
import textwrap
from collections.abc import Coroutine
from pathlib import Path
from types import CodeType
from typing import cast

import pytest

import aioproducer
from aioproducer.testing import FakeCluster

ROOT = Path(__file__).parent.parent.parent
PYTHON_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if "tutorials" not in page.parts and "```python" in page.read_text("utf-8")
]


def page_name(page: Path) -> str:
    """The page as shown in a failure."""
    return str(page.relative_to(ROOT))


def code_blocks(page: Path, bootstrap_servers: str) -> list[CodeType]:
    """The blocks of a page, compiled so that a traceback shows page and line."""
    text = page.read_text("utf-8")
    compiled = []
    for match in PYTHON_BLOCK.finditer(text):
        code = textwrap.dedent(match["code"]).replace("localhost:9092", bootstrap_servers)
        above = "\n" * text.count("\n", 0, match.start("code"))
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled.append(compile(above + code, page_name(page), "exec", flags=flags, dont_inherit=True))
    return compiled


def run_page(page: Path, bootstrap_servers: str) -> None:
    """Run the blocks of a page in a thread of its own, on an event loop of its own."""
    names: dict[str, object] = {"__name__": page.stem}
    if "reference" in page.parts:
        names |= {name: getattr(aioproducer, name) for name in aioproducer.__all__}
    with asyncio.Runner() as runner:
        for block in code_blocks(page, bootstrap_servers):
            running = eval(block, names)
            if running is not None:
                runner.run(cast("Coroutine[object, object, None]", running))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=page_name)
async def test_code_of_a_page_runs(page: Path, cluster: FakeCluster) -> None:
    """As it stands there."""
    await asyncio.to_thread(run_page, page, cluster.bootstrap_servers)
