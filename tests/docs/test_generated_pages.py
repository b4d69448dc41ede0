"""The pages that are made from the code are current."""

import importlib
import re
from types import ModuleType

import pytest

from aioproducer.spark.options import SinkOptions, SourceOptions
from docs import (
    generate_api,
    generate_errors,
    generate_metrics,
    generate_protocol_versions,
    generate_spark_options,
)
from tests.public_names import public_names

GENERATORS = [generate_api, generate_errors, generate_metrics, generate_protocol_versions, generate_spark_options]


@pytest.mark.parametrize("generator", GENERATORS)
def test_page_is_current(generator: ModuleType) -> None:
    """Else: run the script that the page names in its first line."""
    assert generator.PAGE.read_text("utf-8") == generator.render()


def test_api_page_has_every_public_name() -> None:
    """Once; a new one needs its place there."""
    public = [name for module in generate_api.modules() for name in public_names(importlib.import_module(module))]

    assert sorted(generate_api.names()) == sorted(public)


def test_what_is_the_packages_affair_in_one_class_is_so_in_all() -> None:
    """The same name would have to be left out of each class that has it."""
    published = re.findall(r"^#### `\w+\.(\w+)`", generate_api.render(), re.MULTILINE)

    assert len(published) > 100
    assert set(published) & {name.partition(".")[2] for name in generate_api.FOR_THE_PACKAGE} == set()


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
