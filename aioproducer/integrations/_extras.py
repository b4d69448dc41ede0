"""The error of an integration whose library is not installed."""

from __future__ import annotations

from importlib import import_module


def missing(need: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error that names the extra; `need` says who needs which library."""
    return ModuleNotFoundError(f"{need}: pip install 'aioproducer[{extra}]'", name=error.name)


def check_installed(need: str, extra: str, *, module: str) -> None:
    """Import a module of an extra.

    Raises:
        ModuleNotFoundError: it is not installed; names the extra.
    """
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        raise missing(need, extra, error) from error
