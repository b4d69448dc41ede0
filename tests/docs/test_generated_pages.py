"""The pages that are made from the code are current."""

from types import ModuleType

import pytest

from docs import generate_errors, generate_metrics


@pytest.mark.parametrize("generator", [generate_errors, generate_metrics], ids=["errors", "metrics"])
def test_page_is_current(generator: ModuleType) -> None:
    """Else: python docs/generate_errors.py, python docs/generate_metrics.py."""
    assert generator.PAGE.read_text("utf-8") == generator.render()
