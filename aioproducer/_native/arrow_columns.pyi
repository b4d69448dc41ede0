"""The columns of an Arrow batch, read from Arrow's own buffers."""

from typing import TypeAlias

from aioproducer._native.append_many import Row

Capsules: TypeAlias = tuple[object, object]  # what `__arrow_c_array__` returns: a type, and an array of that type

class ArrowRows:
    """The rows of a batch.

    Args:
        length: how many they are.
        columns: value, key, partition, timestamp, headers; None is a column of nulls.

    Raises:
        TypeError: a column is of a type that has to be converted first.
        ValueError: a column is not what its type says: another length, no buffer, offsets that run backwards.
    """

    length: int

    def __init__(self, length: int, *columns: Capsules | None) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> Row:
        """Return a row as the objects that `send_many` takes."""
