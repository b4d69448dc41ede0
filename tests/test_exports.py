"""The public names: there, documented, and nothing besides."""

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import aioproducer

PACKAGE = Path(aioproducer.__file__).parent
PUBLIC_MODULES = [
    ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    for path in sorted(PACKAGE.rglob("__init__.py"))
    if "__all__" in path.read_text("utf-8") and path.relative_to(PACKAGE).parts[0] != "cli"  # the command
]
NOT_NAMES = {"annotations", "TYPE_CHECKING"}


MODULES = [importlib.import_module(name) for name in PUBLIC_MODULES]


def test_every_exported_name_is_there() -> None:
    named = [(module.__name__, name) for module in MODULES for name in module.__all__]

    assert [(module, name) for module, name in named if not hasattr(importlib.import_module(module), name)] == []
    assert len(named) == len(set(named))


def test_every_public_name_is_exported() -> None:
    hidden = {module.__name__: public_names(module) - set(module.__all__) - NOT_NAMES for module in MODULES}

    assert {module: names for module, names in hidden.items() if names} == {}


def public_names(module: ModuleType) -> set[str]:
    return {name for name, value in vars(module).items() if name[0] != "_" and not inspect.ismodule(value)}


def test_every_exported_class_and_function_is_documented() -> None:
    exported = [(module.__name__, name, getattr(module, name)) for module in MODULES for name in module.__all__]
    undocumented = [
        f"{module}.{name}"
        for module, name, value in exported
        if (inspect.isclass(value) or inspect.isroutine(value)) and not value.__doc__
    ]

    assert undocumented == []
