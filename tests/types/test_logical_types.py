"""Logical types: their text, their columns, and the way from and to streams and Arrow."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from millstream.errors import ProgramError
from millstream.types.bitmaps import BitmapType, VariantType
from millstream.types.logical_type_info import (
    LogicalTypeInfo,
    logical_type_of,
    logical_type_of_arrow,
    row_type_of_schema,
    type_info_of,
)
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    MultisetType,
    NullType,
    RawType,
    RowField,
    RowType,
    SmallIntType,
    SymbolType,
    TimestampKind,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.type_roots import TypeFamily, TypeRoot
from millstream.types.types import Types

#: Type, summary, text for a parser (None: the same), Arrow type.
TYPES: list[tuple[LogicalType, str, str | None, pa.DataType]] = [
    (NullType(), "NULL", None, pa.null()),
    (BooleanType(), "BOOLEAN", None, pa.bool_()),
    (TinyIntType(), "TINYINT", None, pa.int8()),
    (SmallIntType(), "SMALLINT", None, pa.int16()),
    (IntType(nullable=False), "INT NOT NULL", None, pa.int32()),
    (BigIntType(), "BIGINT", None, pa.int64()),
    (FloatType(), "FLOAT", None, pa.float32()),
    (DoubleType(), "DOUBLE", None, pa.float64()),
    (DecimalType(10, 2), "DECIMAL(10, 2)", None, pa.decimal128(10, 2)),
    (CharType(5), "CHAR(5)", None, pa.string()),
    (VarCharType(10), "VARCHAR(10)", None, pa.string()),
    (VarCharType(), "STRING", "VARCHAR(2147483647)", pa.string()),
    (BinaryType(3), "BINARY(3)", None, pa.binary()),
    (VarBinaryType(), "BYTES", "VARBINARY(2147483647)", pa.binary()),
    (DateType(), "DATE", None, pa.date32()),
    (TimeType(), "TIME(0)", None, pa.time32("ms")),
    (TimeType(6), "TIME(6)", None, pa.time64("us")),
    (TimestampType(3), "TIMESTAMP(3)", None, pa.timestamp("ms")),
    (TimestampType(), "TIMESTAMP(6)", None, pa.timestamp("us")),
    (TimestampType(9), "TIMESTAMP(9)", None, pa.timestamp("ns")),
    (
        TimestampType(3, kind=TimestampKind.ROWTIME, nullable=False),
        "TIMESTAMP(3) NOT NULL *ROWTIME*",
        "TIMESTAMP(3) NOT NULL",
        pa.timestamp("ms"),
    ),
    (LocalZonedTimestampType(3), "TIMESTAMP_LTZ(3)", None, pa.timestamp("ms", "UTC")),
    (
        LocalZonedTimestampType(3, kind=TimestampKind.PROCTIME),
        "TIMESTAMP_LTZ(3) *PROCTIME*",
        "TIMESTAMP_LTZ(3)",
        pa.timestamp("ms", "UTC"),
    ),
    (YearMonthIntervalType(), "INTERVAL YEAR(2) TO MONTH", None, pa.int32()),
    (YearMonthIntervalType("MONTH"), "INTERVAL MONTH", None, pa.int32()),
    (DayTimeIntervalType(), "INTERVAL DAY(2) TO SECOND(6)", None, pa.duration("ms")),
    (DayTimeIntervalType("SECOND", 2, 3), "INTERVAL SECOND(3)", None, pa.duration("ms")),
    (
        ArrayType(VarCharType()),
        "ARRAY<STRING>",
        "ARRAY<VARCHAR(2147483647)>",
        pa.list_(pa.string()),
    ),
    (
        MapType(IntType(nullable=False), DoubleType()),
        "MAP<INT NOT NULL, DOUBLE>",
        None,
        pa.map_(pa.int32(), pa.float64()),
    ),
    (MultisetType(IntType()), "MULTISET<INT>", None, pa.map_(pa.int32(), pa.int32())),
    (
        RowType((RowField("a", IntType()), RowField("b`c", VarCharType(3), "it's"))),
        "ROW<`a` INT, `b``c` VARCHAR(3) '...'>",
        "ROW<`a` INT, `b``c` VARCHAR(3) 'it''s'>",
        pa.struct([("a", pa.int32()), ("b`c", pa.string())]),
    ),
    (BitmapType(), "BITMAP", None, pa.binary()),
    (VariantType(), "VARIANT", None, pa.binary()),
    (RawType("my.Class"), "RAW('my.Class', '...')", "RAW('my.Class', 'pickle')", pa.binary()),
    (SymbolType(), "SYMBOL", None, pa.string()),
]


@pytest.mark.parametrize(("type_", "summary", "serializable", "arrow"), TYPES, ids=str)
def test_texts_and_columns(
    type_: LogicalType, summary: str, serializable: str | None, arrow: pa.DataType
) -> None:
    assert type_.as_summary_string() == summary
    assert type_.as_serializable_string() == (serializable or summary)
    assert type_.to_arrow() == arrow
    assert pickle.loads(pickle.dumps(type_)) == type_
    assert hash(pickle.loads(pickle.dumps(type_))) == hash(type_)


def test_every_root_has_a_type_here() -> None:
    assert {type_.root for type_, *_ in TYPES} == set(TypeRoot)


def test_nullability_is_part_of_a_type() -> None:
    assert IntType() != IntType(nullable=False)
    assert IntType().not_null() == IntType(nullable=False)
    assert IntType().with_nullability(True) is not None
    plain = IntType()
    assert plain.with_nullability(True) is plain


@pytest.mark.parametrize(
    "make",
    [
        lambda: DecimalType(39, 0),
        lambda: DecimalType(3, 4),
        lambda: DecimalType(0, 0),
        lambda: TimestampType(10),
        lambda: TimeType(-1),
        lambda: VarCharType(2**31),
        lambda: YearMonthIntervalType("DAY"),
        lambda: DayTimeIntervalType("DAY TO MONTH"),
        lambda: DayTimeIntervalType("DAY", 7),
    ],
)
def test_refused_arguments(make: object) -> None:
    with pytest.raises(ProgramError):
        make()  # type: ignore[operator]


def test_families() -> None:
    assert DecimalType(3, 1).is_a(TypeFamily.EXACT_NUMERIC)
    assert not DoubleType().is_a(TypeFamily.EXACT_NUMERIC)
    assert LocalZonedTimestampType(3).is_a(TypeFamily.TIMESTAMP)
    assert not DateType().is_a(TypeFamily.TIMESTAMP)


def test_fields_of_rows() -> None:
    row = RowType.of(a=IntType(), b=VarCharType())
    assert row.names == ["a", "b"]
    assert row.index_of("b") == 1
    assert row.index_of("c") == -1
    assert row.to_arrow_schema() == pa.schema([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    "type_", [type_ for type_, *_ in TYPES if type_.root is not TypeRoot.SYMBOL], ids=str
)
def test_type_information_has_the_columns_of_the_type(type_: LogicalType) -> None:
    info = type_info_of(type_)
    assert info.arrow_type == type_.to_arrow()
    assert pickle.loads(pickle.dumps(info)) == info


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (Types.STRING(), "STRING"),
        (Types.LONG(), "BIGINT"),
        (Types.BIG_DEC(), "DECIMAL(38, 18)"),
        (Types.BIG_INT(), "DECIMAL(38, 0)"),
        (Types.DECIMAL(10, 2), "DECIMAL(10, 2)"),
        (Types.SQL_TIMESTAMP(), "TIMESTAMP(6)"),
        (Types.TIMESTAMP_LTZ(), "TIMESTAMP_LTZ(6)"),
        (Types.INSTANT(), "TIMESTAMP_LTZ(9)"),
        (Types.SQL_TIME(), "TIME(6)"),
        (Types.PICKLED_BYTE_ARRAY(), "RAW('builtins.object', '...')"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "BYTES"),
        (Types.LIST(Types.INT()), "ARRAY<INT>"),
        (Types.MAP(Types.STRING(), Types.LONG()), "MAP<STRING, BIGINT>"),
        (Types.TUPLE([Types.INT(), Types.STRING()]), "ROW<`f0` INT, `f1` STRING>"),
        (Types.ROW_NAMED(["x"], [Types.DOUBLE()]), "ROW<`x` DOUBLE>"),
        (LogicalTypeInfo(TimestampType(3)), "TIMESTAMP(3)"),
    ],
    ids=str,
)
def test_logical_type_of_a_stream(info: object, expected: str) -> None:
    assert str(logical_type_of(info)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), "SMALLINT"),
        (pa.uint64(), "DECIMAL(20, 0)"),
        (pa.large_string(), "STRING"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.timestamp("us", "Europe/Berlin"), "TIMESTAMP_LTZ(6)"),
        (pa.duration("us"), "INTERVAL DAY(2) TO SECOND(3)"),
        (pa.dictionary(pa.int8(), pa.string()), "STRING"),
        (pa.list_(pa.int64(), 3), "ARRAY<BIGINT>"),
        (pa.map_(pa.string(), pa.int8()), "MAP<STRING NOT NULL, TINYINT>"),
        (pa.struct([("a", pa.bool_())]), "ROW<`a` BOOLEAN>"),
    ],
    ids=str,
)
def test_logical_type_of_a_column(arrow: pa.DataType, expected: str) -> None:
    assert str(logical_type_of_arrow(arrow)) == expected


def test_schema_with_columns_that_are_not_nullable() -> None:
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
    assert str(row_type_of_schema(schema)) == "ROW<`a` INT NOT NULL, `b` STRING> NOT NULL"


def test_a_column_that_sql_has_no_type_for() -> None:
    with pytest.raises(ProgramError, match="month_day_nano_interval"):
        logical_type_of_arrow(pa.month_day_nano_interval())
