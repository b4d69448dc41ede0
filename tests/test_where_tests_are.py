"""Where the tests of a module are: under its own name, or where the table of `tests/README.md` says."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "aioproducer"
TABLE = (TESTS / "README.md").read_text("utf-8").partition("|---|---|\n")[2]
ROWS = [row.split("|")[1:3] for row in TABLE.splitlines()]
LISTED = [name for modules, _ in ROWS for name in re.findall(r"`([^`]+)`", modules)]
MODULES = [
    path.relative_to(PACKAGE)
    for path in sorted(PACKAGE.rglob("*"))
    if path.suffix in {".py", ".pyx"} and not path.stem.startswith("__")
]


def has_tests_of_its_name(module: Path, tests: Path = TESTS) -> bool:
    """Whether the folder of a module, or one above it, has tests of the module's name."""
    folders = [folder.lstrip("_") for folder in module.parts[:-1]]
    name = module.stem.lstrip("_")
    names = [name, f"{folders[-1]}_{name}"] if folders else [name]
    places = [tests.joinpath(*folders[:count]) for count in range(len(folders), 0, -1)] or [tests]
    found = [path.stem.removeprefix("test_") for place in places for path in place.glob("test_*.py")]
    return any(each == name or each.startswith(f"{name}_") for each in found for name in names)


def test_table_has_every_module_without_tests_of_its_name() -> None:
    assert sorted(LISTED) == sorted(str(module) for module in MODULES if not has_tests_of_its_name(module))


@pytest.mark.parametrize("modules, tests", ROWS, ids=[modules.strip(" `") for modules, _ in ROWS])
def test_tests_in_the_table_exist(modules: str, tests: str) -> None:
    links = re.findall(r"\[([^]]+)\]\(([^)]+)\)", tests)

    assert links, modules
    assert all(shown == path and (TESTS / path).is_file() for shown, path in links)


def test_tests_of_a_name_are_in_the_modules_folder(tmp_path: Path) -> None:
    module = Path("integrations", "asgi", "_readiness.py")
    assert not has_tests_of_its_name(module, tmp_path)

    (tmp_path / "producer").mkdir()
    (tmp_path / "producer" / "test_readiness.py").touch()
    assert not has_tests_of_its_name(module, tmp_path)

    (tmp_path / "integrations").mkdir()
    (tmp_path / "integrations" / "test_asgi_readiness.py").touch()
    assert has_tests_of_its_name(module, tmp_path)
