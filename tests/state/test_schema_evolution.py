"""State restored under another declared type."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.state.conftest import MAX_PARALLELISM

from millstream.errors import StateError
from millstream.functions.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millstream.state.key_codec import decode_key, encode_key, key_group_range
from millstream.state.keyed import KeyedState
from millstream.state.serializers import (
    dumps,
    load_stored,
    loads_recorded,
    set_moved_classes,
)
from millstream.types.types import Row, Types, dataclass_type

if TYPE_CHECKING:
    from tests.state.conftest import World

BEFORE = Types.ROW_NAMED(["id", "name", "count"], [Types.INT(), Types.STRING(), Types.BYTE()])
#: The count is wider, the name gone, a field new, and the order another.
AFTER = Types.ROW_NAMED(["count", "place", "id"], [Types.LONG(), Types.STRING(), Types.DOUBLE()])
KEYS = range(40)


def named(**values: Any) -> Row:
    """A row with its fields in this order."""
    return Row(*values)(*values.values())


def stored(key: int) -> Row:
    return named(id=key, name=f"n{key}", count=key % 100)


def expected(key: int) -> Row:
    return named(count=key % 100, place=None, id=float(key))


def write(world: World, kind: Any) -> None:
    keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
    value = keyed.get_state(ValueStateDescriptor("value", kind))
    elements = keyed.get_list_state(ListStateDescriptor("list", kind))
    entries = keyed.get_map_state(MapStateDescriptor("map", Types.INT(), kind))
    store = world.begin(keyed)
    for key in KEYS:
        keyed.set_current_key(key)
        value.update(stored(key))
        elements.add_all([stored(key), stored(key + 1)])
        entries.put(7, stored(key))
    world.finish(keyed, store)


class Reader:
    """The three states under another type, on one subtask."""

    def __init__(self, kind: Any, groups: tuple[int, int] = (0, MAX_PARALLELISM)) -> None:
        self.keyed = KeyedState(MAX_PARALLELISM, groups)
        self._value = self.keyed.get_state(ValueStateDescriptor("value", kind))
        self._list = self.keyed.get_list_state(ListStateDescriptor("list", kind))
        self._map = self.keyed.get_map_state(MapStateDescriptor("map", Types.LONG(), kind))

    def read(self, key: object) -> list[Any]:
        self.keyed.set_current_key(key)
        return [self._value.value(), list(self._list), dict(self._map.items())]


def check(reader: Reader, keys: Any = KEYS) -> None:
    for key in keys:
        row = expected(key)
        found = reader.read(key)
        assert found == [row, [row, expected(key + 1)], {7: row}]
        assert type(found[0]["id"]) is float


def test_rows_are_restored_under_another_type(world: World) -> None:
    write(world, BEFORE)
    reader = Reader(AFTER)
    store = world.begin(reader.keyed)
    check(reader)
    world.finish(reader.keyed, store)
    again = Reader(AFTER)
    store = world.begin(again.keyed)
    check(again)
    world.finish(again.keyed, store)


def test_a_migration_is_in_the_snapshot_though_nothing_follows_it(world: World) -> None:
    write(world, BEFORE)
    reader = Reader(AFTER)
    world.finish(reader.keyed, world.begin(reader.keyed))
    reader = Reader(AFTER)
    store = world.begin(reader.keyed)
    check(reader)
    store.close()


def test_subtasks_that_migrated_and_others_are_merged(world: World) -> None:
    """States are asked for when a function wants them: a checkpoint may have both forms."""
    write(world, BEFORE)
    handles = []
    for subtask in range(3):
        keyed = KeyedState(MAX_PARALLELISM, key_group_range(subtask, MAX_PARALLELISM, 3))
        store = world.open(subtask, 3)
        if subtask != 1:
            keyed = Reader(AFTER, key_group_range(subtask, MAX_PARALLELISM, 3)).keyed
        keyed.begin_epoch(store)
        keyed.flush()
        handles.append(store.snapshot())
        store.close()
    world.handles = handles
    reader = Reader(AFTER)
    store = world.begin(reader.keyed)
    check(reader)
    world.finish(reader.keyed, store)
    reader = Reader(AFTER)
    store = world.begin(reader.keyed)
    check(reader)
    assert reader.keyed.unused() == []
    store.close()


def refusal(world: World, kind: Any) -> str:
    store = world.open()
    reader = Reader(kind)
    with pytest.raises(StateError) as caught:
        reader.keyed.begin_epoch(store)
    store.close()
    return str(caught.value)


def test_other_types_are_refused_with_both_side_by_side(world: World) -> None:
    write(world, BEFORE)
    other = Types.ROW_NAMED(["id", "name"], [Types.SHORT(), Types.STRING()])
    text = refusal(world, other)
    assert text.startswith("state 'value' was kept with values of type row(id: Integer, ")
    assert "id: Integer cannot become Short" in text
    lines = [[part.strip() for part in line.split("|")] for line in text.splitlines()[1:-1]]
    assert lines == [
        ["stored", "declared"],
        ["row", "row"],
        ["id: Integer", "id: Short"],
        ["name: String", "name: String"],
        ["count: Byte", ""],
    ]
    reader = Reader(BEFORE)
    store = world.begin(reader.keyed)
    assert reader.read(3)[0] == stored(3)
    store.close()


@dataclass
class Visit:
    page: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Slotted:
    page: str
    seconds: int


@pytest.mark.parametrize("cls", [Visit, Slotted])
def test_a_dataclass_gets_fields(world: World, cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Types.ROW_NAMED(["visits", "sum"], [Types.LIST(dataclass_type(cls)), Types.DECIMAL(5, 2)])
    keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
    value = keyed.get_state(ValueStateDescriptor("visits", old))
    store = world.begin(keyed)
    keyed.set_current_key("a")
    value.update(named(visits=[cls("x", 3), cls("y", 4)], sum=Decimal("1.50")))
    world.finish(keyed, store)
    name = cls.__name__
    tags: Any = field(default_factory=list)
    fields: list[Any] = [("seconds", int), ("place", str | None, None), ("page", str)]
    options: Any = {"slots": cls is Slotted, "frozen": cls is Slotted, "kw_only": True}
    new_class = make_dataclass(name, [*fields, ("tags", list[str], tags)], **options)
    new_class.__module__ = __name__
    monkeypatch.setitem(globals(), name, new_class)
    new = Types.ROW_NAMED(
        ["sum", "visits"], [Types.DECIMAL(9, 3), Types.LIST(dataclass_type(new_class))]
    )
    keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
    value = keyed.get_state(ValueStateDescriptor("visits", new))
    store = world.begin(keyed)
    keyed.set_current_key("a")
    visits = [new_class(page=page, seconds=n) for page, n in (("x", 3), ("y", 4))]
    assert value.value() == named(sum=Decimal("1.50"), visits=visits)
    world.finish(keyed, store)


@dataclass
class Stay:
    """What Visit is called now."""

    page: str
    seconds: int


@pytest.mark.parametrize("kind", ["typed", "any"])
def test_a_class_that_has_moved(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: set_moved_classes({}))

    def states(cls: Any) -> tuple[KeyedState, Any]:
        keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
        declared = dataclass_type(cls) if kind == "typed" else None
        return keyed, keyed.get_state(ValueStateDescriptor("visit", declared))

    keyed, value = states(Visit)
    store = world.begin(keyed)
    keyed.set_current_key("a")
    value.update(Visit("x", 3))
    world.finish(keyed, store)
    monkeypatch.delitem(globals(), "Visit")
    keyed, value = states(Stay)
    store = world.open()
    restore: Any = keyed.begin_epoch
    if kind == "any":  # the class is in the values alone
        keyed.begin_epoch(store)
        restore = lambda _: keyed.prefetch(["a"])  # noqa: E731
    with pytest.raises(StateError, match=r"set millstream\.state\.moved-classes to OLD:NEW"):
        restore(store)
    store.close()
    set_moved_classes({f"{__name__}.Visit": f"{__name__}.Stay"})
    for _ in range(2):
        keyed, value = states(Stay)
        store = world.begin(keyed)
        keyed.set_current_key("a")
        assert value.value() == Stay("x", 3)
        value.update(Stay("x", 3))
        world.finish(keyed, store)
        set_moved_classes({})


class Page(NamedTuple):
    name: str


class Stop(NamedTuple):
    name: str
    rank: int
    tags: list[str]
    anything: object = None


def take_the_place_of(old: type, new: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the module a class of the name of another one."""
    new.__name__ = new.__qualname__ = old.__name__
    monkeypatch.setitem(globals(), old.__name__, new)
    monkeypatch.setattr("millstream.state.serializers._classes", {})


@pytest.mark.parametrize("in_list", [False, True])
def test_a_named_tuple_gets_and_loses_fields(
    world: World, in_list: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(cls: Any) -> tuple[KeyedState, Any]:
        keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
        kind = Types.NAMED_TUPLE(cls)
        declared = Types.LIST(kind) if in_list else kind
        return keyed, keyed.get_state(ValueStateDescriptor("s", declared))

    def wrapped(stop: Any) -> Any:
        return [stop, None] if in_list else stop

    keyed, value = states(Stop)
    store = world.begin(keyed)
    before = [Stop("a", 1, ["x"]), Stop("b", 2, [], Stop("inner", 3, []))]
    for key, stop in enumerate(before):
        keyed.set_current_key(key)
        value.update(wrapped(stop))
    world.finish(keyed, store)

    class LaterStop(NamedTuple):  # without tags, in another order, with new fields
        anything: object
        rank: int
        name: str
        zone: str | None = None
        level: int = 7

    take_the_place_of(Stop, LaterStop, monkeypatch)
    after = [LaterStop(None, 1, "a"), LaterStop(LaterStop(None, 3, "inner"), 2, "b")]
    for _ in range(2):
        keyed, value = states(LaterStop)
        store = world.begin(keyed)
        for key, later in enumerate(after):
            keyed.set_current_key(key)
            assert value.value() == wrapped(later)
            found: Any = value.value()
            assert type(found[0] if in_list else found) is LaterStop
            value.update(found)
        world.finish(keyed, store)


def test_a_stored_named_tuple_without_a_field_that_has_no_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = loads_recorded(dumps([Page("x")]), {f"{__name__}.Page": ("name",)})
    assert load_stored(dumps(kept)) == [Page("x")]

    class LongerPage(NamedTuple):
        name: str
        rank: int

    take_the_place_of(Page, LongerPage, monkeypatch)
    with pytest.raises(StateError, match=r"without the fields rank, which have no default"):
        dumps(kept)


def test_other_named_tuples_are_refused(world: World) -> None:
    keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
    value: Any = keyed.get_state(ValueStateDescriptor("s", Types.NAMED_TUPLE(Page)))
    store = world.begin(keyed)
    keyed.set_current_key("a")
    value.update(Page("x"))
    world.finish(keyed, store)
    kinds: list[tuple[Any, str]] = [
        (Types.NAMED_TUPLE(Sheet), r"Sheet\(name: String\); if the class has moved, set mill"),
        (Types.TUPLE([Types.STRING()]), r"cannot become tuple"),
    ]
    for kind, message in kinds:
        keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
        keyed.get_state(ValueStateDescriptor("s", kind))
        store = world.open()
        with pytest.raises(StateError, match=message):
            keyed.begin_epoch(store)
        store.close()
    set_moved_classes({f"{__name__}.Page": f"{__name__}.Sheet"})
    try:
        keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
        value = keyed.get_state(ValueStateDescriptor("s", Types.NAMED_TUPLE(Sheet)))
        store = world.begin(keyed)
        keyed.set_current_key("a")
        assert value.value() == Sheet("x")
        assert type(value.value()) is Sheet
        store.close()
    finally:
        set_moved_classes({})


class Sheet(NamedTuple):
    """What Page is called now."""

    name: str


class Mode(Enum):
    FAST = 1


class Speed(Enum):
    """What Mode is called now."""

    FAST = 1


@pytest.mark.parametrize("cls", [Visit, Page, Mode], ids=lambda cls: cls.__name__)
def test_keys_of_a_class_that_has_moved(cls: Any, request: pytest.FixtureRequest) -> None:
    """They have the bytes that they had, by which their state and key group are found."""
    request.addfinalizer(lambda: set_moved_classes({}))
    old: Any = {Visit: Visit("x", 3), Page: Page("x"), Mode: Mode.FAST}[cls]
    new: Any = {Visit: Stay("x", 3), Page: Sheet("x"), Mode: Speed.FAST}[cls]
    assert encode_key((1, new)) != encode_key((1, old))
    before = encode_key((1, old))
    set_moved_classes({f"{__name__}.{cls.__name__}": f"{__name__}.{type(new).__name__}"})
    assert encode_key((1, new)) == before
    found: Any = decode_key(before)
    assert found == (1, new)
    assert type(found[1]) is type(new)


def test_what_is_unpickled_of_windows_may_have_moved(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: set_moved_classes({}))
    content = dumps([Visit("x", 3)])
    set_moved_classes({f"{__name__}.Visit": f"{__name__}.Stay"})
    assert load_stored(content) == [Stay("x", 3)]


@dataclass
class Node:
    number: int
    following: Node | None = None


def test_a_recursive_dataclass_gets_fields(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No type is recorded for the field that holds another of them."""
    keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
    value: Any = keyed.get_state(ValueStateDescriptor("s", dataclass_type(Node)))
    store = world.begin(keyed)
    keyed.set_current_key("a")
    value.update(Node(1, Node(2, Node(3))))
    world.finish(keyed, store)
    fields: list[Any] = [("number", int), ("following", Any, None), ("rank", int, 7)]
    longer = make_dataclass("Node", fields)
    longer.__module__ = __name__
    monkeypatch.setitem(globals(), "Node", longer)
    monkeypatch.setattr("millstream.state.serializers._classes", {})
    for _ in range(2):
        keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
        value = keyed.get_state(ValueStateDescriptor("s", dataclass_type(longer)))
        store = world.begin(keyed)
        keyed.set_current_key("a")
        assert value.value() == longer(1, longer(2, longer(3)))
        value.update(value.value())
        world.finish(keyed, store)


@pytest.mark.parametrize("cls", [Visit, Slotted])
def test_recorded_classes_in_fields_of_any_type(
    world: World, cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(fields: Any) -> tuple[KeyedState, Any]:
        keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
        kinds = [dataclass_type(globals()[cls.__name__]), Types.PICKLED_BYTE_ARRAY()]
        kind = Types.ROW_NAMED(["visit", "anything", *fields], [*kinds, *fields.values()])
        return keyed, keyed.get_state(ValueStateDescriptor("s", kind))

    keyed, value = states({})
    store = world.begin(keyed)
    keyed.set_current_key("a")
    value.update(Row("visit", "anything")(cls("x", 3), [cls("y", 4)]))
    world.finish(keyed, store)
    options: Any = {"slots": cls is Slotted, "frozen": cls is Slotted}
    tags: Any = field(default_factory=list)
    longer = make_dataclass(cls.__name__, [("page", str), ("tags", list[str], tags)], **options)
    longer.__module__ = __name__
    monkeypatch.setitem(globals(), cls.__name__, longer)
    monkeypatch.setattr("millstream.state.serializers._classes", {})
    for _ in range(2):
        keyed, value = states({"new": Types.INT()})
        store = world.begin(keyed)
        keyed.set_current_key("a")
        row = value.value()
        assert (row["visit"], row["anything"]) == (longer("x"), [longer("y")])
        assert type(row["anything"][0]) is longer
        world.finish(keyed, store)


@dataclass
class Selfish:
    page: str

    def __reduce__(self) -> Any:
        return type(self), (self.page,)


@dataclass
class SelfishStay:
    page: str

    def __reduce__(self) -> Any:
        return type(self), (self.page,)


class Outer:
    @dataclass
    class Stay:
        page: str
        seconds: int


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (Selfish("x"), SelfishStay("x"), "SelfishStay"),
        (Visit("x", 3), Outer.Stay("x", 3), "Outer.Stay"),
    ],
)
@pytest.mark.parametrize("declared", [(True, True), (True, False), (False, False)])
def test_a_class_that_has_moved_and_is_nested_or_pickles_itself(
    world: World, old: Any, new: Any, name: str, declared: Any, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: set_moved_classes({}))
    for value, is_declared in zip((old, new), declared, strict=True):
        keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
        kind = dataclass_type(type(value)) if is_declared else None
        state: Any = keyed.get_state(ValueStateDescriptor("s", kind))
        store = world.begin(keyed)
        keyed.set_current_key("a")
        if value is new:
            assert state.value() == new
        state.update(value)
        world.finish(keyed, store)
        set_moved_classes({f"{__name__}.{type(old).__name__}": f"{__name__}.{name}"})


def test_a_new_field_without_a_default_is_refused(world: World) -> None:
    keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
    value = keyed.get_state(ValueStateDescriptor("visit", dataclass_type(Visit)))
    store = world.begin(keyed)
    keyed.set_current_key("a")
    value.update(Visit("x", 3))
    world.finish(keyed, store)
    longer = make_dataclass("Visit", [("page", str), ("seconds", int), ("rank", int)])
    longer.__module__ = __name__
    keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
    keyed.get_state(ValueStateDescriptor("visit", dataclass_type(longer)))
    store = world.open()
    with pytest.raises(StateError, match=r"rank: the new field has no default and is not opt"):
        keyed.begin_epoch(store)
    store.close()


def test_a_state_without_recorded_fields_keeps_its_type(world: World) -> None:
    """As an early build of 0.1.0 has written it."""
    write(world, BEFORE)
    store = world.open()
    for name, content in list(store.scan(b"M", b"N")):
        if name in (b"Mvalue", b"Mlist", b"Mmap"):
            meta = {**json.loads(content), "type": str(BEFORE)}
            if name == b"Mmap":
                meta["type"] = f"Integer -> {BEFORE}"
            del meta["schema"], meta["key_schema"]
            store.write([(name, json.dumps(meta).encode())])
    world.handles = [store.snapshot()]
    store.close()
    assert "run the program once with the old type" in refusal(world, AFTER)
    keyed = KeyedState(MAX_PARALLELISM, (0, MAX_PARALLELISM))
    value = keyed.get_state(ValueStateDescriptor("value", BEFORE))
    elements = keyed.get_list_state(ListStateDescriptor("list", BEFORE))
    entries = keyed.get_map_state(MapStateDescriptor("map", Types.INT(), BEFORE))
    store = world.begin(keyed)
    for key in KEYS:
        keyed.set_current_key(key)
        assert value.value() == stored(key)
        assert list(elements) == [stored(key), stored(key + 1)]
        assert entries.get(7) == stored(key)
        value.update(stored(key))
    world.finish(keyed, store)
