"""The pages that are made from the code are current."""

import importlib
from types import ModuleType

import pytest

from docs import generate_api, generate_errors, generate_metrics, generate_protocol_versions


@pytest.mark.parametrize("generator", [generate_api, generate_errors, generate_metrics, generate_protocol_versions])
def test_page_is_current(generator: ModuleType) -> None:
    """Else: run the script that the page names in its first line."""
    assert generator.PAGE.read_text("utf-8") == generator.render()


def test_api_page_has_every_public_name() -> None:
    """Once; a new one needs its place there."""
    modules = ["aioproducer", "aioproducer.broker", "aioproducer.compat", "aioproducer.testing"]
    public = [name for module in modules for name in importlib.import_module(module).__all__]

    assert sorted(generate_api.names()) == sorted(public)
