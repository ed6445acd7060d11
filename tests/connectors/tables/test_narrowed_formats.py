"""Decoders of some columns, and of many messages at once, against those of all, one by one."""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.connectors.tables.test_message_formats import codec
from tests.support.examples import examples

from millstream.connectors.formats import avro_messages, change_json
from millstream.connectors.formats.row_format import arrow_schema, columns_of_rows, row_of_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.connectors.formats.row_format import RowDecoder

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


@pytest.fixture(scope="module", autouse=True)
def _few_are_many() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (avro_messages, change_json):
            patch.setattr(module, "_FEW", 1)
        yield


KINDS = ["json", "csv", "debezium-json", "canal-json", "maxwell-json"]


@pytest.mark.parametrize("kind", KINDS)
@examples(30)
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
@examples(60)
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


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "Inf", "[1, NaN]"])
@pytest.mark.parametrize("kind", ["json", "debezium-json", "canal-json", "maxwell-json"])
def test_what_is_no_number_of_json_is_refused_at_once_too(kind: str, number: str) -> None:
    """pyarrow takes it for one, in fields that nobody reads, too."""
    row, text = {"a": 1, "f": 1.5, "x": 0}, {"a": 1, "b": "NaN, -Inf: NaN", "f": 2.5}
    for name, decoder in [(each, codec(kind, "a INT, b STRING, f DOUBLE")) for each in "fx"]:
        envelopes = [
            each if kind == "json" else _envelopes(kind, (each, each, 0)) for each in (row, text)
        ]
        made = [json.dumps(each).encode() for each in envelopes]
        bad = json.dumps(envelopes[0]).replace(f'"{name}": {row[name]}', f'"{name}": {number}')
        at_once = decoder.columns if kind == "json" else decoder.changes_at_once
        assert at_once(made) is not None
        assert at_once([*made, bad.encode()]) is None
        assert found(decoder, bad.encode()) is None


AVRO = (
    "a TINYINT, b SMALLINT NOT NULL, c INT, d BIGINT, e FLOAT, f DOUBLE NOT NULL, g DECIMAL(6, 2), "
    "h DECIMAL(30, 1), i STRING, j BYTES NOT NULL, k BOOLEAN, l DATE, m TIME(3), n TIMESTAMP(3)"
)


def _avro_rows() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    def whole(bits: int) -> st.SearchStrategy[int]:
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def decimal(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
        return st.integers(-(10**digits) + 1, 10**digits - 1).map(
            lambda each: Decimal(each).scaleb(-scale, Context(prec=40))
        )

    real = st.floats(width=32, allow_nan=False)
    cells = {
        "a": whole(8),
        "b": whole(16),
        "c": whole(32),
        "d": whole(64),
        "e": real,
        "f": real,
        "g": decimal(6, 2),
        "h": decimal(30, 1),
        "i": st.text(max_size=4),
        "j": st.binary(max_size=4),
        "k": st.booleans(),
        "l": st.integers(-5000, 50_000),
        "m": st.integers(0, 86_399_999),
        "n": whole(42),
    }
    parts = [each if name in "bfj" else st.one_of(st.none(), each) for name, each in cells.items()]
    return st.lists(st.tuples(*parts), min_size=1, max_size=5)


def _one_by_one(decoder: RowDecoder, given_messages: list[bytes]) -> Any:
    rows = [found(decoder, each) for each in given_messages]
    if None in rows:
        return None
    try:
        return columns_of_rows(arrow_schema(decoder.row), [row for ((_, row),) in rows])
    except (pa.ArrowException, OverflowError):
        return None


@examples(60)
@given(rows=_avro_rows())
def test_agree_avro_at_once_with_one_by_one(rows: list[tuple[Any, ...]]) -> None:
    encoder, decoder = codec("avro", AVRO, read=False), codec("avro", AVRO)
    made = encoder.encode(columns_of_rows(arrow_schema(encoder.row), rows), None)
    at_once = decoder.columns(made)
    wide = any(row[7] is not None and abs(row[7]) >= 2**59 for row in rows)
    assert (at_once is not None) or wide
    if at_once is not None:
        at_once.validate(full=True)
        assert at_once == _one_by_one(decoder, made)


@examples(150)
@given(rows=_avro_rows(), data=st.data())
def test_agree_on_what_is_no_avro(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    """Bytes that are changed, missing or too many: both give the same, or the fast one nothing."""
    columns = "i STRING, d BIGINT, g DECIMAL(6, 2), k BOOLEAN, f DOUBLE NOT NULL"
    encoder, decoder = codec("avro", columns, read=False), codec("avro", columns)
    cells = [(row[8], row[3], row[6], row[10], row[5]) for row in rows]
    made = encoder.encode(columns_of_rows(arrow_schema(encoder.row), cells), None)
    at = data.draw(st.integers(0, len(made) - 1))
    spot = data.draw(st.integers(0, len(made[at]) - 1))
    instead = data.draw(st.one_of(st.binary(max_size=2), st.just(b"\xff" * 11)))
    made[at] = made[at][:spot] + instead + made[at][spot + 1 :]
    if data.draw(st.booleans()) and at + 1 < len(made):  # all are as many bytes as before
        made[at : at + 2] = [made[at] + made[at + 1][:1], made[at + 1][1:]]
    at_once = decoder.columns(made)
    if at_once is not None:
        one_by_one = _one_by_one(decoder, made)
        assert one_by_one is not None
        # As texts: there a NaN equals another.
        assert str(at_once.to_pylist()) == str(one_by_one.to_pylist())


def test_few_and_nested_records_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert codec("avro", "a ARRAY<INT>").columns([b"\0"]) is None
    monkeypatch.setattr(avro_messages, "_FEW", 3)
    decoder = codec("avro", "a INT NOT NULL")
    assert decoder.columns([b"\2", b"\4"]) is None
    assert decoder.columns([b"\2", b"\4", b"\6"]).to_pydict() == {"a": [1, 2, 3]}
