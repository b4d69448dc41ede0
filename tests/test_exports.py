"""The public names: there, documented, and nothing besides."""

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import aioproducer

PACKAGE = Path(aioproducer.__file__).parent
PUBLIC_MODULES = [
    ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    for path in sorted(PACKAGE.rglob("__init__.py"))
    if "__all__" in path.read_text("utf-8") and path.relative_to(PACKAGE).parts[0] != "cli"  # the command
]
NOT_NAMES = {"annotations", "TYPE_CHECKING"}


@pytest.fixture(params=PUBLIC_MODULES)
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_every_exported_name_is_there(module: ModuleType) -> None:
    missing = [name for name in module.__all__ if not hasattr(module, name)]

    assert missing == []
    assert len(module.__all__) == len(set(module.__all__))


def test_every_public_name_is_exported(module: ModuleType) -> None:
    public = {name for name, value in vars(module).items() if name[0] != "_" and not inspect.ismodule(value)}

    assert public - set(module.__all__) - NOT_NAMES == set()


def test_every_exported_class_and_function_is_documented(module: ModuleType) -> None:
    exported = {name: getattr(module, name) for name in module.__all__}
    undocumented = [
        name
        for name, value in exported.items()
        if (inspect.isclass(value) or inspect.isroutine(value)) and not value.__doc__
    ]

    assert undocumented == []
