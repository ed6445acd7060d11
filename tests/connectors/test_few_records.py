"""A few records of JSON are read and written without pyarrow, and nobody can tell."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.job_runs import examples

from millstream.connectors.formats.json_format import (
    FewRecords,
    few_json_texts,
    json_lines,
    json_texts,
    read_json,
)

COLUMNS = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("yes", pa.bool_()),
        ("text", pa.string()),
        ("x", pa.float64()),
    ]
)
TEXT = st.text(st.sampled_from('"\\/\n\r\t\x00\x08\x1f\x7f aé\u2028\U0001f600'), max_size=5)
WHOLE = st.integers(-(2**64), 2**64) | st.sampled_from([0, 127, -128, 128, 2**63, -(2**63)])
PLAIN = st.none() | st.booleans() | WHOLE | st.floats() | TEXT
VALUE = st.recursive(
    PLAIN, lambda each: st.lists(each, max_size=2) | st.dictionaries(TEXT, each, max_size=2)
)
#: As Python would never write them.
ODD = st.sampled_from(
    [
        *("-0", "-0.0", "1.0", "1e2", "1E-999", "1e999", "5e-324", "01", "+1", ".5", "NaN", "nul"),
        *("9" * 310, "1" * 400, '"\\ud800"', '"\\u0000"', '"\\u00e9"', '"\x01"', "[1", "{}"),
        *('{"a":1,"a":2}', "\t1 ", '"\ufeff"', "0.1", "123456789.987654321", "1e308"),
    ]
)
NAME = st.sampled_from(["n", "small", "yes", "text", "x", "other"])
FIELD = st.tuples(NAME, VALUE.map(json.dumps) | ODD)
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-128, 127),
        "yes": st.booleans(),
        "text": TEXT,
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "other": VALUE,
    },
)
OBJECT = st.lists(FIELD, max_size=4).map(
    lambda fields: "{" + ",".join(f'"{name}":{text}' for name, text in fields) + "}"
)
LINE = (
    FITTING.map(lambda record: json.dumps(record, ensure_ascii=False))
    | OBJECT
    | st.sampled_from(["", " ", "null", "[]", "1", "{}{}", "{},{}", '{"n":', "1}", "{}\r"])
)


def seen(table: pa.Table) -> tuple[pa.Schema, str]:
    """So that -0.0 is not 0.0."""
    return table.schema, repr(table.to_pydict())


@examples(250)
@given(st.lists(LINE, min_size=1, max_size=3))
def test_agree_what_is_read_is_what_pyarrow_reads(lines: list[str]) -> None:
    block = "\n".join(lines).encode("utf-8", "surrogatepass")
    found = FewRecords(COLUMNS).read(block)
    if found is not None:
        assert seen(found) == seen(read_json(block, COLUMNS))


@pytest.mark.parametrize(
    "block",
    [
        b'{"n":1,"small":-7,"yes":true,"text":"\xc3\xa9\\n","x":-0.0,"other":[{"n":"x"}]}',
        b'{"n":null}\n{}\n{"text":"", "n" : -9223372036854775808}',
        b"\n".join([b'{"n":1}'] * 32),
    ],
)
def test_ordinary_records_are_read(block: bytes) -> None:
    found = FewRecords(COLUMNS).read(block)
    assert found is not None
    assert seen(found) == seen(read_json(block, COLUMNS))


@pytest.mark.parametrize(
    "block",
    [
        *(
            b'{"n":1.0}',
            b'{"n":"1"}',
            b'{"n":true}',
            b'{"n":9223372036854775808}',
            b'{"small":128}',
        ),
        *(b'{"x":1}', b'{"x":1e999}', b'{"other":NaN}', b'{"n":1,"n":1}', b'{"text":"\\u0041"}'),
        *(b"null", b"", b"[]", b'{"n":1}\n', b'{"n":1}{"n":2}', b'{"n":\n1}', b'{"text":"\xff"}'),
        *(b'{"other":' + b"9" * 310 + b"}", b'{"other":' + b"[" * 10_000 + b"}"),
        *(b"\n".join([b'{"n":1}'] * 33), b'{"text":"' + b"x" * 20_000 + b'"}'),
    ],
)
def test_what_is_in_doubt_is_left_to_pyarrow(block: bytes) -> None:
    assert FewRecords(COLUMNS).read(block) is None


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.float32(), pa.list_(pa.int64())])
def test_other_types_are_left_to_pyarrow(kind: pa.DataType) -> None:
    columns = pa.schema([("n", pa.int64()), ("other", kind)])
    assert FewRecords(columns).read(b'{"n":1}') is None
    batch = pa.RecordBatch.from_pylist([{"n": 1}], schema=columns)
    assert few_json_texts(batch) is None


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "yes": st.none() | st.booleans(),
            'te"xt': st.none() | TEXT,
        }
    ),
    min_size=1,
    max_size=4,
)


@examples(150)
@given(RECORDS)
def test_agree_what_is_written_is_what_kernels_write(records: list[dict[str, object]]) -> None:
    columns = pa.schema([("n", pa.int64()), ("yes", pa.bool_()), ('te"xt', pa.string())])
    batch = pa.RecordBatch.from_pylist(records, schema=columns)
    found = few_json_texts(batch)
    assert found is not None
    assert b"".join(each + b"\n" for each in found) == json_lines(batch)
    assert found == json_texts(batch)


def test_texts_are_lines_of_every_type() -> None:
    records: list[dict[str, Any]] = [
        {
            "n": at,
            "x": at / 4,
            "d": Decimal(at) / 8,
            "on": dt.date(2026, 1, 1),
            "t": f'"{at}\n\u2028',
        }
        for at in range(100)
    ]
    records += [dict.fromkeys(["n", "x", "d", "on", "t"]), {"x": math.nan, "t": "\0"}]
    columns = {"n": pa.uint64(), "x": pa.float64(), "d": pa.decimal128(20, 4), "on": pa.date32()}
    batch = pa.RecordBatch.from_pylist(records, pa.schema({**columns, "t": pa.string()}))
    texts = json_texts(batch)
    assert texts == json_lines(batch).split(b"\n")[:-1]
    expected = [{**dict.fromkeys(["n", "x", "d", "on", "t"]), **each} for each in records]
    expected[-1]["x"] = None
    read = [json.loads(text, parse_float=Decimal) for text in texts]
    assert read == [each | {"on": each["on"] and str(each["on"])} for each in expected]
    assert json_texts(batch.slice(0, 0)) == []
    assert json_texts(batch.slice(99, 2)) == texts[99:101]
    nothing = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert json_texts(nothing) == [b"{}", b"{}"]
    assert json_lines(nothing) == b"{}\n{}\n"


def test_numbers_without_a_sign_are_left_to_pyarrow_which_has_no_minus_zero_there() -> None:
    columns = pa.schema([("u", pa.uint64())])
    with pytest.raises(pa.ArrowInvalid, match="-0"):
        read_json(b'{"u":-0}', columns)
    assert FewRecords(columns).read(b'{"u":-0}') is None


def test_names_that_are_there_twice_are_left_to_kernels() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    assert few_json_texts(batch) is None
    assert FewRecords(batch.schema).read(b'{"n":1}') is None
