"""The pages that are made from the code are current."""

import asyncio
import importlib
import inspect
import re
from pathlib import Path

import pytest

from aioproducer import errors
from aioproducer.config.producer_config import option_kinds
from aioproducer.spark._options import SinkOptions
from aioproducer.spark._source_options import SourceOptions
from docs import generate_api, generate_configuration, generate_connection_errors, generate_spark_options
from docs.generate_performance import FIGURES_FILE, PAGE, PLOT, page, plot
from tests.benchmarks.report import BenchReport

DOCS = Path(__file__).parent.parent.parent / "docs"
GENERATORS = [path.stem for path in sorted(DOCS.glob("generate_*.py")) if path.stem != "generate_performance"]


@pytest.mark.parametrize("generator", GENERATORS)
def test_page_is_current(generator: str) -> None:
    """Else: run the script that the page names in its first line."""
    module = importlib.import_module(f"docs.{generator}")

    assert module.PAGE.read_text("utf-8") == module.render()


def test_configuration_page_has_every_option() -> None:
    """An option without a docstring would be missing there."""
    sections = [line for line in generate_configuration.render().splitlines() if line.startswith("## `")]

    assert sections == [f"## `{name}`" for name in ["bootstrap_servers", *option_kinds()]]


def test_api_page_has_every_public_name() -> None:
    public = [name for module in generate_api.modules() for name in importlib.import_module(module).__all__]

    assert sorted(generate_api.names()) == sorted(public)


def test_every_error_of_connecting_has_a_row_with_a_remedy() -> None:
    """A new class of error needs a row; `TicketError` belongs to Kerberos alone."""
    page = generate_connection_errors.render()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    classes = {errors.AuthenticationError, *leaves(errors.AuthenticationError), *leaves(errors.TlsError)}
    classes = {each for each in classes if each.__module__ == errors.__name__}  # that a user can meet

    assert [row for row in rows if len(row) != 3 or not all(row)] == []
    assert [each.__name__ for each in classes - {errors.TicketError} if f"`{each.__name__}`" not in page] == []
    assert re.findall(r"`(\w+Error)`", page) == [
        name for name in re.findall(r"`(\w+Error)`", page) if hasattr(errors, name)
    ]
    assert "Traceback" not in page
    assert "AssertionError" not in page


def leaves(kind: type) -> set[type]:
    return {found for below in kind.__subclasses__() for found in ({below} | leaves(below))}


def test_public_classes_have_only_documented_names() -> None:
    """Completion shows what `dir` holds: internal names begin with an underscore."""
    page = generate_api.render()
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^###? |\Z)", page, re.MULTILINE | re.DOTALL))
    undocumented = [
        f"{name}.{member}"
        for name, section in sections.items()
        for member in members(name)
        if f"- `{member}`" not in section and f"#### `{name}.{member}`" not in section
    ]

    assert len(sections) > 40
    assert undocumented == []


def members(name: str) -> list[str]:
    modules = map(importlib.import_module, generate_api.modules())
    value = next(getattr(module, name) for module in modules if hasattr(module, name))
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return []
    parents = (parent for parent in value.__mro__ if not parent.__module__.startswith("aioproducer"))
    inherited = {member for parent in (*parents, asyncio.Future) for member in dir(parent)}
    return [member for member in dir(value) if member[0] != "_" and member not in inherited]


def test_arguments_of_the_api_page_are_one_bullet_each() -> None:
    """A text of two lines is one item, and every item begins with what it is about."""
    sections = re.findall(r"^\*\*(?:Arguments|Raises)\*\*\n\n((?:.+\n)+)", generate_api.render(), re.MULTILINE)
    items = [line for section in sections for line in section.splitlines()]

    assert len(items) > 100
    assert [item for item in items if not item.startswith(("- `", "- [`"))] == []


@pytest.mark.parametrize(
    "model, texts",
    [
        (SinkOptions, generate_spark_options.SINK_TEXTS),
        (SourceOptions, generate_spark_options.SOURCE_TEXTS),
    ],
)
def test_every_option_for_spark_has_a_text(model: type, texts: dict[str, str]) -> None:
    """A new one needs its place in the table."""
    assert generate_spark_options.option_names(model) == set(texts)


def test_performance_page_and_plot_are_current() -> None:
    measured = BenchReport.from_json(FIGURES_FILE.read_text("utf-8"))

    assert PAGE.read_text("utf-8") == page(measured)
    assert PLOT.read_text("utf-8") == plot(measured)
