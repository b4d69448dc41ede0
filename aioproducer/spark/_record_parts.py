"""Parts of a record that have a column, and columns of a file that become a record. Needs no pyspark; no I/O."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Parts of a record that have a column."""

    present: frozenset[str]
    has_seconds: bool
    """The timestamp is a double of seconds since 1970."""

    def __contains__(self, part: object) -> bool:
        return part in self.present


class RowShape(NamedTuple):
    """Columns of a file that become the key and the value of a record."""

    key: str | None
    """None for records without a key."""
    value: str | None
    """None for a JSON object of all columns."""

    @property
    def columns(self) -> SinkColumns:
        """Columns of the batches that are sent."""
        return SinkColumns(frozenset({"value"} if self.key is None else {"key", "value"}), has_seconds=False)
