"""The Python blocks of a page of the documentation."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
CLOUDS = Path(__file__).parent / "clouds"
"""The parts of cloud providers' libraries that pages use, in the place of the libraries."""
PAGES = [
    page for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if "```python" in page.read_text("utf-8")
]
SPARK_BLOCK = re.compile(r"\bspark\b|format\(\"aioproducer\"\)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
PYTHON_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def is_tutorial(page: Path) -> bool:
    return "tutorials" in page.parts


class CodeBlock(NamedTuple):
    """One block of a page."""

    above: int
    """Lines of the page before the block."""

    code: str
    is_shown: bool
    """Whether a reader sees it; otherwise it stands in an HTML comment, and only checks what was shown."""


def code_blocks(page: Path, *, of_spark: bool = False) -> list[CodeBlock]:
    """Return the blocks of a page in their order.

    Args:
        page: of the documentation.
        of_spark: the blocks of a page on Spark, and those that say `spark`; otherwise the others.
    """
    text = page.read_text("utf-8")
    hidden = [match.span() for match in COMMENT.finditer(text)]
    return [
        CodeBlock(
            above=text.count("\n", 0, match.start("code")),
            code=textwrap.dedent(match["code"]),
            is_shown=not any(start < match.start() < end for start, end in hidden),
        )
        for match in PYTHON_BLOCK.finditer(text)
        if is_of_spark(page, match["code"]) == of_spark and not is_of_other_tests(match["code"])
    ]


def is_of_other_tests(code: str) -> bool:
    """Whether a block needs Kerberos: tests/secured runs it, on real brokers; or Django: tests/outbox, in a project."""
    return "GSSAPI" in code or "from django" in code


def is_of_spark(page: Path, code: str) -> bool:
    """Whether a block needs Spark, which only the environment of `nox -s spark` has."""
    return page.name == "spark.md" or SPARK_BLOCK.search(code) is not None
