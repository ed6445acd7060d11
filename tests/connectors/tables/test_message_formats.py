"""Formats of messages: examples out of what Flink says, round trips, and ways that must agree."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.connectors.formats.json_format import JsonColumns
from millstream.connectors.formats.row_format import arrow_schema, columns_of_rows
from millstream.errors import ValidationError
from millstream.sql.catalog.formats import chosen_format
from millstream.sql.catalog.options import Options
from millstream.sql.parser.parser import parse_statement
from millstream.types.logical_types import RowField, RowType
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.connectors.formats.row_format import RowDecoder, RowEncoder


def row_of(columns: str) -> RowType:
    statement: Any = parse_statement(f"CREATE TABLE t ({columns})")
    fields = tuple(RowField(each.name.value, each.type) for each in statement.columns)
    return RowType(fields, nullable=False)


def codec(
    kind: str, columns: str, *, read: bool = True, metadata: Sequence[str] = (), **options: Any
) -> Any:
    keys = {key: key.replace("__", ".") for key in options}
    if kind != "avro":
        keys = {key: each.replace("_", "-") for key, each in keys.items()}
    given = {"format": kind} | {f"{kind}.{keys[key]}": each for key, each in options.items()}
    found = chosen_format("connector 'x'", given)
    assert found is not None
    from millstream.sql.catalog.options import text

    checked = Options("connector 'x'", given, (text("format"), *found.known))
    row = row_of(columns)
    made = found.decoder(row, checked, metadata) if read else found.encoder(row, checked)
    return pickle.loads(pickle.dumps(made))


def rows(decoder: RowDecoder, *messages: bytes | None) -> list[tuple[int, tuple[Any, ...]]]:
    """The rows as a reader of the table sees them."""
    found = [change for message in messages for change in decoder.decode(message)]
    width = len(decoder.row)
    batch = columns_of_rows(arrow_schema(decoder.row), [row[:width] for _, row in found])
    values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return [(kind, value) for (kind, _), value in zip(found, values, strict=True)]


def encoded(encoder: RowEncoder, *values: tuple[Any, ...], kinds: Sequence[int] = ()) -> list[Any]:
    batch = columns_of_rows(arrow_schema(encoder.row), values)
    return list(encoder.encode(batch, np.array(kinds, np.int8) if kinds else None))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("INT", "5", 5),
        ("INT", '" 5 "', 5),
        ("INT", "5.9", 5),
        ("BIGINT", "-7.9", -7),
        ("TINYINT", '"12"', 12),
        ("STRING", "12", "12"),
        ("STRING", "1.5", "1.5"),
        ("STRING", "1e10", "1.0E10"),
        ("STRING", "true", "true"),
        ("STRING", '{"a": [1, "x"]}', '{"a":[1,"x"]}'),
        ("BOOLEAN", '"TRUE"', True),
        ("BOOLEAN", '"yes"', False),
        ("DOUBLE", '"1.5"', 1.5),
        ("DOUBLE", "3", 3.0),
        ("DOUBLE", '"Infinity"', float("inf")),
        ("DECIMAL(5, 2)", "1.005", Decimal("1.01")),
        ("DECIMAL(5, 2)", '"12.3"', Decimal("12.30")),
        ("DECIMAL(5, 2)", "12345.6", None),
        (
            "DECIMAL(38, 0)",
            "12345678901234567890123456789012345678",
            Decimal(12345678901234567890123456789012345678),
        ),
        ("BYTES", '"aGk="', b"hi"),
        ("ARRAY<INT>", '[1, "2", null]', [1, 2, None]),
        ("MAP<STRING, INT>", '{"k": 1}', [("k", 1)]),
        ("ROW<a INT, b STRING>", '{"b": "x"}', {"a": None, "b": "x"}),
        ("INT", "null", None),
    ],
)
def test_values_of_json(kind: str, text: str, value: Any) -> None:
    decoder = codec("json", f"a {kind}")
    assert rows(decoder, f'{{"a": {text}}}'.encode()) == [(0, (value,))]


@pytest.mark.parametrize(
    ("kind", "sql", "iso"),
    [
        ("TIMESTAMP(3)", "2024-01-02 03:04:05.25", "2024-01-02T03:04:05.25"),
        ("TIMESTAMP(9)", "2024-01-02 03:04:05.123456789", "2024-01-02T03:04:05.123456789"),
        ("TIMESTAMP_LTZ(3)", "2024-01-02 03:04:05Z", "2024-01-02T03:04:05Z"),
        ("DATE", "2024-01-02", "2024-01-02"),
        ("TIME", "03:04:05", "03:04:05"),
    ],
)
def test_times_are_texts_of_a_standard(kind: str, sql: str, iso: str) -> None:
    for text, standard in ((sql, "SQL"), (iso, "ISO-8601")):
        options: dict[str, Any] = {"timestamp_format__standard": standard}
        message = json.dumps({"a": text}, separators=(",", ":")).encode()
        ((_, (value,)),) = rows(codec("json", f"a {kind}", **options), message)
        assert value is not None
        encoder = codec("json", f"a {kind}", read=False, **options)
        batch = columns_of_rows(
            arrow_schema(encoder.row), [codec("json", f"a {kind}", **options).decode(message)[0][1]]
        )
        assert encoder.encode(batch, None) == [message]
        if sql != iso and standard == "SQL":
            with pytest.raises(ValueError, match="timestamp"):
                codec("json", f"a {kind}").decode(json.dumps({"a": iso}).encode())


def test_a_field_that_does_not_fit_is_null_and_no_json_is_nothing() -> None:
    lenient = codec("json", "a INT, b STRING", ignore_parse_errors="true")
    strict = codec("json", "a INT, b STRING")
    assert rows(lenient, b'{"a": "x", "b": "y"}', b"{", b"[1]", None) == [(0, (None, "y"))]
    for message in (b'{"a": "x"}', b'{"a": 3000000000}', b"{", b"[1]", b"", b'{"a": NaN}'):
        with pytest.raises(ValueError, match=r"\S"):
            strict.decode(message)
    with pytest.raises(ValueError, match="Could not find field with name 'b'"):
        codec("json", "a INT, b STRING", fail_on_missing_field="true").decode(b'{"a": 1}')


def test_options_of_json_that_contradict_each_other() -> None:
    with pytest.raises(ValidationError, match="shouldn't both be true"):
        codec("json", "a INT", fail_on_missing_field="true", ignore_parse_errors="true")
    with pytest.raises(ValidationError, match="non-string as key type of map"):
        codec("json", "a MAP<INT, INT>")
    with pytest.raises(ValidationError, match=r"Did you mean 'json\.ignore-parse-errors'"):
        codec("json", "a INT", ignore_parse_error="true")


def test_json_is_written_as_flink_writes_it() -> None:
    columns = (
        "a INT, b DOUBLE, c DECIMAL(6, 2), d STRING, e BYTES, f ARRAY<INT>, g MAP<STRING, INT>"
    )
    encoder = codec("json", columns, read=False)
    row = (1, float("nan"), Decimal("1.50"), 'q"é', b"hi", [1, None], [("k", 1)])
    text = '{"a":1,"b":"NaN","c":1.50,"d":"q\\"é","e":"aGk=","f":[1,null],"g":{"k":1}}'
    assert encoded(encoder, row) == [text.encode()]
    sparse = codec("json", "a INT, b STRING", read=False, encode__ignore_null_fields="true")
    assert encoded(sparse, (None, "x"), (1, None)) == [b'{"b":"x"}', b'{"a":1}']


_TABLE = "a INT, b BIGINT, c STRING, d DOUBLE, e DECIMAL(10, 3), f BOOLEAN, g TIMESTAMP(6), h DATE"


def _values() -> st.SearchStrategy[Any]:
    none = st.none()
    return st.tuples(
        none | st.integers(-(2**31), 2**31 - 1),
        none | st.integers(-(2**63), 2**63 - 1),
        none | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8),
        none | st.floats(allow_nan=False),
        none | st.decimals(-999999, 999999, places=3),
        none | st.booleans(),
        none | st.datetimes(),
        none | st.dates(),
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("json", {}),
        ("json", {"timestamp_format__standard": "ISO-8601", "encode__ignore_null_fields": "true"}),
        ("avro", {"timestamp_mapping__legacy": "false"}),
        ("csv", {"null_literal": "NIL"}),
        ("debezium-json", {}),
        ("canal-json", {}),
        ("maxwell-json", {}),
    ],
)
@examples(15)
@given(drawn=st.lists(_values(), max_size=5))
def test_round_trips(kind: str, options: dict[str, Any], drawn: list[Any]) -> None:
    encoder = codec(kind, _TABLE, read=False, **options)
    decoder = codec(kind, _TABLE, **options)
    kinds = [3 if each[0] and each[0] % 2 and kind.endswith("-json") else 0 for each in drawn]
    messages = encoded(encoder, *drawn, kinds=kinds)
    assert rows(decoder, *messages) == list(zip(kinds, drawn, strict=True))
    _agree(decoder, messages)


def _agree(decoder: RowDecoder, messages: list[bytes]) -> None:
    """All at once or one by one: the same rows."""
    columns = decoder.columns(messages) if messages else None
    if columns is not None:
        one_by_one = [row for message in messages for _, row in decoder.decode(message)]
        assert columns.equals(columns_of_rows(arrow_schema(decoder.row), one_by_one))


@pytest.mark.parametrize(
    "texts",
    [
        ['{"a": 1, "b": "x"}', '{"b": null}', '{"a": -5, "c": [1]}'],
        ['{"a": "7", "b": 3}', '{"a": 1.0}'],
        ['{"e": 1.005}', '{"e": 12345678.5}', '{"e": 1e3}', '{"e": "2.5"}'],
        ['{"d": 1}', '{"d": 1.5e300}', '{"d": "2"}', '{"d": -0.0}'],
        ['{"f": true}', '{"f": "true"}'],
    ],
)
def test_json_at_once_is_json_one_by_one(texts: list[str]) -> None:
    decoder = codec("json", "a INT, b STRING, d DOUBLE, e DECIMAL(10, 2), f BOOLEAN")
    for text in texts:
        _agree(decoder, [text.encode()])
    _agree(decoder, [text.encode() for text in texts])


@pytest.mark.parametrize(
    "messages",
    [
        [b"null"],  # pyarrow crashes
        [b'{"a":1}', b"null"],  # and makes a row of NULLs
        [b'{"a":1}null', b""],
        [b'{"a":1}{"a":2}', b""],  # two rows and none
        [b'{"a":1}\n\tnull', b'{"a":2}'],
    ],
)
def test_what_is_no_object_is_no_row(messages: list[bytes]) -> None:
    strict = codec("json", "a INT")
    assert strict.columns(messages) is None
    with pytest.raises(ValueError, match=r"\S"):
        rows(strict, *messages)


def test_null_is_no_object_between_lines_either() -> None:
    reader = JsonColumns(RowTypeInfo([ArrowTypeInfo(pa.int32())], ["a"]), texts=True)
    for block in (b"null", b' null\n{"a":2}', b'{"a":1}\nnull\n{"a":2}', b'{"a":1} null'):
        with pytest.raises(ValueError, match="null is no JSON object"):
            reader.read(block)
    # In objects of several lines, and in texts, it may look alike.
    assert reader.read(b'{"b":"}null","a":\nnull}\n{"a":2}')["a"].to_pylist() == [None, 2]


def test_half_a_character_is_a_question_mark() -> None:
    decoder = codec("json", "a STRING, b MAP<STRING, STRING>")
    message = b'{"a": "x\\ud800y\\ud83d\\ude00", "b": {"\\udc00": "\\u00e9"}}'
    assert rows(decoder, message) == [(0, ("x?y\U0001f600", [("?", "é")]))]


def test_metadata_of_debezium_is_json() -> None:
    keys = ["schema", "source.properties", "source.timestamp"]
    decoder = codec("debezium-json", "a INT", metadata=keys, schema_include="true")
    source = {"snapshot": True, "lsn": 1.50, "more": {"x": [1, None]}, "ts_ms": 7, "no": None}
    envelope = {"before": None, "after": {"a": 1}, "op": "c", "source": source}
    message = json.dumps({"schema": {"optional": False}, "payload": envelope}).encode()
    properties = [
        ("snapshot", "true"),
        ("lsn", "1.5"),
        ("more", '{"x":[1,null]}'),
        ("ts_ms", "7"),
        ("no", None),
    ]
    assert decoder.decode(message) == [(0, (1, '{"optional":false}', properties, 7))]
    bare = {"before": None, "after": {"a": 1}, "op": "c", "source": "x"}
    strict = codec("debezium-json", "a INT", metadata=["source.properties"])
    with pytest.raises(ValueError, match="'source' is no object"):
        strict.decode(json.dumps(bare).encode())


_PRODUCT = "id BIGINT, name STRING, description STRING, weight DECIMAL(10, 2)"
_BEFORE = {"id": 111, "name": "scooter", "description": "Big 2-wheel scooter", "weight": 5.18}
_AFTER = {"id": 111, "name": "scooter", "description": "Big 2-wheel scooter", "weight": 5.15}
_OLD = (111, "scooter", "Big 2-wheel scooter", Decimal("5.18"))
_NEW = (111, "scooter", "Big 2-wheel scooter", Decimal("5.15"))


def test_debezium_as_its_documentation_has_it() -> None:
    said = {"source": {"db": "shop", "ts_ms": 5}, "ts_ms": 1589362330904, "transaction": None}
    update = {"before": _BEFORE, "after": _AFTER, "op": "u", **said}
    decoder = codec("debezium-json", _PRODUCT)
    assert rows(decoder, json.dumps(update).encode()) == [(1, _OLD), (2, _NEW)]
    create = {"before": None, "after": _AFTER, "op": "r", **said}
    delete = {"before": _AFTER, "after": None, "op": "d", **said}
    every = [json.dumps(each).encode() for each in (create, delete)]
    # A tombstone follows a deletion.
    assert rows(decoder, *every, None) == [(0, _NEW), (3, _NEW)]
    wrapped = codec(
        "debezium-json",
        _PRODUCT,
        metadata=["ingestion-timestamp", "source.database", "source.table", "source.properties"],
        schema_include="true",
    )
    message = json.dumps({"schema": {"type": "struct"}, "payload": update}).encode()
    assert [kind for kind, _ in wrapped.decode(message)] == [1, 2]
    said_of = wrapped.decode(message)[0][1][4:]
    assert said_of == (1589362330904, "shop", None, [("db", "shop"), ("ts_ms", "5")])
    with pytest.raises(ValueError, match="REPLICA IDENTITY to FULL"):
        decoder.decode(json.dumps({**update, "before": None}).encode())
    with pytest.raises(ValueError, match="unknown \"op\" value 'x'"):
        decoder.decode(json.dumps({**update, "op": "x"}).encode())
    with pytest.raises(ValueError, match="payload"):
        wrapped.decode(json.dumps(update).encode())
    with pytest.raises(ValidationError, match="schema-include"):
        codec("debezium-json", _PRODUCT, read=False, schema_include="true")
    assert rows(codec("debezium-json", _PRODUCT, ignore_parse_errors="true"), b"{}", b"{") == []


def test_canal_as_its_documentation_has_it() -> None:
    update = {
        "data": [_AFTER],
        "old": [{"weight": 5.18}],
        "type": "UPDATE",
        "database": "inventory",
        "table": "products",
        "ts": 1589373560798,
    }
    message = json.dumps(update).encode()
    assert rows(codec("canal-json", _PRODUCT), message) == [(1, _OLD), (2, _NEW)]
    insert = {**update, "type": "INSERT", "old": None, "data": [_AFTER, _BEFORE]}
    decoder = codec("canal-json", _PRODUCT, database__include="inv.*", table__include="prod")
    assert decoder.decode(json.dumps(insert).encode()) == []
    decoder = codec("canal-json", _PRODUCT, database__include="inv.*", table__include="prod.*")
    assert rows(decoder, json.dumps(insert).encode()) == [(0, _NEW), (0, _OLD)]
    assert decoder.decode(json.dumps({**update, "type": "CREATE", "data": None}).encode()) == []
    with pytest.raises(ValueError, match="unknown"):
        decoder.decode(json.dumps({**update, "type": "TRUNCATE"}).encode())


def test_maxwell_as_its_documentation_has_it() -> None:
    update = {"type": "update", "data": _AFTER, "old": {"weight": 5.18}, "ts": 1}
    decoder = codec("maxwell-json", _PRODUCT)
    assert rows(decoder, json.dumps(update).encode()) == [(1, _OLD), (2, _NEW)]
    # A field that was null has changed if it is there.
    was_null = {**update, "old": {"name": None}}
    ((_, before), _) = rows(decoder, json.dumps(was_null).encode())
    assert before == (111, None, "Big 2-wheel scooter", Decimal("5.15"))
    delete = {"type": "delete", "data": _AFTER}
    assert rows(decoder, json.dumps(delete).encode()) == [(3, _NEW)]


@pytest.mark.parametrize(
    ("kind", "options", "message", "value"),
    [
        ("STRING", {}, "grün".encode(), "grün"),
        ("STRING", {"charset": "UTF-16BE"}, "grün".encode("utf-16-be"), "grün"),
        ("BYTES", {}, b"\x00\x01", b"\x00\x01"),
        ("INT", {}, b"\x00\x00\x00\x05", 5),
        ("INT", {"endianness": "little-endian"}, b"\x05\x00\x00\x00", 5),
        ("BIGINT", {}, b"\xff" * 8, -1),
        ("BOOLEAN", {}, b"\x01", True),
        ("DOUBLE", {}, b"\x3f\xf8" + bytes(6), 1.5),
        ("INT", {}, None, None),
    ],
)
def test_raw(kind: str, options: dict[str, Any], message: bytes | None, value: Any) -> None:
    assert rows(codec("raw", f"a {kind}", **options), message) == [(0, (value,))]
    assert encoded(codec("raw", f"a {kind}", read=False, **options), (value,)) == [message]


def test_what_raw_does_not_take() -> None:
    with pytest.raises(ValidationError, match="only supports single physical column"):
        codec("raw", "a INT, b INT")
    with pytest.raises(ValidationError, match="as column type"):
        codec("raw", "a DATE")
    with pytest.raises(ValidationError, match=r"Unsupported 'raw.charset' name: nope"):
        codec("raw", "a STRING", charset="nope")
    with pytest.raises(ValueError, match="INT type is not 4"):
        codec("raw", "a INT").decode(b"123")


def test_csv_values_after_those_of_the_columns() -> None:
    strict = codec("csv", "a INT, b STRING")
    with pytest.raises(ValueError, match="3"):
        rows(strict, b"1,x,y")
    messages = [b"1,x,y", b'2,"a,b",c,d', b"3,z"]
    decoder = codec("csv", "a INT, b STRING", ignore_trailing_unmappable="true")
    assert rows(decoder, *messages) == [(0, (1, "x")), (0, (2, "a,b")), (0, (3, "z"))]
    columns = decoder.columns(messages)
    assert columns is not None
    assert columns.column(1).to_pylist() == ["x", "a,b", "z"]


def test_csv_nulls_and_errors() -> None:
    columns = "a INT, b STRING, c ARRAY<INT>, d TIMESTAMP(3)"
    strict = codec("csv", columns, null_literal="n/a")
    assert rows(strict, b"1,n/a,1;2,2024-01-01 00:00:00.5")[0][1][:3] == (1, None, [1, 2])
    with pytest.raises(ValueError, match="whole number"):
        strict.decode(b"x,y,1,2024-01-01 00:00:00")
    lenient = codec("csv", columns, ignore_parse_errors="true")
    short = (0, (1, "2", None, None))
    assert rows(lenient, b"x,y,1;z,never", b"1,2", b"1,2,3,,5") == [
        (0, (None, "y", [1, None], None)),
        short,
    ]
    bare = codec("csv", "a STRING, b STRING", disable_quote_character="true")
    assert rows(bare, b'"x",5" pipe') == [(0, ('"x"', '5" pipe'))]
    piped = codec("csv", "a INT, b STRING", field_delimiter="|", quote_character="'")
    assert rows(piped, b"1|'x|y'") == [(0, (1, "x|y"))]
    tabs = codec("csv", "a INT, b STRING", field_delimiter="\\t")
    assert rows(tabs, b"1\tx") == [(0, (1, "x"))]


@pytest.mark.parametrize(
    ("options", "row", "line"),
    [
        ({}, ("1234567890123456789012345", "a.b"), b'"1234567890123456789012345",a.b'),
        ({}, ("123456789012345678901234", "#"), b'123456789012345678901234,"#"'),
        ({}, ("a\\b", "~"), b'"a\\b",~'),
        ({"field_delimiter": "|"}, ("a_b", "p;q"), b'"a_b"|"p;q"'),
        (
            {"field_delimiter": ";", "quote_character": "'"},
            ("a:b", "a<b"),
            b"'a:b';a<b",
        ),
        ({"escape_character": "\\"}, ('p"q', "a\\b"), b'"p""q","a\\\\b"'),
    ],
)
def test_texts_that_might_need_quotes_are_in_quotes_in_csv(
    options: dict[str, Any], row: tuple[str, ...], line: bytes
) -> None:
    columns = "a STRING, b STRING"
    assert encoded(codec("csv", columns, read=False, **options), row) == [line]
    assert rows(codec("csv", columns, **options), line) == [(0, row)]


def test_numbers_of_csv_are_without_quotes() -> None:
    columns = "a DECIMAL(10, 2), b DECIMAL(20, 10), c FLOAT, d DOUBLE, e BOOLEAN, f INT"
    row = (Decimal("300.00"), Decimal("0.0000001"), 1.100000023841858, 123456789.125, True, -5)
    (line,) = encoded(codec("csv", columns, read=False, field_delimiter="|"), row)
    assert line == b"3E+2|1E-7|1.1|1.23456789125E8|true|-5"
    plain = codec("csv", columns, read=False, write_bigdecimal_in_scientific_notation="false")
    (line,) = encoded(plain, row)
    assert line == b"300,0.0000001,1.1,1.23456789125E8,true,-5"
    (line,) = encoded(codec("csv", "a DOUBLE, b INT", read=False, field_delimiter="."), (1.5, 2))
    assert line == b'"1.5".2'  # else it would be read back as something else


def test_decimals_of_avro_have_all_their_digits() -> None:
    columns = "a DECIMAL(38, 10), b ARRAY<DECIMAL(38, 38)>"
    row = (
        Decimal("-1234567890123456789012345678.0123456789"),
        [Decimal("0.12345678901234567890123456789012345678")],
    )
    (message,) = encoded(codec("avro", columns, read=False), row)
    assert rows(codec("avro", columns), message) == [(0, row)]


_CELLS = {
    "BOOLEAN": ["true", " TRUE ", "1", "no", ""],
    "TINYINT": ["5", "-128", "128", " 7 ", "+7", "007", "0x10", "1.0", ""],
    "BIGINT": ["9223372036854775807", "9223372036854775808", "-1", "1_0", "x"],
    "FLOAT": ["1.1", "1e39", "-0", "NaN", "16777217"],
    "DOUBLE": ["1.5", "1e3", "1e400", "-Infinity", "nan", ".5", "5.", "1d", "0.1", ""],
    "DECIMAL(5, 2)": ["1.5", "-999.99", "1.005", "1234.5", "1e2", "007.10", " 1", "x"],
    "DECIMAL(38, 20)": ["123456789012345678.12345678901234567890"],
    "DECIMAL(2, 2)": ["0.25", "1.5"],
    "DATE": ["2024-02-29", "2023-02-29", "0001-01-01", "0000-01-01", "2024-1-1", "9999-12-31"],
    "TIME": ["10:11:12", "10:11", "25:00:00", "10:11:12.5"],
    "TIME(6)": ["10:11:12", "10:11:12.123456"],
    "TIMESTAMP(3)": ["2024-01-01 00:00:00", "2024-01-01 00:00:00.1239", "1969-12-31 23:59:59.9"],
    "TIMESTAMP(6)": ["2024-01-01T00:00:00", "2024-01-01 24:00:00", "0001-01-01 00:00:00"],
    "TIMESTAMP(9)": ["2024-01-01 00:00:00.123456789", "3000-01-01 00:00:00"],
    "TIMESTAMP_LTZ(3)": ["2024-01-01 00:00:00.5Z", "2024-01-01 00:00:00", "2024-01-01"],
    "BYTES": ["aGk=", "aGk", ""],
    "STRING": ["", "x", "é"],
    "ARRAY<INT>": ["1;2", "", ";", "x;1"],
    "ARRAY<TIMESTAMP(3)>": ["2024-01-01 00:00:00;2024-01-01 00:00:00.25", "x"],
}


@pytest.mark.parametrize("kind", _CELLS)
def test_columns_of_texts_are_what_the_texts_are(kind: str) -> None:
    """All at once, each by itself, and the lenient way."""
    for lenient in ("false", "true"):
        decoder = codec("csv", f"a {kind}, b INT", ignore_parse_errors=lenient)
        good = []
        for cell in _CELLS[kind]:
            message = f'"{cell}",1'.encode()
            try:
                one = columns_of_rows(arrow_schema(decoder.row), [decoder.decode(message)[0][1]])
            except ValueError:
                assert decoder.columns([message]) is None
                continue
            good.append(message)
            at_once = decoder.columns([message])
            assert at_once is not None
            assert at_once.to_pylist() == one.to_pylist() or "nan" in str(one.to_pylist())
        assert good
        every = decoder.columns(good)
        one_by_one = [decoder.decode(message)[0][1] for message in good]
        expected = columns_of_rows(arrow_schema(decoder.row), one_by_one)
        assert str(every.to_pylist()) == str(expected.to_pylist())


@pytest.mark.parametrize(
    "kind",
    ["DATE", "TIME", "TIMESTAMP(3)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)", "BYTES"],
)
def test_times_and_bytes_of_json_at_once(kind: str) -> None:
    for standard in ("SQL", "ISO-8601"):
        decoder = codec("json", f"a {kind}, b INT", timestamp_format__standard=standard)
        cells = [*_CELLS[kind], None]
        for cell in [*cells, *(each.replace(" ", "T") for each in cells if each)]:
            message = json.dumps({"a": cell, "b": 1}).encode()
            try:
                one = columns_of_rows(arrow_schema(decoder.row), [decoder.decode(message)[0][1]])
            except ValueError:
                assert decoder.columns([message]) is None
                continue
            at_once = decoder.columns([message])
            assert at_once is not None
            assert at_once.equals(one)


def test_lists_and_rows_of_json_at_once() -> None:
    columns = "a ROW<x INT, y ARRAY<DECIMAL(5, 2)>>, b ARRAY<ROW<s STRING>>"
    decoder = codec("json", columns)
    values: list[Any] = [
        {"a": {"x": 1, "y": [1.5, None]}, "b": [{"s": "x"}, None, {}]},
        {"a": None, "b": []},
        {"a": {}, "b": None},
        {},
    ]
    messages = [json.dumps(each).encode() for each in values]
    assert decoder.columns(messages) is not None
    _agree(decoder, messages)


@pytest.mark.parametrize(
    ("wide", "narrow", "value"),
    [("INT", "TINYINT", 300), ("DECIMAL(10, 2)", "DECIMAL(4, 2)", Decimal("-123.45"))],
)
def test_numbers_of_avro_that_do_not_fit_are_said(wide: str, narrow: str, value: Any) -> None:
    (message,) = encoded(codec("avro", f"a {wide}", read=False), (value,))
    with pytest.raises(ValueError, match=str(value)):
        codec("avro", f"a {narrow}").decode(message)
    (fits,) = encoded(codec("avro", f"a {wide}", read=False), (value // -100,))
    assert rows(codec("avro", f"a {wide}"), fits) == rows(codec("avro", f"a {narrow}"), fits)


def test_avro_is_the_record_of_the_table() -> None:
    import io

    import fastavro

    columns = (
        "a INT NOT NULL, b STRING, c TIMESTAMP(3), d DECIMAL(5, 2), e ROW<x INT>, "
        "f MAP<STRING, INT>"
    )
    (message,) = encoded(
        codec("avro", columns, read=False),
        (7, "x", 1_704_067_200_250, Decimal("-1.50"), {"x": 3}, [("k", 1)]),
    )
    schema: Any = fastavro.parse_schema(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "a", "type": "int"},
                {"name": "b", "type": ["null", "string"]},
                {"name": "c", "type": ["null", "long"]},
                {
                    "name": "d",
                    "type": [
                        "null",
                        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
                    ],
                },
                {
                    "name": "e",
                    "type": [
                        "null",
                        {
                            "type": "record",
                            "name": "n",
                            "fields": [{"name": "x", "type": ["null", "int"]}],
                        },
                    ],
                },
                {"name": "f", "type": ["null", {"type": "map", "values": ["null", "int"]}]},
            ],
        }
    )
    assert fastavro.schemaless_reader(io.BytesIO(message), schema, None) == {
        "a": 7,
        "b": "x",
        "c": 1_704_067_200_250,
        "d": Decimal("-1.50"),
        "e": {"x": 3},
        "f": {"k": 1},
    }
    assert rows(codec("avro", columns), message)[0][1][3:] == (
        Decimal("-1.50"),
        {"x": 3},
        [("k", 1)],
    )
    with pytest.raises(ValidationError, match=r"timestamp_mapping\.legacy"):
        codec("avro", "a TIMESTAMP_LTZ(3)")
    with pytest.raises(ValueError, match="bytes after"):
        codec("avro", columns).decode(message + b"x")
