"""Configuration of Sphinx, for the site: `nox -s docs`.

The pages are plain Markdown, to be read on GitHub as they are. For the site, the tree of pages is made from the lists
of links in `index.md`, and a link out of this folder becomes the path it leads to. Nothing is fetched while building.
"""
# ruff: noqa: INP001  # a script beside the pages, not a package

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS: Final = Path(__file__).parent

project = "aioproducer"
version = release = runpy.run_path(str(DOCS.parent / "aioproducer" / "_version.py"))["VERSION"]  # needs no build
copyright = "the authors of aioproducer"  # noqa: A001  # Sphinx's name

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
highlight_language = "none"
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"aioproducer {version}"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["site"]
html_css_files = ["tables.css"]
html_theme_options = {"navigation_with_keys": True}

_GROUP: Final = re.compile(r"^## (?P<title>.+)\n+(?P<links>(?:- \[.*\n?)+)", re.MULTILINE)
_PAGE: Final = re.compile(r"^- \[[^\]]+\]\((?P<page>[^)]+)\.md\)", re.MULTILINE)
_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#\s]*)\)")


def trees(index: str) -> Iterator[str]:
    """Yield a hidden toctree for each of the index's lists of links, under its heading."""
    for group in _GROUP.finditer(index):
        pages = "\n".join(_PAGE.findall(group["links"]))
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {group['title']}\n\n{pages}\n```\n"


def adapt(_: Sphinx, page: str, source: list[str]) -> None:
    """Give a page what only the site needs."""
    folder = (DOCS / page).parent
    source[0] = _LINK.sub(lambda link: _within(folder, link), source[0])
    if page == "index":
        source[0] += "".join(trees(source[0]))


def _within(folder: Path, link: re.Match[str]) -> str:
    """Keep a link to a page or, which may be downloaded, a file; of a folder, say where it is."""
    target = (folder / link["target"]).resolve()
    if target.is_relative_to(DOCS) or target.is_file():
        return link[0]
    return f"{link['text']} (`{target.relative_to(DOCS.parent)}`)"


def setup(app: Sphinx) -> None:
    """Be called by Sphinx."""
    from pygments.lexers.special import TextLexer  # noqa: PLC0415  # comes with Sphinx; a test imports this file

    app.connect("source-read", adapt)
    app.add_lexer("mermaid", TextLexer)  # GitHub draws such a diagram; a site would need a script from elsewhere
