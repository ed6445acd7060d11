"""Rows behave as PyFlink documents them."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest

from millstream.types.row import Row, RowKind, row_class


def test_a_row_without_names_is_reached_by_index() -> None:
    row = Row("hi", 1)
    assert repr(row) == "<Row('hi', 1)>"
    assert (row[0], row[-1], len(row), list(row)) == ("hi", 1, 2, ["hi", 1])
    assert "hi" in row
    assert row.get_field_names() is None
    with pytest.raises(ValueError, match="name"):
        row["name"]
    with pytest.raises(AttributeError):
        row.name  # noqa: B018
    with pytest.raises(TypeError):
        row.as_dict()


def test_keyword_fields_keep_their_order_as_in_pyflink() -> None:
    row = Row(name="Alice", age=11)
    assert repr(row) == "Row(name='Alice', age=11)"
    assert (row["name"], row["age"]) == ("Alice", 11)
    assert (row.name, row.age, row[0]) == ("Alice", 11, "Alice")
    assert row.as_dict() == {"age": 11, "name": "Alice"}
    other = Row(age=11, name="Alice")
    assert list(other) == [11, "Alice"]
    assert other != row
    with pytest.raises(ValueError, match="both"):
        Row(1, a=2)


def test_one_keyword_field_is_one_field() -> None:
    assert list(Row(a="xy")) == ["xy"]
    assert Row(a=()).get_field_names() == ["a"]


def test_a_row_of_names_makes_rows() -> None:
    person = Row("name", "age")
    assert person("Alice", 11) == row_class(("name", "age"))(["Alice", 11])
    assert repr(person("Alice", 11)) == "Row(name='Alice', age=11)"
    with pytest.raises(ValueError, match="expected 2 values"):
        person(1, 2, 3)


def test_as_dict_recursive() -> None:
    row = Row(key=1, value=Row(name="a", age=2), more=[Row(x=1)], by={"k": Row(y=2)})
    assert row.as_dict()["value"] == Row(name="a", age=2)
    assert row.as_dict(recursive=True) == {
        "key": 1,
        "value": {"name": "a", "age": 2},
        "more": [{"x": 1}],
        "by": {"k": {"y": 2}},
    }


def test_values_change_by_index_and_name_but_not_by_attribute() -> None:
    row = Row(a=1, b=2)
    row[0] = 10
    row["b"] = 20
    assert row == Row(a=10, b=20)
    with pytest.raises(AttributeError):
        row.a = 5
    with pytest.raises(AttributeError):
        row.other = 5
    with pytest.raises(ValueError, match="other"):
        row["other"] = 5


def test_names_and_kind_are_part_of_equality() -> None:
    named = Row(1, 2)
    named.set_field_names(["a", "b"])
    assert named == Row(a=1, b=2)
    assert named != Row(1, 2)
    assert Row(1, 2) != [1, 2]
    assert not [1, 2] == Row(1, 2)  # noqa: SIM201, SIM300 - the reflected comparison
    assert Row(1, 2) == row_class(None)([1, 2])
    deleted = Row(a=1, b=2)
    deleted.set_row_kind(RowKind.DELETE)
    assert deleted.get_row_kind() is RowKind.DELETE
    assert deleted != named
    assert (deleted.a, deleted["b"], repr(deleted)) == (1, 2, "Row(a=1, b=2)")
    assert hash(Row(1, 2)) == hash(row_class(None)([1, 2])) == hash((1, 2))


def test_changelog_string() -> None:
    row = Row("hi", None, Row(1))
    row.set_row_kind(RowKind.UPDATE_BEFORE)
    assert row.to_changelog_string() == "-U[hi, null, +I[1]]"
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_fields_called_like_list_methods_are_fields() -> None:
    row: Any = Row(count=3, index=4, append=5, as_dict=6)
    assert (row.count, row.index, row.append, row["as_dict"]) == (3, 4, 5, 6)
    assert row.as_dict()["count"] == 3


def test_row_classes_are_made_once() -> None:
    assert row_class(("a", "b")) is row_class(("a", "b"))
    assert row_class(("a", "b")) is not row_class(("b", "a"))
    assert issubclass(row_class(("a",)), Row)
    assert row_class(("a", "b"))(iter([1, 2])).b == 2


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol: int) -> None:
    rows = [Row(1, "x"), Row(a=1, b=Row(2)), Row(a=3, b=None), Row("n")("v")]
    rows[2].set_row_kind(RowKind.UPDATE_AFTER)
    back = pickle.loads(pickle.dumps(rows, protocol))
    assert back == rows
    assert list(map(type, back)) != [Row] * 4
    assert [row.get_row_kind() for row in back] == [row.get_row_kind() for row in rows]


def test_pickles_are_compact() -> None:
    make = row_class(("a_rather_long_name", "another_long_name"))
    one = len(pickle.dumps([make([1, 2])], 5))
    many = len(pickle.dumps([make([1, 2]) for _ in range(101)], 5))
    assert (many - one) / 100 < 20


def test_copies_are_independent() -> None:
    row = Row(a=[1], b=2)
    shallow, deep = copy.copy(row), copy.deepcopy(row)
    row["b"] = 3
    row.a.append(2)
    assert shallow == Row(a=[1, 2], b=2)
    assert deep == Row(a=[1], b=2)


def test_rows_of_a_kind_and_fields_by_names() -> None:
    deleted = Row.of_kind(RowKind.DELETE, name="Alice", age=11)
    assert deleted.get_row_kind() is RowKind.DELETE
    assert deleted != Row(name="Alice", age=11)
    assert deleted.get_fields_by_names(["name", "age"]) == ["Alice", 11]
    assert deleted.get_fields_by_names(["age"]) == [11]
    with pytest.raises(ValueError, match=r"\['colour'\] not exist in \['name', 'age'\]"):
        deleted.get_fields_by_names(["age", "colour"])
    assert Row.of_kind(RowKind.INSERT, 1, 2) == Row(1, 2)
    assert Row(1, 2).get_fields_by_names(["any"]) == [1, 2]
    assert pickle.loads(pickle.dumps(deleted)).get_row_kind() is RowKind.DELETE


def test_rows_of_names_whatever_rows_of_other_names_there_are() -> None:
    chance = random.Random(11)
    for _ in range(500):
        names = chance.sample(["key", "count", "ts", "at", "index"], chance.randint(1, 5))
        values = {name: chance.randrange(100) for name in names}
        row = Row(**values)
        assert row.get_field_names() == names
        assert list(row) == [values[name] for name in names]
        assert type(row) is row_class(tuple(names))


class _Twice(Row):
    __slots__ = ()

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        super().__init__(*args)


def test_a_row_that_is_made_once_more_has_its_new_values_only() -> None:
    row = Row(1, 2)
    row.__init__(3)  # type: ignore[misc]  # as programs that use a row again
    assert row == Row(3)
    Row.__init__(row, a=4)
    assert row == Row(a=4)
    assert list(_Twice(1, 2)) == [1, 2]
