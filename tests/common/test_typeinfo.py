"""Every type: values become Arrow columns and come back as they were."""

# ruff: noqa: DTZ001, DTZ901 - timestamps without zone are what is tested

from __future__ import annotations

import array
import datetime as dt
import enum
import pickle
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ProgramError, TypeMismatchError
from millstream.types.row import Row, RowKind, row_class
from millstream.types.time import Instant
from millstream.types.types import (
    ArrowTypeInfo,
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
    from_arrow_schema,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Flight:
    origin: str
    delay: float | None
    tags: list[str]


@dataclass(frozen=True)
class Frozen:
    key: int
    value: object = None


@dataclass(slots=True)
class Slotted:
    key: int
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = self.key + 1


class Place(NamedTuple):
    name: str
    anything: object
    rank: int = 0


class Nothing(NamedTuple):
    pass


FLIGHTS = [Flight("JFK", 1.5, ["a"]), Flight("LGA", None, [])]
UTC = dt.timezone.utc  # noqa: UP017 - also the object that comes back
NAMED = row_class(("a", "count"))

#: Type, values without None.
CASES: list[tuple[TypeInformation, list[Any]]] = [
    (Types.STRING(), ["a", "é", ""]),
    (Types.CHAR(), ["x"]),
    (Types.BOOLEAN(), [True, False]),
    (Types.BYTE(), [-128, 127]),
    (Types.SHORT(), [-(2**15), 2**15 - 1]),
    (Types.INT(), [-(2**31), 2**31 - 1]),
    (Types.LONG(), [-(2**63), 2**63 - 1, 2**53 + 1]),
    (Types.FLOAT(), [1.5, float("-inf")]),
    (Types.DOUBLE(), [0.1, float("inf")]),
    (Types.BIG_INT(), [10**37, -1]),
    (Types.BIG_DEC(), [Decimal("1.10"), Decimal(1) / Decimal(3), Decimal("1E+50")]),
    (Types.DECIMAL(10, 2), [Decimal("1.10"), Decimal("-99999999.99")]),
    (Types.SQL_DATE(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (Types.SQL_TIME(), [dt.time(0), dt.time(23, 59, 59, 999_999)]),
    (Types.SQL_TIMESTAMP(), [dt.datetime.min, dt.datetime.max, dt.datetime(1969, 1, 1)]),
    (Types.TIMESTAMP_LTZ(), [dt.datetime(2020, 1, 1, 12, tzinfo=UTC)]),
    (Types.INSTANT(), [Instant(-5, 7), Instant(10**9, 999_999_999)]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"", b"\x00\xff"]),
    (Types.PRIMITIVE_ARRAY(Types.INT()), [[], [1, 2], [3]]),
    (Types.BASIC_ARRAY(Types.STRING()), [["a", None], []]),
    (Types.OBJECT_ARRAY(Types.TUPLE([Types.INT()])), [[(1,), None], []]),
    (Types.LIST(Types.LIST(Types.LONG())), [[[1], [], None], []]),
    (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), [{"a": [1], "b": None}, {}, {"c": []}]),
    (Types.MAP(Types.SQL_DATE(), Types.DOUBLE()), [{dt.date(2020, 1, 1): 1.0}]),
]
COMPOSITES: list[tuple[TypeInformation, list[Any]]] = [
    (Types.TUPLE([Types.LONG(), Types.STRING()]), [(1, "a"), (None, None)]),
    (Types.ROW([Types.LONG()]), [row_class(("f0",))([1])]),
    (
        Types.ROW_NAMED(["a", "count"], [Types.LONG(), Types.PICKLED_BYTE_ARRAY()]),
        [NAMED([1, {2, 3}]), NAMED([None, None]), NAMED([2, FLIGHTS])],
    ),
    (Types.DATACLASS(Flight), FLIGHTS),
    (Types.DATACLASS(Frozen), [Frozen(1), Frozen(2, {"x": 1})]),
    (Types.DATACLASS(Slotted), [Slotted(1), Slotted(5)]),
    (Types.NAMED_TUPLE(Place), [Place("a", None), Place("b", {1}, 2)]),
]
ALL = CASES + COMPOSITES


def ids(case: object) -> str | None:
    return str(case)[:40] if isinstance(case, TypeInformation) else None


def round_trip(info: TypeInformation, values: Sequence[object]) -> list[Any]:
    batch = info.to_arrow(values)
    assert batch.schema == info.arrow_schema
    assert batch.num_rows == len(values)
    return info.from_arrow(batch)


@pytest.mark.parametrize(("info", "values"), ALL, ids=ids)
def test_round_trip(info: TypeInformation, values: list[Any]) -> None:
    back = round_trip(info, values)
    assert back == values
    assert list(map(type, back)) == list(map(type, values))
    assert round_trip(info, []) == []
    assert info.from_arrow(info.to_arrow(values).slice(1)) == values[1:]


@pytest.mark.parametrize(("info", "values"), CASES, ids=ids)
def test_round_trip_with_none(info: TypeInformation, values: list[Any]) -> None:
    mixed = [None, *values, None]
    assert round_trip(info, mixed) == mixed
    assert round_trip(info, [None]) == [None]
    assert info.from_arrow(info.to_arrow(mixed).slice(1)) == mixed[1:]


@pytest.mark.parametrize(("info", "values"), ALL, ids=ids)
def test_round_trip_as_a_field(info: TypeInformation, values: list[Any]) -> None:
    mixed = [None, *values, None]
    record = Types.TUPLE([info, Types.STRING()])
    assert round_trip(record, [(v, "k") for v in mixed]) == [(v, "k") for v in mixed]
    lists = Types.LIST(info)
    nested = [[], mixed, None, values]
    assert round_trip(lists, nested) == nested
    assert lists.from_arrow(lists.to_arrow(nested).slice(1, 2)) == nested[1:3]


@pytest.mark.parametrize(("info", "values"), ALL, ids=ids)
def test_types_are_values(info: TypeInformation, values: list[Any]) -> None:
    again = pickle.loads(pickle.dumps(info))
    assert again == info
    assert hash(again) == hash(info)
    assert round_trip(again, values) == values
    assert sum(other == info for other, _ in ALL) == 1


def test_names_as_flink_prints_them() -> None:
    assert str(Types.ROW([Types.STRING(), Types.INT()])) == "RowTypeInfo(f0: String, f1: Integer)"
    named = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(Types.DOUBLE())])
    assert str(named) == "RowTypeInfo(a: Long, b: ListTypeInfo<Double>)"
    assert str(Types.TUPLE([Types.BOOLEAN()])) == "TupleTypeInfo(Boolean)"
    assert str(Types.MAP(Types.STRING(), Types.LONG())) == "MapTypeInfo<String, Long>"
    assert Types.ROW([Types.INT()]) != Types.TUPLE([Types.INT()])
    assert named.get_field_names() == ["a", "b"]
    assert (named.get_field_index("b"), named.get_field_index("c")) == (1, -1)


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("info", "given_values", "expected"),
    [
        (Types.LONG(), [np.int32(5), Colour.RED, 1], [5, 3, 1]),
        (Types.DOUBLE(), [1, np.float32(0.5)], [1.0, 0.5]),
        (Types.STRING(), [np.str_("x")], ["x"]),
        (Types.BOOLEAN(), [np.bool_(1)], [True]),
        (Types.BIG_DEC(), [3], [Decimal(3)]),
        (
            Types.LIST(Types.LONG()),
            [(1, 2), np.array([3]), array.array("i", [4])],
            [[1, 2], [3], [4]],
        ),
        (Types.TUPLE([Types.INT(), Types.INT()]), [[1, 2], Row(3, 4)], [(1, 2), (3, 4)]),
    ],
    ids=ids,
)
def test_what_is_accepted_besides(
    info: TypeInformation, given_values: list[Any], expected: list[Any]
) -> None:
    back = round_trip(info, given_values)
    assert back == expected
    assert list(map(type, back)) == list(map(type, expected))


@pytest.mark.parametrize(
    ("info", "values", "pattern"),
    [
        (Types.LONG(), [1, "x"], "value 1: 'x' is a str and does not fit Long"),
        (Types.LONG(), [1, 2.0], "value 1: 2.0 is a float"),
        (Types.LONG(), [1, 2**63], "value 1: 9223372036854775808"),
        (Types.LONG(), [None, 2**63], "value 1"),
        (Types.BYTE(), [1, 200], "value 1: 200"),
        (Types.DOUBLE(), ["1"], "value 0"),
        (Types.DOUBLE(), [True], "value 0"),
        (Types.STRING(), [b"x"], "value 0"),
        (Types.STRING(), ["\ud800"], "value 0"),
        (Types.BOOLEAN(), [2], "value 0: 2 is an int"),
        (Types.DECIMAL(4, 2), [Decimal("1.234")], "value 0"),
        (Types.BIG_INT(), [10**38], "value 0"),
        (Types.BIG_DEC(), [0.1], "value 0"),
        (Types.SQL_DATE(), [dt.datetime(2020, 1, 1)], "value 0"),
        (Types.SQL_TIMESTAMP(), [dt.date(2020, 1, 1)], "value 0"),
        (Types.SQL_TIMESTAMP(), [None, dt.datetime(2020, 1, 1, tzinfo=UTC)], "value 1.*time zone"),
        (Types.TIMESTAMP_LTZ(), [dt.datetime(2020, 1, 1)], "no time zone"),
        (Types.INSTANT(), [Instant(0, 0), Instant(10**12, 0)], "value 1.*outside"),
        (Types.LIST(Types.LONG()), [[1], [2, "x"]], "value 1, element 1: 'x'"),
        (Types.LIST(Types.LONG()), ["abc"], "value 0: 'abc'"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [[], [1, None]], "value 1, element 1.*None"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), ["x"], "value 0"),
        (
            Types.MAP(Types.STRING(), Types.LONG()),
            [{}, {"a": 1, "b": "x"}],
            "value 1, value of 'b'",
        ),
        (Types.MAP(Types.STRING(), Types.LONG()), [{None: 1}], "value 0, key"),
        (Types.MAP(Types.STRING(), Types.LONG()), [[1]], "value 0"),
        (Types.TUPLE([Types.LONG()]), [(1,), (1, 2)], "value 1.*2 fields instead of 1"),
        (Types.TUPLE([Types.LONG()]), [None], "value 0"),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), [(1,), ("x",)], "value 1, field 'a': 'x'"),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), [{"b": 1}], "unknown names"),
        (Types.ROW([Types.LONG()]), [None], "must not be None"),
        (Types.ROW([Types.LONG()]), [5], "value 0: 5 is an int"),
        (
            Types.LIST(Types.ROW([Types.LONG()])),
            [[None, (1,)], [None, ("x",)]],
            "value 1, element 1, field 'f0'",
        ),
        (Types.DATACLASS(Flight), [FLIGHTS[0], Frozen(1)], "value 1"),
        (Types.NAMED_TUPLE(Place), [Place("a", 1), ("a", 1, 0)], "value 1"),
        (Types.DATACLASS(Flight), [Flight("x", 1.0, [5])], "value 0, field 'tags', element 0: 5"),  # type: ignore[list-item]
    ],
)
def test_mismatch_names_index_and_value(
    info: TypeInformation, values: list[Any], pattern: str
) -> None:
    with pytest.raises(TypeMismatchError, match=pattern):
        info.to_arrow(values)


def test_untyped_streams_have_no_columns() -> None:
    assert Types.PICKLED_BYTE_ARRAY().arrow_schema is None
    with pytest.raises(ProgramError, match="output_type"):
        Types.PICKLED_BYTE_ARRAY().to_arrow([1])


def test_invalid_types_are_refused() -> None:
    with pytest.raises(ProgramError, match="primitive array"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(ProgramError, match="basic array"):
        Types.BASIC_ARRAY(Types.LIST(Types.INT()))
    with pytest.raises(ProgramError, match="one name per type"):
        Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()])
    with pytest.raises(ProgramError, match="twice"):
        Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])
    with pytest.raises(ProgramError, match="at least one"):
        Types.ROW([])
    with pytest.raises(ProgramError, match="not a dataclass"):
        Types.DATACLASS(int)
    for cls in (int, tuple, Row, Flight):
        with pytest.raises(ProgramError, match="not a NamedTuple class"):
            Types.NAMED_TUPLE(cls)
    with pytest.raises(ProgramError, match="at least one field"):
        Types.NAMED_TUPLE(Nothing)


def test_rows_match_by_name_if_they_have_the_same_names_else_by_position() -> None:
    info = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.LONG()])
    expected = row_class(("name", "age"))(["Alice", 11])
    for value in (Row(name="Alice", age=11), {"age": 11, "name": "Alice"}, ("Alice", 11)):
        assert round_trip(info, [value, Row("Alice", 11)]) == [expected, expected]
    assert round_trip(info, [row_class(("f0", "f1"))(["Alice", 11])]) == [expected]
    assert round_trip(info, [{"age": 1}])[0].as_dict() == {"name": None, "age": 1}


def test_rows_in_another_order_match_whatever_kinds_and_orders_meet() -> None:
    kind = Types.ROW_NAMED(["b", "a"], [Types.LONG(), Types.STRING()])
    sorted_one, deleted = Row(a="x", b=1), Row.of_kind(RowKind.DELETE, a="y", b=2)
    as_declared = Row("z", 3)
    as_declared.set_field_names(["b", "a"])
    as_declared["b"], as_declared["a"] = 3, "z"
    expected: dict[str, list[object]] = {"b": [1, 2, 3], "a": ["x", "y", "z"]}
    cases: list[list[object]] = [
        [sorted_one, deleted],
        [sorted_one, deleted, as_declared],
        [sorted_one, (2, "y"), {"a": "z", "b": 3}],
    ]
    for values in cases:
        columns = kind.to_arrow(values).select(["b", "a"]).to_pydict()
        assert columns == {name: each[: len(values)] for name, each in expected.items()}
    twice = Row("x", 1, "again")
    twice.set_field_names(["a", "b", "a"])
    assert kind.to_arrow([twice]).to_pydict() == {"b": [1], "a": ["x"]}


def test_row_kinds_travel_in_a_column_of_their_own() -> None:
    info = Types.ROW([Types.LONG()])
    rows = [row_class(("f0",))([i]) for i in range(3)]
    rows[1].set_row_kind(RowKind.DELETE)
    batch = info.to_arrow(rows)
    assert batch.schema.names == ["f0", "$row_kind"]
    assert info.from_arrow(batch) == rows
    assert [row.get_row_kind() for row in info.from_arrow(batch)] == [
        row.get_row_kind() for row in rows
    ]
    assert info.to_arrow(rows[:1]).schema == info.arrow_schema


def test_dataclasses_come_back_without_calling_post_init() -> None:
    info = Types.DATACLASS(Slotted)
    changed = Slotted(1)
    changed.total = 99
    assert round_trip(info, [changed])[0].total == 99


def test_arrow_schemas() -> None:
    schema = pa.schema(
        [
            ("s", pa.large_string()),
            ("t", pa.timestamp("ns")),
            ("z", pa.timestamp("ms", "Europe/Paris")),
            ("d", pa.dictionary(pa.int8(), pa.string())),
            ("u", pa.uint64()),
            ("m", pa.decimal128(5, 1)),
            ("l", pa.large_list(pa.int16())),
            ("r", pa.struct([("x", pa.float64())])),
            ("e", pa.date64()),
            ("v", pa.duration("s")),
        ]
    )
    info = from_arrow_schema(schema)
    rows = [
        {
            "s": "a",
            "t": dt.datetime(2020, 1, 1, 0, 0, 0, 5),
            "z": dt.datetime(2020, 1, 1, tzinfo=UTC),
            "d": "x",
            "u": 2**64 - 1,
            "m": Decimal("1.5"),
            "l": [1],
            "r": {"x": 0.5},
            "e": dt.date(2020, 1, 1),
            "v": dt.timedelta(seconds=5),
        },
        dict.fromkeys(schema.names),
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    found = info.from_arrow(batch)
    assert [row.as_dict(recursive=True) for row in found] == rows
    conformed = info.conform(batch)
    assert conformed.schema == info.arrow_schema
    assert info.from_arrow(conformed) == found
    assert info.conform(conformed) is conformed
    assert round_trip(info, found) == found
    assert isinstance(info.get_field_types()[4], ArrowTypeInfo)
    assert from_arrow_schema(pa.schema([("a", pa.int64())]), ["b"]).get_field_names() == ["b"]


def test_columns_that_do_not_fit_are_refused() -> None:
    info = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()])
    with pytest.raises(TypeMismatchError, match="do not fit"):
        info.from_arrow(pa.RecordBatch.from_pydict({"a": [1]}))
    with pytest.raises(TypeMismatchError, match="do not fit"):
        info.conform(pa.RecordBatch.from_pydict({"a": [1], "b": ["x"]}))
    reordered = pa.RecordBatch.from_pydict({"b": [2], "a": [1]})
    assert info.from_arrow(reordered)[0].as_dict() == {"a": 1, "b": 2}
    assert info.from_arrow(info.conform(reordered))[0].as_dict() == {"a": 1, "b": 2}


VALUES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
RECORDS = st.tuples(
    VALUES,
    st.one_of(st.none(), st.text(st.characters(codec="utf-8"))),
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.floats(allow_nan=False)), max_size=3)),
    st.one_of(st.none(), st.dictionaries(st.integers(0, 5), st.booleans(), max_size=3)),
    st.one_of(st.none(), st.decimals(allow_nan=False)),
)


@given(st.lists(RECORDS, max_size=20), st.integers(0, 5))
def test_random_records(records: list[tuple[object, ...]], first: int) -> None:
    info = Types.TUPLE(
        [
            Types.LONG(),
            Types.STRING(),
            Types.LIST(Types.DOUBLE()),
            Types.MAP(Types.INT(), Types.BOOLEAN()),
            Types.BIG_DEC(),
        ]
    )
    assert info.from_arrow(info.to_arrow(records).slice(first)) == records[first:]


def test_pickled_fields_keep_any_value() -> None:
    info = Types.TUPLE([PickledBytesTypeInfo()])
    values = [({1, 2},), (None,), (Colour.RED,)]
    assert round_trip(info, values) == values


@pytest.mark.parametrize("basic", BasicType)
def test_basic_types_by_their_names(basic: BasicType) -> None:
    expected = getattr(Types, basic.name)()
    assert getattr(BasicTypeInfo, f"{basic.name}_TYPE_INFO")() == expected
    if basic in {BasicType.BIG_INT, BasicType.BIG_DEC, BasicType.INSTANT}:
        with pytest.raises(ProgramError, match=f"write Types.{basic.name}"):
            BasicTypeInfo(basic)
    else:
        assert BasicTypeInfo(basic) == expected


def test_times_by_their_names() -> None:
    assert SqlTimeTypeInfo.DATE() == DateTypeInfo() == Types.SQL_DATE()
    assert SqlTimeTypeInfo.TIME() == TimeTypeInfo() == Types.SQL_TIME()
    assert SqlTimeTypeInfo.TIMESTAMP() == TimestampTypeInfo() == Types.SQL_TIMESTAMP()
    assert isinstance(Types.SQL_DATE(), DateTypeInfo)
    assert pickle.loads(pickle.dumps(Types.SQL_TIME())) == Types.SQL_TIME()


def test_composite_types_take_pyflinks_parameters() -> None:
    text, number = Types.STRING(), Types.LONG()
    row = RowTypeInfo(field_types=[text, number], field_names=["a", "b"])
    assert row == Types.ROW_NAMED(["a", "b"], [text, number])
    assert TupleTypeInfo(field_types=[text]) == Types.TUPLE([text])
    made = MapTypeInfo(key_type_info=text, value_type_info=number)
    assert made == Types.MAP(text, number)
