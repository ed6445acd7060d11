"""JSON: values as text, and lines of JSON objects as rows, read by pyarrow in blocks of lines.

Fields that the schema does not name are ignored, fields that a line lacks are null.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from itertools import chain, repeat
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.connectors.formats.file_format import (
    BulkWriter,
    BulkWriterFactory,
    MalformedPolicy,
    SchemaFormat,
    columns_of,
    row_type_of,
    type_of_schema,
)
from millstream.connectors.formats.line_format import LineFormat, head_of_file
from millstream.connectors.formats.row_format import named_values
from millstream.errors import SourceError
from millstream.types.basic_types import BigDecimalTypeInfo
from millstream.types.composite_types import CompositeTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.connectors.formats.file_format import SchemaLike
    from millstream.contracts.batch import Batch
    from millstream.types.types import TypeInformation


def _refuse_constant(constant: str) -> object:
    message = f"{constant} is no JSON"
    raise ValueError(message)


def strict_json(
    text: str | bytes,
    *,
    parse_int: Callable[[str], object] | None = None,
    parse_float: Callable[[str], object] | None = None,
) -> Any:
    """Parse JSON, without the ``NaN`` and ``Infinity`` that Python accepts.

    Args:
        text: to be parsed.
        parse_int: makes values of whole numbers; None: ``int``.
        parse_float: makes values of other numbers; None: ``float``.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, parse_int=parse_int, parse_float=parse_float
        )
    except RecursionError as error:
        message = "it is too deep"
        raise ValueError(message) from error


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
    lines = json_objects(batch.schema.names, batch.columns, batch.num_rows)
    joined = pc.binary_join(
        pa.LargeListArray.from_arrays([0, len(lines)], lines), pa.scalar("\n", pa.large_string())
    )
    text: bytes = joined[0].as_buffer().to_pybytes()
    return text + b"\n"


def json_texts(batch: pa.RecordBatch) -> list[bytes]:
    """Each record of a batch as a JSON object."""
    objects = json_objects(batch.schema.names, batch.columns, batch.num_rows)
    texts: list[bytes] = objects.cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
    return texts


def json_objects(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Return a column of ``count`` JSON objects; its texts are UTF-8 without line breaks."""
    if not names:
        return pa.array(["{}"] * count, pa.large_string())
    parts: list[Any] = []
    for opening, name, column in zip(chain("{", repeat(",")), names, columns, strict=False):
        parts.append(
            pa.scalar(f"{opening}{json.dumps(name, ensure_ascii=False)}:", pa.large_string())
        )
        parts.append(json_column(column))
    return pc.binary_join_element_wise(
        *parts,
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


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _UnsureError
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_finite_float, parse_constant=_refuse_constant
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


_MOST_DIGITS: Final = 76
#: Texts of numbers with more digits than this are written with an exponent.
_MOST_PLAIN: Final = 100
_NUMBER: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


def wide(kind: pa.DataType) -> pa.DataType:
    """The type that pyarrow is to parse for a column of this type; its own if it is no decimal."""
    return pa.decimal256(_MOST_DIGITS, kind.scale) if pa.types.is_decimal128(kind) else kind


def canonical_text(text: str) -> str:
    """The text of the number that a text is; equal numbers have equal ones.

    Raises:
        ValueError: it is none.
    """
    return plain_text(_number(text))


def plain_text(number: Decimal) -> str:
    """The text of a number, without zeros at its end, and without an exponent if it is short."""
    if not number:
        return "0"
    number = number.normalize(_EXACT)
    exponent = int(number.as_tuple().exponent)
    is_short = number.adjusted() < _MOST_PLAIN and exponent > -_MOST_PLAIN
    return f"{number:f}" if is_short else str(number)


def _number(text: str) -> Decimal:
    try:
        # Python takes more than is a number elsewhere: underscores, blanks, other digits, NaN.
        number = Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:  # an exponent beyond all bounds
        number = None
    if number is None:
        message = f"{text!r:.100} is not a number"
        raise ValueError(message)
    return number.normalize(_EXACT)


def decimals_of_texts(texts: Iterable[str | None], kind: pa.DataType) -> pa.Array:
    """A column of decimals.

    Raises:
        ValueError: a text is no number, or one that the type cannot hold as it is.
    """
    numbers = [None if text is None else _number(text) for text in texts]
    whole = kind.precision - kind.scale
    for number in numbers:
        if number and (number.adjusted() >= whole or int(number.as_tuple().exponent) < -kind.scale):
            message = f"{number} does not fit into {kind}"
            raise ValueError(message)
    return pa.array(numbers, kind)


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

    def read_messages(self, messages: Sequence[bytes]) -> pa.Table | None:
        """The columns of messages, a row each; None: they are to be read one by one."""
        block = b"\n".join(messages)
        # Each begins and ends as an object, so that a row that one has too many does not stand for
        # another's that has none.
        if block.count(b"\n") != len(messages) - 1 or not all(
            each[:1] == b"{" and each[-1:] == b"}" for each in messages
        ):
            return None
        try:
            table = self.read(block)
        except (ValueError, pa.ArrowException):
            return None
        return table.combine_chunks() if table.num_rows == len(messages) else None

    def _with_texts(self, line: bytes) -> str:
        record = strict_json(line, parse_int=_Number, parse_float=_Number)
        if not isinstance(record, dict):
            message = "it is no JSON object"
            raise ValueError(message)  # noqa: TRY004 - as for all that does not parse
        return _json(record, self._kind)


def read_json(block: bytes, columns: pa.Schema | None) -> pa.Table:
    """Return what pyarrow reads of a block; None lets it find out the columns.

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
    """Return whether a block has what is no number of JSON.

    One letter is found 100 times as fast.
    """
    return (b"N" in block and b"NaN" in block) or (b"I" in block and b"Inf" in block)


def _refuse_what_is_no_json(text: str) -> None:
    """Look for a ``null`` in the place of an object, and for ``NaN``, ``Inf`` and ``Infinity``.

    Of a null pyarrow makes a record of nulls, and crashes if it is the first; the others it takes
    for numbers, which nobody does who reads records one by one.

    Raises:
        ValueError: there is one, or what is ahead of it is no JSON.
    """
    decoder, at = json.JSONDecoder(parse_constant=_refuse_constant), 0
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


class JsonLinesFormat(SchemaFormat, LineFormat):
    """Lines that are JSON objects.

    Args:
        schema: the columns; None infers them from the head of the first file.
        malformed: "fail" or "dead-letter".
    """

    def __init__(
        self,
        schema: SchemaLike | None = None,
        malformed: str | MalformedPolicy = MalformedPolicy.FAIL,
    ) -> None:
        super().__init__(malformed)
        self.type_info = None if schema is None else type_of_schema(schema)

    def prepare(self, path: str) -> None:
        if self.type_info is not None:
            return
        head, complete = head_of_file(path, self.stores)
        if not complete:
            head = head[: head.rfind(b"\n") + 1] or head
        try:
            schema = read_json(head, None).schema
        except (ValueError, pa.ArrowException):
            # Some line is malformed: the ones that are not still tell the schema.
            schema = _schema_of_good_lines(head)
        if len(schema) == 0:
            message = f"cannot infer a schema from {path!r}; give schema=..."
            raise SourceError(message)
        self.type_info = row_type_of(schema)

    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        del path, header
        return JsonColumns(self.produced_type, texts=False).read


def _schema_of_good_lines(head: bytes) -> pa.Schema:
    schemas = []
    for line in head.splitlines(keepends=True)[:10_000]:
        try:
            schemas.append(read_json(line, None).schema)
        except (ValueError, pa.ArrowException):
            continue
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (ValueError, pa.ArrowException):
        return schemas[0]


class JsonLinesWriterFactory(BulkWriterFactory):
    """One JSON object per line."""

    extension = ".jsonl"

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        return _JsonLinesWriter(stream, columnar=type_info.arrow_schema is not None)


class _JsonLinesWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], *, columnar: bool) -> None:
        self._stream = stream
        self._columnar = columnar

    def write(self, batch: Batch) -> None:
        if self._columnar:
            self._stream.write(json_lines(batch.arrow))
            return
        lines = [json_text(named_values(value)) for value in batch.values]
        lines.append("")
        self._stream.write("\n".join(lines).encode())

    def finish(self) -> None:
        pass
