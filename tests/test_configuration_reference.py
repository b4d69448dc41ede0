"""The configuration page is made from the code, and current."""

from aioproducer.config.producer_config import option_kinds
from docs.generate_configuration import PAGE, render


def test_configuration_page_is_current() -> None:
    assert PAGE.read_text() == render()


def test_configuration_page_has_every_option() -> None:
    """An option without a docstring would be missing there."""
    sections = [line for line in render().splitlines() if line.startswith("## `")]

    assert sections == [f"## `{name}`" for name in ["bootstrap_servers", *option_kinds()]]
