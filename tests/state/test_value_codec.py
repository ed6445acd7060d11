"""Typed values: round trips, and conversions that give what a fresh encoding would."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from millstream.functions.descriptors import (
    ListStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.state.migration import entry_conversion
from millstream.state.registry import codec_for, format_of, metadata_of
from millstream.state.serializers import class_called, dumps
from millstream.state.value_codec import codec_of, oldest_time, time_of
from millstream.types.evolution import IncompatibleTypeError, conversion
from millstream.types.recorded_types import recorded_type, type_of_record
from millstream.types.row import RowKind, row_class
from millstream.types.time import Time
from millstream.types.types import Row, Types, dataclass_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.type_information import TypeInformation


@dataclass
class Visit:
    page: str
    seconds: int
    score: float
    tags: list[str]
    place: tuple[int, str]


@dataclass(frozen=True, slots=True)
class Fixed:
    at: dt.datetime
    text: str | None
    price: Decimal


class Place(NamedTuple):
    name: str
    rank: int | None
    tags: list[str]
    level: float = 0.5


class Marked(Place):
    """Its instances have attributes beside the fields."""


def marked() -> Marked:
    made = Marked("a", 1, [])
    vars(made)["note"] = "x"
    return made


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


FLOATS = st.floats(allow_nan=False)
SCALARS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.BOOLEAN(), st.booleans()),
    (Types.BYTE(), integers(8)),
    (Types.SHORT(), integers(16)),
    (Types.INT(), integers(32)),
    (Types.LONG(), integers(64)),
    (Types.BIG_INT(), integers(120)),
    (Types.FLOAT(), FLOATS),
    (Types.DOUBLE(), FLOATS),
    (Types.STRING(), st.text()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
    (Types.BIG_DEC(), st.decimals(allow_nan=False)),
    (Types.DECIMAL(9, 2), st.decimals(-999, 999, places=2)),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
    (Types.TIMESTAMP_LTZ(), st.datetimes(timezones=st.just(dt.UTC))),
    (Types.PICKLED_BYTE_ARRAY(), st.one_of(st.none(), st.complex_numbers(allow_nan=False))),
]
NAMES = st.lists(st.sampled_from("zyxabcd"), min_size=1, max_size=5, unique=True)


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[TypeInformation, st.SearchStrategy[Any]]:
    """A type and its values."""
    form = draw(st.sampled_from(["scalar", "row", "tuple", "list", "map"] if depth else ["scalar"]))
    if form == "scalar":
        chosen: tuple[TypeInformation, Any] = draw(st.sampled_from(SCALARS))
        return chosen
    if form == "list":
        kind, values = draw(typed(depth - 1))
        return Types.LIST(kind), st.lists(values, max_size=4)
    if form == "map":
        kind, values = draw(typed(depth - 1))
        return Types.MAP(Types.STRING(), kind), st.dictionaries(st.text(), values, max_size=3)
    names = draw(NAMES)
    fields = [draw(typed(depth - 1)) for _ in names]
    kinds, parts = [kind for kind, _ in fields], [st.one_of(st.none(), each) for _, each in fields]
    if form == "tuple":
        return Types.TUPLE(kinds), st.tuples(*parts)
    make: Any = row_class(tuple(names))
    return Types.ROW_NAMED(names, kinds), st.tuples(*parts).map(make)


SETTINGS = settings(
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@seed(22)
@SETTINGS
@given(typed(), st.data(), st.booleans(), st.booleans())
def test_values_come_back(
    pair: tuple[TypeInformation, st.SearchStrategy[Any]],
    data: st.DataObject,
    lists: bool,
    expires: bool,
) -> None:
    kind, values = pair
    codec = codec_of(kind, lists=lists, expires=expires)
    value = data.draw(values)
    kept: Any = (data.draw(integers(64)), value) if expires else value
    kept = [kept, kept] if lists else kept
    content = codec.encode(kept)
    assert repr(codec.decode(content)) == repr(kept)
    assert repr(list(map(codec.decode, codec.encode_all([kept, kept])))) == repr([kept, kept])
    for some in ([content, content], [content, dumps(kept)], codec.encode_all([kept, kept])):
        assert repr(list(codec.decode_all(some))) == repr([kept, kept])
    assert repr(codec.decode(dumps(kept))) == repr(kept)  # as it was before the type was declared
    assert type_of_record(recorded_type(kind), find=class_called) == kind
    if expires:
        found = oldest_time(content) if lists else time_of(content)
        assert found == (kept[0][0] if lists else kept[0])


NOON = dt.datetime.fromisoformat("2020-01-01T12:00:00.000001")
ROW = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
SEVERAL: list[tuple[TypeInformation, Any]] = [
    (ROW, Row(id=1, name="a")),
    (ROW, Row("name", "id")("a", 1)),
    (ROW, Row(1, "a")),
    (ROW, (1, "a")),
    (ROW, [1, None]),
    (ROW, {"id": 1}),
    (ROW, Row.of_kind(RowKind.DELETE, id=1, name="a")),
    (ROW, Row(id=2**70, name="\ud800")),
    (ROW, Row(id=True, name="")),
    (Types.LONG(), 2**63),
    (Types.LONG(), True),
    (Types.DOUBLE(), 1),
    (Types.STRING(), ""),
    (Types.STRING(), "\ud800"),
    (Types.SQL_TIMESTAMP(), NOON.replace(fold=1)),
    (Types.TIMESTAMP_LTZ(), dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    (dataclass_type(Visit), Visit("p", 1, 0.5, ["x"], (3, "y"))),
    (dataclass_type(Visit), Visit("p", 1, 1, [], (3, "y"))),
    (dataclass_type(Fixed), Fixed(NOON, None, Decimal("1.50"))),
    (Types.NAMED_TUPLE(Place), Place("a", 1, ["x"])),
    (Types.NAMED_TUPLE(Place), Place("", None, [], 1)),
    (Types.NAMED_TUPLE(Place), ("a", 1, ["x"], 0.5)),
    (Types.NAMED_TUPLE(Marked), marked()),
    (Types.ROW([Types.INT()] * 70), Row(*range(70))),
]


@pytest.mark.parametrize(("kind", "value"), SEVERAL)
def test_what_is_taken_for_a_type_stays_what_it_is(kind: TypeInformation, value: Any) -> None:
    codec = codec_of(kind)
    found = codec.decode(codec.encode(value))
    assert repr(found) == repr(value)
    assert found == value
    assert type(found).__name__ == type(value).__name__
    if not isinstance(value, Row):
        assert getattr(found, "__dict__", None) == getattr(value, "__dict__", None)
    if isinstance(value, Row):
        assert found.get_field_names() == value.get_field_names()


def test_records_are_without_names_and_classes() -> None:
    cases: list[tuple[TypeInformation, Any]] = [
        (dataclass_type(Visit), Visit("page", 1, 0.5, ["x"], (3, "y"))),
        (Types.NAMED_TUPLE(Place), Place("page", 1, ["x"])),
    ]
    for kind, value in cases:
        content = codec_of(kind).encode(value)
        assert type(value).__name__.encode() not in content
        assert b"seconds" not in content
        assert len(content) < len(dumps(value)) * 0.8


Step = tuple["TypeInformation", "TypeInformation", "st.SearchStrategy[Any]", "Callable[[Any], Any]"]


def same(value: Any) -> Any:
    return value


STEPS: list[Step] = [
    *((kind, kind, values, same) for kind, values in SCALARS),
    (Types.BYTE(), Types.SHORT(), integers(8), same),
    (Types.SHORT(), Types.LONG(), integers(16), same),
    (Types.INT(), Types.LONG(), integers(32), same),
    (Types.LONG(), Types.BIG_INT(), integers(64), same),
    (Types.INT(), Types.DOUBLE(), integers(32), float),
    (Types.FLOAT(), Types.DOUBLE(), FLOATS, same),
    (Types.DECIMAL(9, 2), Types.DECIMAL(12, 3), st.decimals(-999, 999, places=2), same),
]


@st.composite
def steps(draw: st.DrawFn, depth: int = 2) -> Step:
    """Two types of which the second may follow, values of the first, and what they become."""
    form = draw(st.sampled_from(["scalar", "row", "tuple", "list", "map"] if depth else ["scalar"]))
    if form == "scalar":
        return draw(st.sampled_from(STEPS))
    if form == "list":
        old, new, values, then = draw(steps(depth - 1))
        become = lambda items: [then(each) for each in items]  # noqa: E731
        return Types.LIST(old), Types.LIST(new), st.lists(values, max_size=3), become
    if form == "map":
        old, new, values, then = draw(steps(depth - 1))
        of_map = lambda items: {key: then(each) for key, each in items.items()}  # noqa: E731
        kinds = [Types.MAP(Types.STRING(), each) for each in (old, new)]
        return kinds[0], kinds[1], st.dictionaries(st.text(), values, max_size=3), of_map
    names = draw(NAMES)
    fields = {name: draw(steps(depth - 1)) for name in names}
    stored = [fields[name][0] for name in names]
    parts = st.tuples(*(st.one_of(st.none(), fields[name][2]) for name in names))
    if form == "tuple":
        of_tuple = lambda value: tuple(  # noqa: E731
            None if field is None else fields[name][3](field)
            for name, field in zip(names, value, strict=True)
        )
        return Types.TUPLE(stored), Types.TUPLE([fields[n][1] for n in names]), parts, of_tuple
    added = {"new": Types.STRING()} if draw(st.booleans()) else {}
    kept = {name: fields[name][1] for name in names if draw(st.booleans())}
    after = {**kept, **added} or {names[0]: fields[names[0]][1]}
    order = draw(st.permutations(sorted(after)))
    make: Any = row_class(tuple(names))
    made: Any = row_class(tuple(order))

    def of_row(row: Any) -> Any:
        found = [row[name] if name in names else None for name in order]
        return made(
            [
                None if field is None else fields[name][3](field)
                for name, field in zip(order, found, strict=True)
            ]
        )

    wanted = Types.ROW_NAMED(list(order), [after[name] for name in order])
    return Types.ROW_NAMED(names, stored), wanted, parts.map(make), of_row


def metadata(descriptor: Any) -> dict[str, Any]:
    made = metadata_of(descriptor)
    return {**made, "format": format_of(made, codec_for(made, descriptor.type_info))}


@seed(22)
@SETTINGS
@given(steps(), st.data(), st.booleans())
def test_converted_values_are_as_if_written_under_the_new_type(
    step: Step, data: st.DataObject, lists: bool
) -> None:
    old, new, values, become = step
    descriptor: Any = ListStateDescriptor if lists else ValueStateDescriptor
    before, after = metadata(descriptor("s", old)), metadata(descriptor("s", new))
    value = data.draw(values)
    stored = [value, value] if lists else value
    expected = [become(value)] * 2 if lists else become(value)
    fresh = codec_for(after, new)
    convert = entry_conversion(descriptor("s", new), before, after, 0)
    for content in (codec_for(before, old).encode(stored), dumps(stored)):
        found = content if convert is None else convert(content)
        assert repr(fresh.decode(found)) == repr(expected)
        if convert is not None:
            assert found == fresh.encode(expected)


@seed(22)
@SETTINGS
@given(typed(), typed(), st.integers(0, 3))
def test_types_that_lose_something_are_refused(
    one: tuple[TypeInformation, Any], other: tuple[TypeInformation, Any], around: int
) -> None:
    """A type that cannot follow cannot follow in a field, an element or a value of a map either."""
    stored, declared = one[0], other[0]
    try:
        conversion(recorded_type(stored), declared)
    except IncompatibleTypeError:
        wrap: Any = [
            Types.LIST,
            lambda kind: Types.MAP(Types.STRING(), kind),
            lambda kind: Types.ROW_NAMED(["a"], [kind]),
            lambda kind: Types.TUPLE([kind]),
        ][around]
        with pytest.raises(IncompatibleTypeError, match=" cannot become "):
            conversion(recorded_type(wrap(stored)), wrap(declared))
    else:
        narrower = {"Long": Types.INT(), "Integer": Types.SHORT(), "Double": Types.FLOAT()}
        wanted = narrower.get(str(stored))
        if wanted is not None:
            with pytest.raises(IncompatibleTypeError):
                conversion(recorded_type(stored), wanted)


@dataclass
class Computed:
    """Its ``__init__`` is written by hand."""

    weight: int

    def __init__(self, weight: int) -> None:
        self.weight = weight + 1


@dataclass
class Checked:
    weight: int

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value + 1)


@dataclass
class Made:
    weight: int

    def __new__(cls, *_: Any) -> Made:  # noqa: PYI034
        made = object.__new__(cls)
        made.__dict__["times"] = 1
        return made


class Inherited(Visit):
    def __init__(self, page: str, *rest: Any) -> None:
        super().__init__(page + "!", *rest)


@pytest.mark.parametrize(
    "value",
    [Computed(3), Checked(3), Made(3), Inherited("p", 1, 0.5, ["x"], (3, "y"))],
)
def test_a_dataclass_that_sets_its_fields_otherwise_stays_what_it_is(value: Any) -> None:
    kind = dataclass_type(type(value))
    codec = codec_of(kind)
    assert vars(codec.decode(codec.encode(value))) == vars(value)
    fields = [getattr(value, name) for name in kind.get_field_names()]
    assert [getattr(kind.record_of(fields), n) for n in kind.get_field_names()] == fields


def test_the_generated_init_is_called() -> None:
    assert dataclass_type(Visit).maker() is Visit


def test_attributes_that_are_no_fields_stay() -> None:
    value: Any = Visit("p", 1, 0.5, ["x"], (3, "y"))
    codec = codec_of(dataclass_type(Visit))
    assert codec.encode(value)[0] < 0x80
    value.area = 7
    assert vars(codec.decode(codec.encode(value))) == vars(value)


@pytest.mark.parametrize("field", [np.True_, np.float64(1.5), np.str_("s")])
def test_scalars_of_numpy_stay_what_they_are(field: Any) -> None:
    kinds = [Types.BOOLEAN(), Types.DOUBLE(), Types.STRING()]
    codec = codec_of(Types.TUPLE([*kinds, Types.STRING()]))
    value = tuple(field if type(field).__name__.startswith(n) else None for n in ("b", "f", "s"))
    found = codec.decode(codec.encode((*value, None)))
    assert list(map(type, found)) == list(map(type, (*value, None)))


def own_state(self: Any) -> Any:
    return vars(self)


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("expires", [False, True])
def test_a_class_that_gets_methods_for_pickling(
    lists: bool, expires: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was typed is read, also within another type, and in a state of lists."""
    kinds = [dataclass_type(Visit), Types.ROW_NAMED(["v"], [dataclass_type(Visit)])]
    visit = Visit("p", 1, 0.5, ["x"], (3, "y"))
    ttl = StateTtlConfig.new_builder(Time.milliseconds(9)).build()
    for kind, value in zip(kinds, [visit, Row(v=visit)], strict=True):
        descriptor: Any = (ListStateDescriptor if lists else ValueStateDescriptor)("s", kind)
        if expires:
            descriptor.enable_time_to_live(ttl)
        with monkeypatch.context() as patch:
            before = metadata(descriptor)
            kept: Any = (5, value) if expires else value
            kept = [kept] if lists else kept
            content = codec_for(before, kind).encode(kept)
            patch.setattr(Visit, "__getstate__", own_state, raising=False)
            again: Any = type(descriptor)("s", dataclass_type(Visit) if value is visit else kind)
            if expires:
                again.enable_time_to_live(ttl)
            after = metadata(again)
            convert = entry_conversion(again, before, after, 0)
            content = content if convert is None else convert(content)
            assert codec_for(after, again.type_info).decode(content) == kept


def test_an_array_whose_elements_get_wider_is_read() -> None:
    old, new = Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.PRIMITIVE_ARRAY(Types.SHORT())
    before, after = (metadata(ValueStateDescriptor("s", each)) for each in (old, new))
    convert = entry_conversion(ValueStateDescriptor("s", new), before, after, 0)
    assert convert is not None
    assert codec_for(after, new).decode(convert(codec_for(before, old).encode(b"ab"))) == b"ab"


def test_another_clock_leaves_dataclasses_what_they_are() -> None:
    kind = dataclass_type(Visit)
    expiring: Any = ValueStateDescriptor("s", kind)
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(9)).build())
    before, after = metadata(ValueStateDescriptor("s", kind)), metadata(expiring)
    convert = entry_conversion(expiring, before, after, 5)
    assert convert is not None
    visit = Visit("p", 1, 0.5, ["x"], (3, "y"))
    for content in (codec_for(before, kind).encode(visit), dumps(visit)):
        assert codec_for(after, kind).decode(convert(content)) == (5, visit)


def test_a_variant_follows_a_type_that_the_program_does_not_declare() -> None:
    old = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
    new = Types.ROW_NAMED(["name", "id"], [Types.STRING(), Types.LONG()])
    before, after = (metadata(ValueStateDescriptor("s", each)) for each in (old, new))
    convert = entry_conversion(ValueStateDescriptor("s"), before, after, 0)
    assert convert is not None
    row = Row("id", "name")(1, "a")
    found = codec_for(after).decode(convert(codec_for(before).encode(row)))
    assert found == Row("name", "id")("a", 1)
