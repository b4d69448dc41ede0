"""Every page of the documentation is found from its first page."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"
LINK = re.compile(r"\]\((?P<target>[^)#\s]+\.md)")


def test_every_page_is_linked_from_the_index() -> None:
    linked = {match["target"] for match in LINK.finditer((DOCS / "index.md").read_text("utf-8"))}

    pages = {str(page.relative_to(DOCS)) for page in DOCS.glob("*/*.md")}
    assert pages - linked == set()
