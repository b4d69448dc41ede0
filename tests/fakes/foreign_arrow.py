"""Columns by Arrow's C data interface that another library made, and not always as it should."""

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

SCHEMA_NAME: Final = b"arrow_schema"
ARRAY_NAME: Final = b"arrow_array"


class Schema(ctypes.Structure):
    """ArrowSchema."""


class Array(ctypes.Structure):
    """ArrowArray."""


ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ReleaseArray),
    ("private_data", ctypes.c_void_p),
]

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@dataclass(eq=False)
class ForeignColumn:
    """A column that says of itself whatever it was given; `released` counts by structure.

    Args:
        format: Arrow's name of the type.
        buffers: of the array; None is a null pointer.
        length: rows.
        children: of a list or a struct.
    """

    format: bytes
    buffers: Sequence[bytes | None]
    length: int
    children: Sequence["ForeignColumn"] = ()
    name: bytes = b"value"
    offset: int = 0
    null_count: int = 0
    n_buffers: int | None = None
    n_children: int | None = None
    is_released: bool = False
    released: dict[str, int] = field(default_factory=lambda: {"schema": 0, "array": 0}, init=False)
    _kept: list[object] = field(default_factory=list, init=False)

    def schema(self) -> Schema:
        children = (ctypes.POINTER(Schema) * max(len(self.children), 1))()
        for number, child in enumerate(self.children):
            children[number] = ctypes.pointer(child.schema())
        count = len(self.children) if self.n_children is None else self.n_children
        release = ReleaseSchema(self._release_schema)
        made = Schema(self.format, self.name, None, 2, count, children, None, release, None)
        self._kept += [children, release, made]
        return made

    def array(self) -> Array:
        blocks = [None if data is None else ctypes.create_string_buffer(data, len(data)) for data in self.buffers]
        addresses = [None if block is None else ctypes.addressof(block) for block in blocks]
        buffers = (ctypes.c_void_p * max(len(blocks), 1))(*addresses)
        children = (ctypes.POINTER(Array) * max(len(self.children), 1))()
        for number, child in enumerate(self.children):
            children[number] = ctypes.pointer(child.array())
        release = ReleaseArray() if self.is_released else ReleaseArray(self._release_array)
        made = Array(
            self.length,
            self.null_count,
            self.offset,
            len(blocks) if self.n_buffers is None else self.n_buffers,
            len(self.children) if self.n_children is None else self.n_children,
            buffers,
            children,
            None,
            release,
            None,
        )
        self._kept += [blocks, buffers, children, release, made]
        return made

    def _release_schema(self, schema: "ctypes._Pointer[Schema]") -> None:
        self.released["schema"] += 1
        schema.contents.release = ReleaseSchema()

    def _release_array(self, array: "ctypes._Pointer[Array]") -> None:
        self.released["array"] += 1
        array.contents.release = ReleaseArray()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return (self._capsule(self.schema(), Schema, SCHEMA_NAME), self._capsule(self.array(), Array, ARRAY_NAME))

    def _capsule(self, made: Schema | Array, kind: type[Schema | Array], name: bytes) -> object:
        def destroy(capsule: int) -> None:
            held = kind.from_address(_pointer_of(capsule, name))
            if held.release:
                held.release(ctypes.pointer(held))

        destructor = Destructor(destroy)
        self._kept.append(destructor)
        return _new_capsule(ctypes.addressof(made), name, ctypes.cast(destructor, ctypes.c_void_p))


def rows_of(*columns: ForeignColumn, length: int) -> ForeignColumn:
    return ForeignColumn(b"+s", [None], length, columns, name=b"")


def numbers(kind: str, *found: int) -> bytes:
    return struct.pack(f"={len(found)}{kind}", *found)
