"""JSON objects as the columns of a record type.

What it is: pyarrow's JSON reader, and what it does not read as it stands: decimals, whose digits
it loses in a few cases (``exact_decimals.py``) and of which it makes no texts, as the column of
``Types.BIG_DEC()`` has them; dates and times that are texts.

Blocks whose numbers are short are read by pyarrow alone.  In others numbers are put in quotes where
a decimal belongs, which takes several times longer.

A few records are read without pyarrow (``few_records.py``).

What it is not: aware of files or messages.

Read next: ``connectors/formats/message_formats.py``, ``connectors/formats/json_format.py``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.json as pj

from millstream.connectors.formats.exact_decimals import (
    canonical_text,
    decimals_of_texts,
    plain_text,
    wide,
)
from millstream.connectors.formats.few_records import FewRecords
from millstream.connectors.formats.schema import columns_of
from millstream.types.basic_types import BigDecimalTypeInfo
from millstream.types.composite_types import CompositeTypeInfo

if TYPE_CHECKING:
    from millstream.types.types import TypeInformation

__all__ = ["JsonColumns", "read_json"]

#: Holds every number that ``_LONG`` does not find, which are below 10 ** 19.
_SHORT: Final = pa.decimal128(38, 18)
#: What may be a ``null`` in the place of an object, and a little more.
_NULL: Final = re.compile(rb"(?:\A|[}\n])\s*null")
#: What may be a number that JSON does not have, and a little more.
_NO_NUMBER: Final = re.compile(rb"(?:\A|[\s:,\[])-?(?:NaN|Inf)")
_NOT_BLANK: Final = re.compile(r"\S")
#: What may be a number that does not fit, and a little more.
_LONG: Final = re.compile(rb'[0-9.]{20}|[:\[,\s"]-?[0-9][0-9.]*[eE]\+?[0-9]+[\s,}\]"]')


class JsonColumns:
    """Reads blocks of JSON objects, one per line.

    Args:
        kind: the record type.
        texts: whether dates and times are texts; else they are the numbers that pyarrow takes.
    """

    def __init__(self, kind: TypeInformation, *, texts: bool) -> None:
        self._kind = kind
        self._columns = columns_of(kind)
        self._numbers = pa.schema(list(_readable(kind, texts=texts, short=True)))
        self._texts = pa.schema(list(_readable(kind, texts=texts, short=False)))
        #: None: a text may stand for something else, or has to be looked at.
        self._few: FewRecords | None = None
        if self._numbers == self._texts == self._columns:
            self._few = FewRecords(self._columns)

    def read(self, block: bytes) -> pa.Table:
        """The columns; fields that the type does not name are left away.

        Raises:
            ValueError: a line is no JSON, or not of the type.
        """
        few = None if self._few is None else self._few.read(block)
        if few is not None:
            return few
        if self._numbers == self._texts:
            return _typed_columns(read_json(block, self._texts), self._columns)
        if not _LONG.search(block):
            with contextlib.suppress(ValueError):  # a decimal that is a long text
                return _typed_columns(read_json(block, self._numbers), self._columns)
        lines = [self._with_texts(line) for line in block.split(b"\n") if line.strip()]
        return _typed_columns(read_json("\n".join(lines).encode(), self._texts), self._columns)

    def _with_texts(self, line: bytes) -> str:
        try:
            record = json.loads(
                line, parse_int=_Number, parse_float=_Number, parse_constant=_refuse
            )
        except RecursionError as error:
            message = "it is too deep"
            raise ValueError(message) from error
        if not isinstance(record, dict):
            message = "it is no JSON object"
            raise ValueError(message)  # noqa: TRY004 - as for all that does not parse
        return _json(record, self._kind)


def read_json(block: bytes, columns: pa.Schema | None) -> pa.Table:
    """What pyarrow reads of a block; None lets it find out the columns.

    Raises:
        ValueError: it is no JSON, or not of those types.
    """
    if not block.strip():
        return (columns or pa.schema([])).empty_table()
    text = block.decode()  # pyarrow lets invalid UTF-8 through into string columns
    if (b"null" in block and _NULL.search(block)) or (
        _has_word(block) and _NO_NUMBER.search(block)
    ):
        _refuse_what_is_no_json(text)
    behaviour = "infer" if columns is None else "ignore"
    options = pj.ParseOptions(explicit_schema=columns, unexpected_field_behavior=behaviour)
    # One block: a record must not straddle two.
    reading = pj.ReadOptions(use_threads=False, block_size=len(block) + 16)
    table = pj.read_json(pa.BufferReader(block), read_options=reading, parse_options=options)
    return table if columns is None else table.select(columns.names)


def _has_word(block: bytes) -> bool:
    """Whether a block has what is no number of JSON; one letter is found 100 times as fast."""
    return (b"N" in block and b"NaN" in block) or (b"I" in block and b"Inf" in block)


def _refuse_what_is_no_json(text: str) -> None:
    """Look for a ``null`` in the place of an object, and for ``NaN``, ``Inf`` and ``Infinity``.

    Of a null pyarrow makes a record of nulls, and crashes if it is the first; the others it takes
    for numbers, which nobody does who reads records one by one.

    Raises:
        ValueError: there is one, or what is ahead of it is no JSON.
    """
    decoder, at = json.JSONDecoder(parse_constant=_refuse), 0
    while (found := _NOT_BLANK.search(text, at)) is not None:
        try:
            record, at = decoder.raw_decode(text, found.start())
        except RecursionError as error:
            message = "it is too deep"
            raise ValueError(message) from error
        if record is None:
            message = "null is no JSON object"
            raise ValueError(message)


def _is_decimal(kind: TypeInformation | None) -> bool:
    return isinstance(kind, BigDecimalTypeInfo) or (
        kind is not None and pa.types.is_decimal128(kind.arrow_type)
    )


def _readable(kind: TypeInformation, *, texts: bool, short: bool) -> pa.DataType:
    """The type in the place of ``kind`` that pyarrow reads, decimals as numbers if ``short``."""
    element: TypeInformation | None = getattr(kind, "elem_type", None)
    if _is_decimal(kind):
        number = _SHORT if isinstance(kind, BigDecimalTypeInfo) else wide(kind.arrow_type)
        return number if short else pa.string()
    if isinstance(kind, CompositeTypeInfo):
        fields = zip(kind.get_field_names(), kind.get_field_types(), strict=True)
        return pa.struct(
            [(name, _readable(field, texts=texts, short=short)) for name, field in fields]
        )
    if element is not None and pa.types.is_list(kind.arrow_type):
        return pa.list_(_readable(element, texts=texts, short=short))
    if texts and (pa.types.is_date(kind.arrow_type) or pa.types.is_time(kind.arrow_type)):
        return pa.string()
    return kind.arrow_type


def _typed_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema):
        return table
    columns = [
        pa.chunked_array([_typed(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if array.type == _SHORT:
        return pa.array([None if v is None else plain_text(v) for v in array.to_pylist()], kind)
    if pa.types.is_string(array.type):
        return _of_texts(array, kind)
    missing = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        fields = [_typed(array.field(index), field.type) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=missing)
    if pa.types.is_list(kind):
        values = _typed(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=missing)
    return array.cast(kind)


def _of_texts(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal128(kind):
        return decimals_of_texts(array.to_pylist(), kind)
    if pa.types.is_time(kind):  # no cast of pyarrow's
        texts = array.to_pylist()
        times = [None if text is None else dt.time.fromisoformat(text) for text in texts]
        return pa.array(times, kind)
    return array.cast(kind)


class _Number(str):
    """A number as it stands in the text."""

    __slots__ = ()


def _refuse(constant: str) -> object:
    message = f"{constant} is no JSON"
    raise ValueError(message)


def _json(value: Any, kind: TypeInformation | None) -> str:
    """JSON of a value of this type, with decimals as texts; None: of any type."""
    if isinstance(value, str) and _is_decimal(kind):
        return json.dumps(canonical_text(value))
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        known = {}
        if isinstance(kind, CompositeTypeInfo):
            known = dict(zip(kind.get_field_names(), kind.get_field_types(), strict=True))
        parts = (
            f"{json.dumps(name)}:{_json(part, known.get(name))}" for name, part in value.items()
        )
        return f"{{{','.join(parts)}}}"
    if isinstance(value, list):
        element = getattr(kind, "elem_type", None)
        return f"[{','.join(_json(each, element) for each in value)}]"
    return json.dumps(value)
