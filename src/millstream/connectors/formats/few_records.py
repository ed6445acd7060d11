"""A few records as JSON, read and written without pyarrow.

What it is: the short way for batches of some records, as they come when records are to be seen
within milliseconds: what pyarrow spends on a block before its first record (it hands each to
another thread) is as much as Python spends on forty.  It takes integers, booleans, texts, and
floating-point numbers that are written as such.

What it is not: another dialect of JSON.  Where pyarrow could see anything else, or find something
wrong, it does not decide: it gives None, and pyarrow is asked, whose rows or whose error count.

Read next: ``connectors/formats/json_columns.py``, ``connectors/formats/json_text.py``.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FewRecords", "few_json_texts"]

#: Records and bytes up to which this is the shorter way.
_MOST: Final = 32
_MOST_BYTES: Final = 16_384
#: No number of so many digits is read by pyarrow, in fields that nobody wants either.
_HUGE: Final = re.compile(r"[0-9]{300}")
_NOTHING: Final = type(None)
_WRITTEN: Final = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string)


class _UnsureError(ValueError):
    """It is for pyarrow to decide."""


class FewRecords:
    """Reads blocks of a few JSON objects, one per line.

    Args:
        columns: what to read.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        wanted = [_python_type(field.type) for field in columns]
        #: Per column what its values may be; None if there is one that pyarrow has to read.
        self._wanted: list[set[type]] | None = None
        if len(set(columns.names)) == len(columns.names) and None not in wanted:
            self._wanted = [{kind, _NOTHING} for kind in wanted if kind is not None]

    def read(self, block: bytes) -> pa.Table | None:
        """The columns; None if pyarrow is to read them."""
        if self._wanted is None or len(block) > _MOST_BYTES or block.count(b"\n") >= _MOST:
            return None
        # Half a surrogate is no text, whoever wants the field.
        if b"\\u" in block:
            return None
        try:
            text = block.decode()
            if _HUGE.search(text):
                return None
            records = [_DECODER.decode(line) for line in text.split("\n")]
            return self._table(records, self._wanted)
        except (ValueError, OverflowError, RecursionError):
            return None

    def _table(self, records: list[Any], wanted: Sequence[set[type]]) -> pa.Table | None:
        if set(map(type, records)) != {dict}:
            return None
        arrays = []
        for field, kinds in zip(self._columns, wanted, strict=True):
            values = [record.get(field.name) for record in records]
            if not kinds.issuperset(map(type, values)):
                return None
            arrays.append(pa.array(values, field.type))
        return pa.Table.from_arrays(arrays, schema=self._columns)


def few_json_texts(batch: pa.RecordBatch) -> list[bytes] | None:
    """Each record as a JSON object, as ``json_lines`` has them; None if that is to write them."""
    schema = batch.schema
    if batch.num_rows > _MOST or len(set(schema.names)) < len(schema.names):
        return None
    if not all(any(of(kind) for of in _WRITTEN) for kind in schema.types):
        return None
    encode = _ENCODER.encode
    return [encode(record).encode() for record in batch.to_pylist()]


def _python_type(kind: pa.DataType) -> type | None:
    if pa.types.is_signed_integer(kind):  # -0 is none of the others, to pyarrow
        return int
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_string(kind):
        return str
    return float if pa.types.is_float64(kind) else None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _UnsureError
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _UnsureError
    return value


def _refuse(constant: str) -> object:
    raise _UnsureError(constant)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
