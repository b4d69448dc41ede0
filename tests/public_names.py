"""Which names of a module users may import."""

import inspect
from types import ModuleType


def public_names(module: ModuleType) -> list[str]:
    """What `__all__` says; where a module of its own library has none, the classes and functions it defines."""
    declared: list[str] | None = getattr(module, "__all__", None)
    if declared is not None:
        return declared
    return [name for name, value in vars(module).items() if name[0] != "_" and is_defined_in(module, value)]


def is_defined_in(module: ModuleType, value: object) -> bool:
    """Whether a class or function was written there, not imported."""
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__
