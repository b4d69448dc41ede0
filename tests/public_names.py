"""Public names of a module."""

import inspect
from types import ModuleType


def public_names(module: ModuleType) -> list[str]:
    """Return `__all__`; without it, the classes and functions that the module defines."""
    declared: list[str] | None = getattr(module, "__all__", None)
    if declared is not None:
        return declared
    return [name for name, value in vars(module).items() if name[0] != "_" and is_defined_in(module, value)]


def is_defined_in(module: ModuleType, value: object) -> bool:
    """Whether a class or function was written there, not imported."""
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__
