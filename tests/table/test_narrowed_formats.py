"""Decoders of some columns, and of many messages at once, against those of all, one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table.test_message_formats import codec

from millstream.connectors.formats.tables.codec import columns_of_rows, row_of_columns

if TYPE_CHECKING:
    from millstream.connectors.formats.tables.codec import RowDecoder

COLUMNS = "a INT, b STRING, c DECIMAL(6, 2), d ARRAY<STRING>, e TIMESTAMP(3)"
_CELLS = {
    "a": st.one_of(st.integers(-(2**31), 2**31 - 1), st.none(), st.just("7")),
    "b": st.one_of(st.text('ab,\u00e9"', max_size=3), st.none(), st.integers(0, 9)),
    "c": st.one_of(st.sampled_from([1, 1.5, -12.25, "3.1"]), st.none()),
    "d": st.one_of(st.lists(st.sampled_from(["x", "yy"]), max_size=2), st.none()),
    "e": st.sampled_from(["2024-01-02 03:04:05.25", None]),
}
ROWS = st.fixed_dictionaries({}, optional=_CELLS)


def _envelopes(kind: str, drawn: tuple[dict[str, Any], dict[str, Any], int]) -> dict[str, Any]:
    one, other, what = drawn
    if kind == "debezium-json":
        before = {"before": one if what else None, "after": None if what == 2 else other}
        return before | {"op": "cud"[what], "ts_ms": what, "source": {"table": "t"}}
    name = ("insert", "update", "delete")[what]
    if kind == "maxwell-json":
        return {"table": "t", "type": name, "data": one} | ({"old": other} if what == 1 else {})
    old = {"old": [other, {}]} if what == 1 else {}
    return {"table": "t", "ts": what, "type": name.upper(), "data": [one, other], **old}


def messages(kind: str) -> st.SearchStrategy[list[bytes]]:
    if kind == "json":
        made: Any = ROWS
    elif kind == "csv":
        cells = st.sampled_from(["1", "", "x", "-7"])
        line = st.tuples(cells, cells, st.sampled_from(["1.5", ""]), cells, st.just(""))
        return st.lists(line.map(lambda each: ",".join(each).encode()), min_size=1, max_size=6)
    else:
        made = st.tuples(ROWS, ROWS, st.integers(0, 2)).map(lambda each: _envelopes(kind, each))
    return st.lists(made.map(lambda each: json.dumps(each).encode()), min_size=1, max_size=6)


def found(decoder: RowDecoder, each: bytes) -> Any:
    """The rows of a message, as columns; None: it does not parse."""
    try:
        rows = decoder.decode(each)
    except (ValueError, ArithmeticError):
        return None
    return rows


KINDS = ["json", "csv", "debezium-json", "canal-json", "maxwell-json"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_agree_some_columns_with_all(kind: str, data: st.DataObject) -> None:
    metadata = {
        "debezium-json": ["source.table"],
        "canal-json": ["table"],
        "maxwell-json": ["table"],
    }
    whole = codec(kind, COLUMNS, metadata=metadata.get(kind, []))
    names = data.draw(st.sets(st.sampled_from("abcde"), min_size=1))
    narrow = whole.narrowed(row_of_columns(whole.row, names))
    assert narrow is not None
    assert set(narrow.row.names) == names
    places = [at for at, name in enumerate(whole.row.names) if name in names]
    given_messages = data.draw(messages(kind))
    for each in given_messages:
        all_of_it = found(whole, each)
        if all_of_it is not None:
            more = len(whole.row)
            assert [(k, tuple(row)) for k, row in narrow.decode(each)] == [
                (k, (*(row[at] for at in places), *row[more:])) for k, row in all_of_it
            ]
    at_once = None if metadata.get(kind) else narrow.columns(given_messages)
    if at_once is not None:
        rows = [row for each in given_messages for _, row in narrow.decode(each)]
        assert at_once == columns_of_rows(at_once.schema, rows)


def test_a_field_that_must_be_there_is_read() -> None:
    whole = codec("json", "a INT, b INT", fail_on_missing_field="true")
    assert whole.narrowed(row_of_columns(whole.row, {"a"})) is None


@pytest.mark.parametrize("kind", ["debezium-json", "canal-json", "maxwell-json"])
@settings(max_examples=60)
@given(data=st.data())
def test_agree_changes_at_once_with_one_by_one(kind: str, data: st.DataObject) -> None:
    decoder = codec(kind, COLUMNS)
    given_messages = data.draw(messages(kind))
    at_once = decoder.changes_at_once(given_messages)
    one_by_one = [found(decoder, each) for each in given_messages]
    if at_once is None:
        return
    assert None not in one_by_one
    rows = [(at, kind, tuple(row)) for at, each in enumerate(one_by_one) for kind, row in each]
    assert at_once.messages.tolist() == [at for at, _, _ in rows]
    assert at_once.kinds.tolist() == [each for _, each, _ in rows]
    assert at_once.rows == columns_of_rows(at_once.rows.schema, [row for _, _, row in rows])
    at_once.rows.validate(full=True)


@pytest.mark.parametrize("kind", ["debezium-json", "canal-json", "maxwell-json"])
def test_usual_changes_are_read_at_once(kind: str) -> None:
    """As what takes this way is compared above alone."""
    decoder = codec(kind, COLUMNS)
    row: dict[str, Any] = {"a": 1, "b": "x", "c": 1.5, "d": ["y"], "e": "2024-01-02 03:04:05"}
    made = [json.dumps(_envelopes(kind, (row, row | {"a": 2}, what))).encode() for what in range(3)]
    if kind == "canal-json":
        made = [each.replace(b", {}]", b', {"b": "z"}]') for each in made]
    found_changes = decoder.changes_at_once(made)
    assert found_changes is not None
    per_message = 2 if kind == "canal-json" else 1
    assert len(found_changes.kinds) == 4 * per_message
    assert decoder.changes_at_once([*made, b"{}"]) is None
    assert codec(kind, "a MAP<STRING, INT>").changes_at_once(made) is None
