"""A cell to be written by hand."""

from pathlib import Path

import pytest

from tests.programs.chaos.written_cell import WrittenCell


@pytest.fixture
def cell(tmp_path: Path) -> WrittenCell:
    """A cell in which nothing happened yet."""
    return WrittenCell(tmp_path)
