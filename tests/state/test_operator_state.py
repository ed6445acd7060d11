"""The operator states of one subtask, in memory and in a checkpoint."""

from __future__ import annotations

import re
from dataclasses import dataclass, make_dataclass, replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest

from millstream.checkpoint import LocalStorage
from millstream.checkpoint.model import OPERATOR_STATE
from millstream.common import StateSerializer
from millstream.errors import CorruptCheckpointError, StateError
from millstream.state.canonical.operator_rows import OperatorLayout
from millstream.state.operator_state import (
    INLINE_BYTES,
    OperatorStates,
    StateReader,
    prepare_states,
)
from millstream.state.rescale import own_states, redistribute
from millstream.state.serializers import set_moved_classes
from millstream.types.types import Row, Types, dataclass_type

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.operator import OperatorStateHandle

LARGE = ["x" * 1000] * 20


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path), fsync=False)


def written(states: OperatorStates, storage: LocalStorage) -> dict[str, OperatorStateHandle]:
    pending = prepare_states(states.snapshot(), "u/1")
    pending.finish(storage)
    states.written(pending.handles)
    return pending.handles


def restored(
    handles: dict[str, OperatorStateHandle],
    storage: LocalStorage,
    states: OperatorStates | None = None,
) -> OperatorStates:
    states = states or OperatorStates("operator 'o'")
    states.restore(own_states(handles), StateReader(storage))
    return states


@pytest.mark.parametrize("elements", [[], [1, None, ("a", [2])], LARGE])
def test_what_is_kept_comes_back(storage: LocalStorage, elements: list[object]) -> None:
    states = OperatorStates()
    states.list_state("l").update(elements)
    states.union_list_state("u").update(elements)
    states.broadcast_state("b").put_all(dict(enumerate(elements)))
    handles = written(states, storage)
    assert {name: handle.count for name, handle in handles.items()} == dict.fromkeys(
        "lub", len(elements)
    )
    again = restored(handles, storage)
    assert again.list_state("l").get() == elements
    assert again.union_list_state("u").get() == elements
    assert dict(again.broadcast_state("b").items()) == dict(enumerate(elements))


def test_large_states_are_files_and_small_ones_are_not(storage: LocalStorage) -> None:
    states = OperatorStates()
    states.list_state("small").update(["x"] * 20)
    states.list_state("large").update(LARGE)
    handles = written(states, storage)
    assert handles["small"].file is None
    file = handles["large"].file
    assert file is not None
    assert handles["large"].inline == ()
    assert list(storage.list_names("state")) == [file["remote"]]


def test_states_change_while_their_files_are_written(storage: LocalStorage) -> None:
    states = OperatorStates("operator 'o'")
    large = states.list_state("large")
    large.update(["x" * INLINE_BYTES])
    pending = []
    for _ in range(3):
        pending.append(prepare_states(states.snapshot(), "u/1"))
        states.written(pending[-1].handles)
    assert pending[1].handles == pending[2].handles == pending[0].handles, "nothing changed"
    assert not pending[1].files
    large.add("y")
    pending.append(prepare_states(states.snapshot(), "u/1"))
    assert not list(storage.list_names("state"))
    for each in pending:
        each.finish(storage)
    for each, expected in zip(pending, [1, 1, 1, 2], strict=True):
        assert len(list(restored(each.handles, storage).list_state("large").get())) == expected


def test_what_did_not_change_is_not_written_again(storage: LocalStorage) -> None:
    states = OperatorStates()
    broadcast = states.broadcast_state("b")
    broadcast.put_all(dict(enumerate(LARGE)))
    first = written(states, storage)
    assert written(states, storage) == first
    assert written(restored(first, storage), storage) == first, "nobody has asked for it"
    again = restored(first, storage)
    assert again.broadcast_state("b").get(3) == LARGE[3]
    again.broadcast_state("b").remove("not there")
    assert written(again, storage) == first, "it was only read"
    again.broadcast_state("b").remove(3)
    second = written(again, storage)
    assert second["b"].count == 19
    assert second["b"].file != first["b"].file


def test_memory_counts_only_right_behind_the_snapshot(storage: LocalStorage) -> None:
    states = OperatorStates()
    value = ["in place"]
    states.broadcast_state("b").put("k", value)
    handles = written(states, storage)
    restored(handles, storage, states)
    assert states.broadcast_state("b").get("k") is value, "not read again"
    # The epoch that begins here fails in another task, and begins again.
    value.append("of the epoch that failed")
    restored(handles, storage, states)
    assert states.broadcast_state("b").get("k") == ["in place"]


def test_another_attempt_counts_more_than_memory(storage: LocalStorage) -> None:
    states, other = OperatorStates(), OperatorStates()
    states.list_state("l").add("here")
    other.list_state("l").add("there")
    written(states, storage)
    restored(written(other, storage), storage, states)
    assert states.list_state("l").get() == ["there"]


def test_names_that_nobody_asks_for_are_kept(storage: LocalStorage) -> None:
    states = OperatorStates()
    states.list_state("l").update(LARGE)
    states.list_state("s").update([1, 2, 3])
    handles = written(states, storage)
    parts = redistribute([handles], 3)
    kept = []
    for subtask in range(3):
        part = OperatorStates()
        part.restore(parts[subtask], StateReader(storage))
        kept.append(written(part, storage))
    back = OperatorStates()
    back.restore(redistribute(kept, 1)[0], StateReader(storage))
    assert back.list_state("l").get() == LARGE
    assert sorted(back.list_state("s").get()) == [1, 2, 3]


@pytest.mark.parametrize("elements", [["a", "b"], LARGE])
def test_a_union_that_nobody_asks_for_does_not_grow(
    storage: LocalStorage, elements: list[str]
) -> None:
    """Not at a new run, nor at another parallelism, nor in later epochs of a run."""
    handles = []
    for share in (elements, ["c"]):
        states = OperatorStates()
        states.union_list_state("u").update(share)
        handles.append(written(states, storage))
    for parallelism in (3, 1, 3, 2):
        parts = redistribute(handles, parallelism)
        handles = []
        for subtask in range(parallelism):
            part = OperatorStates()
            part.restore(parts[subtask], StateReader(storage))
            first = written(part, storage)
            handles.append(written(restored(through_json(first), storage), storage))
            assert handles[-1] == first
    for part_of in redistribute(handles, 2):
        last = OperatorStates()
        last.restore(part_of, StateReader(storage))
        assert last.union_list_state("u").get() == [*elements, "c"]
        # Who has asked for it has all of it as its own.
        assert not written(last, storage)["u"].is_copy


def through_json(handles: dict[str, OperatorStateHandle]) -> dict[str, OperatorStateHandle]:
    return {
        name: OPERATOR_STATE.read(OPERATOR_STATE.write(handle)) for name, handle in handles.items()
    }


def test_another_kind_or_type_of_a_name_is_refused(storage: LocalStorage) -> None:
    states = OperatorStates()
    states.list_state("l", Types.LONG()).add(1)
    states.broadcast_state("b", Types.STRING(), Types.LONG()).put("k", 1)
    handles = written(states, storage)
    again = restored(handles, storage)
    message = "operator 'o': state 'l' is kept as list state and is now asked for as union list"
    with pytest.raises(StateError, match=message):
        again.union_list_state("l")
    again = restored(handles, storage)
    with pytest.raises(StateError, match="Long cannot become String"):
        again.broadcast_state("b", Types.STRING(), Types.STRING())
    assert restored(handles, storage).list_state("l", Types.LONG()).get() == [1]


def test_operator_state_follows_the_declared_types(storage: LocalStorage) -> None:
    before = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    after = Types.ROW_NAMED(["c", "a"], [Types.STRING(), Types.DOUBLE()])
    states = OperatorStates()
    states.list_state("l", before).update([Row(1, "x"), Row("a", "b")(2, "y")])
    states.union_list_state("u", Types.SHORT()).add(7)
    states.broadcast_state("b", Types.STRING(), before).put("k", Row("a", "b")(3, "z"))
    handles = through_json(written(states, storage))
    again = restored(handles, storage)
    with pytest.raises(StateError, match=r"operator 'o': state 'l' .* Integer cannot become Str"):
        again.list_state("l", Types.ROW_NAMED(["a"], [Types.STRING()]))
    again = restored(handles, storage)
    made = Row("c", "a")
    for _ in range(2):  # and again, from what was written then
        assert again.list_state("l", after).get() == [made(None, 1.0), made(None, 2.0)]
        assert again.union_list_state("u", Types.LONG()).get() == [7]
        assert again.broadcast_state("b", Types.STRING(), after).get("k") == made(None, 3.0)
        again = restored(through_json(written(again, storage)), storage)


def test_damage_is_found(storage: LocalStorage, tmp_path: Path) -> None:
    states = OperatorStates()
    states.list_state("l").update(LARGE)
    handles = written(states, storage)
    file = handles["l"].file
    assert file is not None
    path = tmp_path / file["remote"]
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match=re.escape(file["remote"])):
        restored(handles, storage).list_state("l")
    path.unlink()
    with pytest.raises(CorruptCheckpointError, match="is missing"):
        restored(handles, storage).list_state("l")


@dataclass
class Node:
    page: str
    anything: Any


@dataclass
class Moved:
    page: str
    anything: Any


def test_classes_that_have_moved_are_found(
    storage: LocalStorage, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: set_moved_classes({}))
    states = OperatorStates()
    states.list_state("l").update([Node("x", Node("y", None))])
    handles = written(states, storage)
    set_moved_classes({f"{__name__}.Node": f"{__name__}.Moved"})
    states = restored(handles, storage)
    assert states.list_state("l").get() == [Moved("x", Moved("y", None))]
    handles = written(states, storage)
    set_moved_classes({})
    assert restored(handles, storage).list_state("l").get() == [Moved("x", Moved("y", None))]


def test_converted_elements_hold_instances_of_their_classes(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = OperatorStates()
    states.list_state("l", dataclass_type(Node)).update([Node("x", [Node("y", None)])])
    states.broadcast_state("b", None, dataclass_type(Node)).put(1, Node("x", [Node("y", None)]))
    handles = written(states, storage)
    longer = make_dataclass("Node", [("page", str), ("anything", Any), ("rank", int, 1)])
    longer.__module__ = __name__
    monkeypatch.setitem(globals(), "Node", longer)
    monkeypatch.setattr("millstream.state.serializers._classes", {})
    states = restored(handles, storage)
    expected = longer("x", [longer("y", None)])
    assert states.list_state("l", dataclass_type(longer)).get() == [expected]
    assert states.broadcast_state("b", None, dataclass_type(longer)).get(1) == expected


PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])
#: As they are declared, and one that is not exactly of its type.
PAIRS: list[Any] = [*((number, f"name {number}") for number in range(50)), [1, "a list"], None]


def declared(states: OperatorStates, kind: Any = PAIR) -> tuple[Any, Any, Any]:
    return (
        states.list_state("l", kind),
        states.union_list_state("u", kind),
        states.broadcast_state("b", Types.STRING(), kind),
    )


def fill(states: OperatorStates) -> None:
    elements, union, entries = declared(states)
    elements.update(PAIRS)
    union.update(PAIRS)
    entries.put_all({str(at): pair for at, pair in enumerate(PAIRS)})


def contents(states: OperatorStates, kind: Any = PAIR) -> list[Any]:
    elements, union, entries = declared(states, kind)
    return [elements.get(), union.get(), list(dict(entries.items()).values())]


def pickled_handles(storage: LocalStorage) -> dict[str, OperatorStateHandle]:
    """As builds before wrote them: with the recorded types, and every element pickled."""
    plain = OperatorStates()
    elements, union, entries = declared(plain, None)
    elements.update(PAIRS)
    union.update(PAIRS)
    entries.put_all({str(at): pair for at, pair in enumerate(PAIRS)})
    typed = OperatorStates()
    fill(typed)
    handles = written(typed, storage)
    return {
        name: replace(handle, type=handles[name].type, schemas=handles[name].schemas)
        for name, handle in written(plain, storage).items()
    }


def test_elements_of_a_declared_type_are_typed(storage: LocalStorage) -> None:
    states = OperatorStates()
    fill(states)
    handles = through_json(written(states, storage))
    pickled = pickled_handles(storage)
    for name, handle in handles.items():
        sizes = [sum(map(len, each[name].inline)) for each in (handles, pickled)]
        assert sizes[0] < 0.9 * sizes[1], name
        assert handle.count == len(PAIRS)
    assert contents(restored(handles, storage)) == [PAIRS] * 3
    assert contents(restored(handles, storage), None) == [PAIRS] * 3  # by the recorded type
    assert contents(restored(pickled, storage)) == [PAIRS] * 3


def test_typed_elements_follow_the_declared_type(storage: LocalStorage) -> None:
    wider = Types.TUPLE([Types.BIG_INT(), Types.STRING()])
    states = OperatorStates()
    fill(states)
    for handles in (through_json(written(states, storage)), pickled_handles(storage)):
        again = restored(handles, storage)
        expected = [*PAIRS[:50], (1, "a list"), None]
        assert contents(again, wider) == [expected] * 3
        handles = through_json(written(again, storage))  # noqa: PLW2901 - of the same state
        assert contents(restored(handles, storage), wider) == [expected] * 3


def test_typed_and_pickled_elements_that_nobody_asks_for_become_one_state(
    storage: LocalStorage,
) -> None:
    typed, plain = OperatorStates(), OperatorStates()
    declared(typed)[0].update(PAIRS)
    plain.list_state("l").update(PAIRS)
    old = [written(each, storage) for each in (plain, typed)]
    (parts,) = redistribute(old, 1)
    states = OperatorStates()
    states.restore(parts, StateReader(storage))
    handles = through_json(written(states, storage))
    assert restored(handles, storage).list_state("l", PAIR).get() == PAIRS * 2
    assert restored(handles, storage).list_state("l").get() == PAIRS * 2


class Upper(StateSerializer):
    name = "upper"

    def serialize(self, value: Any) -> bytes:
        return str(value).upper().encode()

    def deserialize(self, content: bytes, version: int) -> Any:
        del version
        return content.decode().lower()


def test_a_serializer_is_used_and_required(storage: LocalStorage) -> None:
    states = OperatorStates()
    kind = Types.SERIALIZED(Upper())
    for state in declared(states, kind)[:2]:
        state.update(["a", None])
    states.broadcast_state("b", Types.STRING(), kind).put_all({"x": "a", "y": None})
    handles = written(states, storage)
    assert handles["l"].inline[0] == b"\x01A"
    assert contents(restored(handles, storage), kind) == [["a", None]] * 3
    with pytest.raises(StateError, match=r"operator 'o': its values were written by ser.*'upper'"):
        restored(handles, storage).list_state("l")


@pytest.mark.parametrize("name", ["l", "u", "b"])
def test_oracle_canonical_rows_of_typed_elements(
    storage: LocalStorage, tmp_path: Path, name: str
) -> None:
    states = OperatorStates()
    fill(states)
    handle = written(states, storage)[name]
    other = pickled_handles(storage)[name]
    handles = {0: handle, 1: other}
    elements = {subtask: list(each.inline) for subtask, each in handles.items()}
    layout = OperatorLayout(handle.kind, handles=handles)
    table = layout.table(elements)
    pq.write_table(table, tmp_path / "rows.parquet")
    query = f"SELECT value.f0, value.f1 FROM '{tmp_path}/rows.parquet' WHERE value_other IS NULL"
    found = duckdb.connect().execute(query + " AND value IS NOT NULL").fetchall()
    assert sorted(found) == sorted(PAIRS[:50] * 2)
    rows = [row["value"] for row in layout.readable_rows(table)]
    assert rows == PAIRS * 2
    again = layout.elements(table)
    assert again[0] == elements[0]
    for subtask, each in handles.items():
        back = replace(each, inline=tuple(again[subtask]))
        state = restored({name: back}, storage)
        assert contents(state)["lub".index(name)] == PAIRS
