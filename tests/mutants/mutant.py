"""What a mutant is: one deliberate bug, as exact text to replace in a copy of the package."""

from dataclasses import dataclass
from pathlib import Path


class StaleMutantError(Exception):
    """The code has moved on: what a mutant replaces is not there, or not once. The mutant must be written anew."""


@dataclass(frozen=True, slots=True)
class Change:
    """One replacement in one file."""

    file: str
    """Below the package's folder."""

    old: str
    """Stands there exactly once."""

    new: str

    def replaced(self, text: str) -> str:
        """Return the text with the change made.

        Raises:
            StaleMutantError: the old text is not there exactly once.
        """
        if (count := text.count(self.old)) != 1:
            raise StaleMutantError(f"{self.file} holds {count} times what is to be replaced:\n{self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A bug that a person could have made."""

    name: str
    breaks: str
    """Which promise, by the name that the simulation gives to what it found, or in words."""

    families: tuple[str, ...] = ()
    """Of the simulation: those that find it fastest, tried first."""

    tests: tuple[str, ...] = ()
    """For bugs that no caller and no broker can see: tests that find it, tried before other families."""

    changes: tuple[Change, ...]

    @property
    def native_modules(self) -> tuple[str, ...]:
        """Extension modules that have to be built anew, by the name of their source without its suffix."""
        paths = (Path(change.file) for change in self.changes)
        return tuple(sorted({path.stem for path in paths if path.suffix == ".pyx"}))

    def apply(self, package: Path) -> None:
        """Change the files of a copy of the package.

        Raises:
            StaleMutantError: a change does not fit; the copy is then of no use.
        """
        for change in self.changes:
            path = package / change.file
            path.write_text(change.replaced(path.read_text("utf-8")), "utf-8")
