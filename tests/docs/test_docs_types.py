"""Every Python block in the README and the documentation, and every example, passes `mypy --strict`."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.code_blocks import CLOUDS, PAGES, ROOT, code_blocks, is_tutorial, page_name

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


def written_to(folder: Path, name: str, blocks: list[tuple[int, str]], *, front: str = "") -> None:
    lines = front.splitlines()
    for above, code in blocks:
        lines += [""] * (above - len(lines))
        lines += (textwrap.indent(code, "    ") if front else code).splitlines()
    (folder / f"{name}.py").write_text("\n".join([*lines, "    ..." if front else "", ""]), "utf-8")


def write_page(folder: Path, page: Path) -> None:
    name = page_name(page).removesuffix(".md").replace("/", "__")
    if is_tutorial(page):
        for block in code_blocks(page):
            written_to(folder, f"{name}__{block[0]}", [block])
    else:
        written_to(folder, name, code_blocks(page), front=NAMES if "reference" in page.parts else PAGE)


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
