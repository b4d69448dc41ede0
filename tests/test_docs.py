"""The documentation does not rot: links lead somewhere, Python in it parses, the README's commands exist."""

import ast
import importlib.metadata
import re
import textwrap
from pathlib import Path

import pytest

from aioproducer.testing import ApiKey

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)[^)]*\)")
INSTALL = re.compile(r"pip install [^`\n]*")
PYTHON_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_relative_links_lead_to_files(page: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(page.read_text("utf-8"))]
    dead = [target for target in targets if "://" not in target and not (page.parent / target).exists()]

    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_blocks_parse(page: Path) -> None:
    for match in PYTHON_BLOCK.finditer(page.read_text("utf-8")):
        compile(textwrap.dedent(match["code"]), page_name(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_docstring_in_contributing_is_that_of_the_source() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    quotes = re.findall(r"complete docstring, from `(?P<file>[^`]+)`:\n\n```python\n(?P<code>.*?)```", text, re.DOTALL)
    [(file, code)] = quotes

    assert textwrap.indent(code, "    ") in (ROOT / "aioproducer" / file).read_text("utf-8")


def test_readme_has_one_line_for_the_demo_and_one_for_the_tests() -> None:
    """Each makes the environment, installs nox and runs its session; CI runs the second."""
    lines = [line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if "nox -s" in line]

    assert [line.rpartition(" ")[2] for line in lines] == ["demo", "tests"]
    assert all("python3 -m venv .venv && .venv/bin/python -m pip install -q nox && " in line for line in lines)


def test_changelog_has_the_version_or_unreleased_on_top() -> None:
    version = importlib.metadata.version("aioproducer")
    first = re.search(r"^## \[(?P<version>[^\]]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert first is not None
    assert first["version"] in {version, "Unreleased"}


def test_install_command_in_the_docs_works() -> None:
    """The package is on no index yet; an editable install hides the stubs from mypy."""
    told = [*PAGES, *ROOT.glob("examples/*.py")]
    commands = [line for page in told if page.name != "CONTRIBUTING.md" for line in INSTALL.findall(page.read_text())]

    assert [
        command for command in commands if {"-e", "aioproducer"} & set(command.split()) or "'aioproducer[" in command
    ] == []
    assert "pip install '.[cli]'" in commands


def test_testing_page_names_the_unsupported_tool_option() -> None:
    """OffsetDelete; remove the sentence when the embedded cluster answers it."""
    page = (ROOT / "docs/how-to/test_your_code.md").read_text("utf-8")

    assert ("OFFSET_DELETE" in ApiKey.__members__) is ("OffsetDelete is not answered" not in page)


NOT_PROSE = re.compile(r"^(```|~~~).*?^\1|^\|.*?$|^#.*?$|<!--.*?-->", re.DOTALL | re.MULTILINE)
END_OF_SENTENCE = re.compile(r"(?<=[.?!:])\**\s+|\n\s*\n|\n(?=\s*[-*] )")
LONGEST_SENTENCE = 30


def test_readme_has_no_sentence_over_thirty_words() -> None:
    prose = NOT_PROSE.sub("\n\n", (ROOT / "README.md").read_text("utf-8"))
    sentences = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each) for each in END_OF_SENTENCE.split(prose)]

    assert len(sentences) > 50
    assert [each for each in sentences if len(each.split()) > LONGEST_SENTENCE] == []
