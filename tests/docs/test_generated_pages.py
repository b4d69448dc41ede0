"""The pages that are made from the code are current."""

from types import ModuleType

import pytest

from docs import generate_errors, generate_metrics, generate_protocol_versions


@pytest.mark.parametrize("generator", [generate_errors, generate_metrics, generate_protocol_versions])
def test_page_is_current(generator: ModuleType) -> None:
    """Else: run the script that the page names in its first line."""
    assert generator.PAGE.read_text("utf-8") == generator.render()
