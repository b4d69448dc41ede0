"""The public names: there, documented, and nothing besides."""

import importlib
import inspect
from types import ModuleType

import pytest

PUBLIC_MODULES = [
    "aioproducer",
    "aioproducer.testing.kafka",
    "aioproducer.compat",
    "aioproducer.integrations.aiokafka",
    "aioproducer.integrations.asgi",
    "aioproducer.integrations.opentelemetry",
    "aioproducer.integrations.prometheus",
    "aioproducer.integrations.schema_registry",
    "aioproducer.testing",
]


@pytest.fixture(params=PUBLIC_MODULES)
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_every_exported_name_is_there(module: ModuleType) -> None:
    missing = [name for name in module.__all__ if not hasattr(module, name)]

    assert missing == []
    assert len(module.__all__) == len(set(module.__all__))


def test_every_public_name_is_exported(module: ModuleType) -> None:
    public = {name for name, value in vars(module).items() if name[0] != "_" and not inspect.ismodule(value)}

    assert public - set(module.__all__) == set()


def test_every_exported_class_and_function_is_documented(module: ModuleType) -> None:
    exported = {name: getattr(module, name) for name in module.__all__}
    undocumented = [
        name
        for name, value in exported.items()
        if (inspect.isclass(value) or inspect.isroutine(value)) and not value.__doc__
    ]

    assert undocumented == []
