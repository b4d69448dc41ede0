"""What an import costs: `import aioproducer` and the help of the command load nearly nothing."""

import ast
import importlib
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer
from aioproducer.cli.main import COMMANDS, command_line

PACKAGE = Path(aioproducer.__file__).parent
RUN = """
sys.argv = ["aioproducer", "{option}"]
from aioproducer.cli.main import app
try:
    app()
except SystemExit:
    pass
"""
OF_STRUCTLOG = {"structlog", "rich", "pygments", "attr"}


def modules_after(program: str) -> set[str]:
    """The modules that a program has loaded at its end."""
    code = f"import sys\n{program}\nprint(*sys.modules, file=sys.__stdout__)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ended.stdout.splitlines()[-1].split())


def cpu_s(*arguments: str, runs: int = 5) -> float:
    """The least processor time of a Python process with these arguments."""
    found = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def test_import_of_the_package_loads_no_part_of_it() -> None:
    loaded = modules_after("import aioproducer") - modules_after("")

    assert {name for name in loaded if name.startswith("aioproducer")} == {"aioproducer", "aioproducer._version"}
    assert not loaded & {"asyncio", "ssl", "json", *OF_STRUCTLOG}


def test_producer_loads_nothing_that_only_structlog_needs() -> None:
    """They are installed here; structlog is the application's to load."""
    loaded = modules_after("from aioproducer import Producer; Producer('h:1')")

    assert not loaded & {*OF_STRUCTLOG, "typer", "uvloop", "aiokafka", "kio"}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_list_of_commands_loads_none_of_them(option: str) -> None:
    loaded = modules_after(RUN.format(option=option))

    assert {name for name in loaded if name.startswith("aioproducer.cli.")} == {
        "aioproducer.cli.main",
        "aioproducer.cli.process",
    }
    assert not loaded & {"aioproducer.config", "aiokafka", "structlog", "pyarrow"}


@pytest.mark.parametrize("name", COMMANDS)
def test_list_of_commands_has_their_own_first_sentence(name: str) -> None:
    (command,) = command_line([name]).registered_commands or [None]
    groups = command_line([name]).registered_groups
    own = command.callback.__doc__ if command and command.callback else groups[0].typer_instance.info.help

    assert " ".join(str(own).partition("\n\n")[0].split()) == COMMANDS[name]


def test_names_are_those_that_type_checkers_see() -> None:
    """A name is looked up module by module, and the imports beside it say where it is."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    shown = {
        alias.name: str(node.module)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert set(shown) == set(aioproducer.__all__) - {"__version__"}
    for name, module in shown.items():
        assert getattr(aioproducer, name) is getattr(importlib.import_module(module), name)


def test_public_modules_are_attributes_without_an_import() -> None:
    program = "import aioproducer; print(aioproducer.errors.KafkaError, aioproducer.security, aioproducer.config)"

    assert "aioproducer.errors" in modules_after(program)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = aioproducer.nothing


@pytest.mark.slow
@pytest.mark.timing
def test_import_costs_less_than_one_of_aiokafka() -> None:
    """And the help of the command about as much: each is measured in this one run."""
    theirs = cpu_s("-c", "import aiokafka")

    assert cpu_s("-c", "import aioproducer") <= 1.3 * theirs
    assert cpu_s("-m", "aioproducer", "--version") <= 2.7 * theirs
    assert cpu_s("-m", "aioproducer", "--help") <= 2.7 * theirs
