"""Rows as Spark's `to_json` writes them, and columns as its `CAST(... AS STRING)`, without Spark.

Column by column and type by type, since a Python object per value is slow. Times are in UTC.

Source: org.apache.spark.sql.catalyst.json.JacksonGenerator and expressions.ToStringBase; Java's `Double.toString` since
Java 19: before, it has a digit more than needed for some numbers, such as 2**-44.
"""

import base64
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_NULL: Final = "null"
_ESCAPES: Final = {
    **{code: f"\\u{code:04X}" for code in range(0x20)},
    **str.maketrans({'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}),
}
_NOT_FINITE: Final = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_WHOLE: Final = r"^(-?(?:0|[1-9]\d{0,6}))$"
_PLAIN: Final = r"^-?(0\.0|0\.[1-9]\d*|0\.0[1-9]\d*|0\.00[1-9]\d*|[1-9]\d{0,6}\.\d+)$"
"""Text of a number that Java writes without an exponent, as Arrow does: at least 0.001, less than 10,000,000."""
_SMALLEST_PLAIN: Final = -3
_LARGEST_PLAIN: Final = 6
"""Exponents of the first digit of such numbers."""


def json_objects(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object without its nulls, as Spark's `to_json` does; bytes are base64."""
    return _objects(batch.schema.names, batch.columns).cast(pa.binary())


def as_text(column: pa.Array) -> pa.Array:
    """Return bytes and text as they are, and anything else as Spark casts it to a string."""
    column = _stored(column)
    kind, types = column.type, pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_string(kind) or types.is_large_string(kind):
        return column
    if types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return column.cast(pa.binary())
    if types.is_decimal(kind):
        return _plain_decimals(column)
    if types.is_timestamp(kind):
        texts = pc.strftime(_in_utc(column, "us"), format="%Y-%m-%d %H:%M:%S")
        return pc.replace_substring_regex(texts, r"\.?0*$", "")  # six digits behind the point
    return _java_floats(column) if types.is_floating(kind) else column.cast(pa.string())


def _plain_decimals(column: pa.Array) -> pa.Array:
    """Return decimals without an exponent, as Spark casts them since its ANSI mode is the default."""
    texts = column.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py() is not True:
        return texts
    return pa.array((None if text is None else f"{Decimal(text):f}" for text in texts.to_pylist()), pa.string())


def _stored(column: pa.Array) -> pa.Array:
    """Return a column without what Arrow alone knows of it; UUIDs, which Spark does not read, as their usual text."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column.type, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    if isinstance(column.type, pa.BaseExtensionType):
        return column.storage
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column  # Spark takes the number


def _objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    members = [
        pc.binary_join_element_wise(f",{_quoted(name)}:", _json_texts(column), "").fill_null("")
        for name, column in zip(names, columns, strict=True)
    ]
    # Not `null_handling="skip"`, and no slice: pyarrow 26 is wrong about rows of which every part is null or empty.
    objects = pc.binary_join_element_wise("{", *members, "}", "")
    return pc.replace_substring(objects, "{,", "{", max_replacements=1)


def _json_texts(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value, null for a null."""
    column = _stored(column)
    kind, types = column.type, pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        texts = column.cast(pa.string())
    elif types.is_floating(kind):
        texts = _in_quotes(_java_floats(column), pc.invert(pc.is_finite(column.cast(pa.float64()))))
    elif types.is_nested(kind):
        texts = _nested(column)
    elif types.is_temporal(kind):
        texts = _in_quotes(_moments(column) if types.is_timestamp(kind) else column.cast(pa.string()))
    elif types.is_string(kind) or types.is_large_string(kind):
        texts = _quoted_texts(column)
    else:
        plain = [None if value is None else _plain(value) for value in column.to_pylist()]
        texts = _quoted_texts(pa.array(plain, pa.string()))
    return texts


def _nested(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_struct(kind):
        objects = _objects([field.name for field in kind], column.flatten())
        return pc.if_else(column.is_valid(), objects, pa.scalar(None, pa.string()))
    if pa.types.is_map(kind):
        offsets = column.offsets.to_pylist()
        begin, length = offsets[0], offsets[-1] - offsets[0]
        keys = _map_keys(column.keys.slice(begin, length))
        items = _json_texts(column.items.slice(begin, length)).fill_null(_NULL)
        members = pc.binary_join_element_wise(keys, ":", items, "").to_pylist()
        ends = [offset - begin for offset in offsets]
        return _joined("{", members, ends, column.is_valid().to_pylist(), "}")
    members = _json_texts(column.flatten()).fill_null(_NULL).to_pylist()
    lengths = pc.list_value_length(column).fill_null(0).to_pylist()
    return _joined("[", members, [0, *accumulate(lengths)], column.is_valid().to_pylist(), "]")


def _joined(  # noqa: PLR0917  # the parts in their order
    begin: str, members: Sequence[str], ends: Iterable[int], is_valid: Sequence[bool], end: str
) -> pa.Array:
    texts = (f"{begin}{','.join(members[first:last])}{end}" for first, last in pairwise(ends))
    return pa.array((text if valid else None for text, valid in zip(texts, is_valid, strict=True)), pa.string())


def _map_keys(keys: pa.Array) -> pa.Array:
    """Return the keys in quotes: Spark writes the number behind a date or time."""
    kind = keys.type
    if pa.types.is_date(kind):
        keys = keys.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        keys = keys.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_nested(kind):
        keys = _json_texts(keys)
    elif pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        keys = pa.array([_plain(key) for key in keys.to_pylist()], pa.string())
    elif pa.types.is_decimal(kind):
        keys = keys.cast(pa.string())  # with an exponent, as values in JSON
    return _quoted_texts(as_text(keys))


def _quoted_texts(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, "[\\x00-\\x1f]")).as_py() is True:
        return pa.array((None if text is None else _quoted(text) for text in column.to_pylist()), pa.string())
    escaped = pc.replace_substring(pc.replace_substring(column.cast(pa.string()), "\\", "\\\\"), '"', '\\"')
    return _in_quotes(escaped)


def _in_quotes(texts: pa.Array, which: pa.Array | None = None) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    return quoted if which is None else pc.if_else(which, quoted, texts)


def _moments(column: pa.Array) -> pa.Array:
    """Return times in milliseconds, as Spark's default `timestampFormat`."""
    form = "%Y-%m-%dT%H:%M:%S" if column.type.tz is None else "%Y-%m-%dT%H:%M:%SZ"
    return pc.strftime(_in_utc(column, "ms"), format=form)


def _in_utc(column: pa.Array, unit: str) -> pa.Array:
    kind = column.type
    if kind.unit in {"us", "ns"} and unit == "ms":
        column = pc.floor_temporal(column.cast(pa.timestamp(kind.unit)), unit="millisecond")  # also before 1970
    return column.cast(pa.timestamp(unit), safe=False).cast(pa.timestamp(unit, None if kind.tz is None else "UTC"))


def _java_floats(column: pa.Array) -> pa.Array:
    """Return numbers as Java writes them: 1.0, 1.0E7, NaN."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = pc.replace_substring_regex(column.cast(pa.string()), _WHOLE, r"\1.0")
    if pc.all(pc.match_substring_regex(texts, _PLAIN)).as_py() is not False:
        return texts
    exact = column.cast(pa.float64()).to_pylist()
    pairs = zip(texts.to_pylist(), exact, strict=True)
    return pa.array((None if value is None else _java_float(text, value) for text, value in pairs), pa.string())


def _java_float(text: str, value: float) -> str:
    """Return a number as Java writes it, from its shortest text."""
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    sign, digits, _ = number = Decimal(text).as_tuple()
    if not any(digits):
        return "-0.0" if sign else "0.0"
    significant = "".join(map(str, digits)).rstrip("0")
    exponent = len(digits) + int(number.exponent) - 1
    if len(significant) == 1:  # Java takes two digits, and of those the nearest: 4.9E-324
        mantissa, _, power = f"{abs(value):.1e}".partition("e")
        significant, exponent = mantissa.replace(".", ""), int(power)
    if not _SMALLEST_PLAIN <= exponent <= _LARGEST_PLAIN:
        whole, rest, suffix = significant[0], significant[1:], f"E{exponent}"
    elif exponent < 0:
        whole, rest, suffix = "0", "0" * (-exponent - 1) + significant.rstrip("0"), ""
    else:
        padded = significant.ljust(exponent + 1, "0")
        whole, rest, suffix = padded[: exponent + 1], padded[exponent + 1 :], ""
    return f"{'-' * sign}{whole}.{rest or '0'}{suffix}"


def _plain(value: object) -> str:
    """Return what JSON has no type for as text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
