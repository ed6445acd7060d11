"""Arrow columns as JSON lines, without a Python object per value.

What it is: the writing counterpart of pyarrow's JSON reader, which pyarrow lacks.  Numbers,
booleans, strings, dates and times are turned into JSON by Arrow's own kernels; nested and binary
columns go through Python.

What it is not: a choice of JSON dialects.  NaN and infinities, which JSON lacks, become null;
bytes become base64; dates and times ISO 8601 text; decimals numbers; maps objects if their keys are
texts, else lists of pairs.

Read next: ``connectors/files/file_writers.py``.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["json_column", "json_lines", "json_text", "json_texts"]


def json_text(value: object) -> str:
    """A Python value as JSON on one line."""
    try:
        return json.dumps(value, default=_default, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_default, ensure_ascii=False)


def json_lines(batch: pa.RecordBatch) -> bytes:
    """A record batch as lines of JSON objects."""
    if batch.num_rows == 0:
        return b""
    lines = _objects(batch)
    joined = pc.binary_join(
        pa.LargeListArray.from_arrays([0, len(lines)], lines), pa.scalar("\n", pa.large_string())
    )
    text: bytes = joined[0].as_buffer().to_pybytes()
    return text + b"\n"


def json_texts(batch: pa.RecordBatch) -> list[bytes]:
    """Each record of a batch as a JSON object."""
    texts: list[bytes] = (
        _objects(batch).cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
    )
    return texts


def _objects(batch: pa.RecordBatch) -> pa.Array:
    """A column of JSON objects; its texts are UTF-8 without line breaks."""
    pieces: list[Any] = []
    for index, name in enumerate(batch.schema.names):
        opening = "{" if index == 0 else ","
        pieces.append(
            pa.scalar(f"{opening}{json.dumps(name, ensure_ascii=False)}:", pa.large_string())
        )
        pieces.append(json_column(batch.column(index)))
    if not pieces:
        return pa.array(["{}"] * batch.num_rows, pa.large_string())
    return pc.binary_join_element_wise(
        *pieces,
        pa.scalar("}", pa.large_string()),
        pa.scalar("", pa.large_string()),
        null_handling="replace",
        null_replacement="null",
    )


def json_column(column: pa.Array) -> pa.Array:
    """Each value as JSON text; null stays null."""
    kind = column.type
    types = pa.types
    if types.is_dictionary(kind):
        return json_column(column.dictionary_decode())
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return column.cast(pa.large_string())
    if types.is_float32(kind) or types.is_float64(kind):
        return _json_floats(column)
    if types.is_string(kind) or types.is_large_string(kind):
        return _json_strings(column.cast(pa.large_string()))
    if types.is_date32(kind):
        return _quoted(column.cast(pa.large_string()))
    values = [_with_objects(value, kind) for value in column.to_pylist()]
    texts = [None if value is None else json_text(value) for value in values]
    return pa.array(texts, pa.large_string())


def _with_objects(value: Any, kind: pa.DataType) -> Any:
    """A value whose maps with text as keys, which Arrow gives as pairs, are dictionaries."""
    types = pa.types
    if value is None or not types.is_nested(kind):
        return value
    if types.is_map(kind):
        pairs = [(key, _with_objects(item, kind.item_type)) for key, item in value]
        return dict(pairs) if types.is_string(kind.key_type) else pairs
    if types.is_struct(kind):
        return {field.name: _with_objects(value[field.name], field.type) for field in kind}
    return [_with_objects(item, kind.value_type) for item in value]


def _json_floats(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.large_string())
    # Arrow writes 1.0 as "1", which would be read back as an integer.
    texts = pc.replace_substring_regex(texts, r"^(-?\d+)$", r"\1.0")
    finite = pc.is_finite(column)
    return pc.if_else(finite, texts, pa.scalar(None, pa.large_string()))


def _json_strings(column: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(column, r'[\\"\x00-\x1f]')
    if not pc.any(special).as_py():
        return _quoted(column)
    rare = pc.match_substring_regex(column, r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
    if pc.any(rare).as_py():
        return pa.array(
            [None if value is None else json_text(value) for value in column.to_pylist()],
            pa.large_string(),
        )
    for plain, escaped in (
        ("\\", "\\\\"),
        ('"', '\\"'),
        ("\n", "\\n"),
        ("\r", "\\r"),
        ("\t", "\\t"),
    ):
        column = pc.replace_substring(column, plain, escaped)
    return _quoted(column)


def _quoted(column: pa.Array) -> pa.Array:
    quote = pa.scalar('"', pa.large_string())
    return pc.binary_join_element_wise(quote, column, quote, pa.scalar("", pa.large_string()))


def _default(value: object) -> object:  # noqa: PLR0911 - one return per kind of value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return list(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    return str(value)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
