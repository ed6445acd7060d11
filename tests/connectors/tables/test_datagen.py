"""Generated tables: values of every type, by Flink's options, and options that make no sense."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.connectors.tables.test_message_formats import row_of
from tests.support.query_running import changelog, environment, materialised

from millstream.errors import ValidationError
from millstream.sql.catalog.factories.datagen import Rows, drawn_values, options_of
from millstream.sql.catalog.options import Options
from millstream.types.logical_types import (
    DayTimeIntervalType,
    RowField,
    RowType,
    YearMonthIntervalType,
)
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.types.logical_types import LogicalType

ROWS = 200
#: Nanoseconds since 1970.
BEGUN = 1_767_225_600_123_456_789


def rows_of(row: RowType, options: dict[str, str]) -> Rows:
    known = [option for field in row.fields for option in options_of(field.name, field.type)]
    given = Options("connector 'datagen'", options, known)
    return Rows(row, [drawn_values(given, each.name, each.type) for each in row.fields], BEGUN)


def values(kind: str | LogicalType, /, **options: str) -> list[Any]:
    """The values of a column ``a``; ``__`` in an option's name is a dot, ``_`` a dash."""
    names = {key: key.replace("__", ".").replace("_", "-") for key in options}
    row = row_of(f"a {kind}") if isinstance(kind, str) else RowType((RowField("a", kind),))
    made = rows_of(row, {f"fields.a.{names[key]}": each for key, each in options.items()})
    batch = made.map_batch(np.arange(ROWS))
    assert batch is not None
    assert [made.map(number) for number in range(3)] == [made.map(number) for number in range(3)]
    return values_of_column(batch.column(0), row.fields[0].type)


@pytest.mark.parametrize(
    ("kind", "options", "least", "most"),
    [
        ("TINYINT", {}, -128, 127),
        ("INT", {"min": "-2", "max": "3"}, -2, 3),
        ("BIGINT", {"min": "5", "max": "5"}, 5, 5),
        ("FLOAT", {}, 0, 3.5e38),
        ("DOUBLE", {"min": "-1e308", "max": "1e308"}, -1e308, 1e308),
        ("DECIMAL(4, 2)", {}, Decimal(0), Decimal("99.99")),
        ("DECIMAL(4, 2)", {"min": "-5000", "max": "-1.5"}, Decimal("-99.99"), Decimal("-1.5")),
        # No table of SQL has such columns, but descriptors do.
        (YearMonthIntervalType(), {}, 0, 120_000),
        (DayTimeIntervalType(), {"min": "-3", "max": "70"}, -3, 70),
    ],
)
def test_numbers_are_between_their_bounds(
    kind: str | LogicalType, options: dict[str, str], least: Any, most: Any
) -> None:
    found = values(kind, **options)
    assert all(least <= each <= most for each in found)
    assert len(set(found)) > min(3, most - least)


@pytest.mark.parametrize(
    ("kind", "options", "lengths"),
    [
        ("STRING", {}, {100}),
        ("STRING", {"length": "7"}, {7}),
        ("VARCHAR(5)", {}, {5}),
        ("VARCHAR(5)", {"var_len": "true"}, {1, 2, 3, 4}),
        ("CHAR(4)", {}, {4}),
        ("BYTES", {"length": "0"}, {0}),
        ("BINARY(3)", {}, {3}),
        ("VARBINARY(9)", {"length": "3", "var_len": "true"}, {1, 2}),
        ("ARRAY<INT>", {}, {3}),
        ("ARRAY<STRING>", {"length": "5"}, {5}),
        ("MAP<BIGINT, INT>", {"length": "2"}, {2}),
        ("MULTISET<BIGINT>", {}, {3}),
    ],
)
def test_lengths(kind: str, options: dict[str, str], lengths: set[int]) -> None:
    assert {len(each) for each in values(kind, **options)} == lengths


def test_parts_have_options_behind_their_names() -> None:
    found = values("ARRAY<INT>", element__min="1", element__max="3", length="40")
    assert {each for array in found for each in array} == {1, 2, 3}
    found = values("MAP<STRING, INT>", key__length="2", value__min="5", value__max="5")
    assert {(len(key), each) for made in found for key, each in made.items()} == {(2, 5)}
    found = values("MAP<INT, INT>", length="9", key__min="1", key__max="2", key__null_rate="0.5")
    assert {key for made in found for key in made} == {1, 2}
    found = values("MULTISET<STRING>", element__length="2")
    assert {len(key) for made in found for key in made} == {2}
    assert {each for made in found for each in made.values()} == set(range(1, 11))
    found = values("ROW<b INT, c ARRAY<STRING>>", b__max="0", c__length="1", c__element__length="4")
    assert all(b <= 0 and len(only) == 4 for b, (only,) in found)
    found = values("ARRAY<ROW<b INT>>", element__b__null_rate="1", element__null_rate="0.5")
    assert {each for array in found for each in array} == {None, (None,)}


@pytest.mark.parametrize(
    "kind", ["INT", "BYTES", "DATE", "ARRAY<INT>", "MAP<INT, INT>", "ROW<b INT>", "BOOLEAN"]
)
def test_some_are_null(kind: str) -> None:
    assert 0.3 * ROWS < values(kind, null_rate="0.5").count(None) < 0.7 * ROWS
    assert set(values(kind, null_rate="1")) == {None}


def test_times_are_those_of_the_start() -> None:
    here = dt.datetime.fromtimestamp(BEGUN // 10**9).astimezone()
    assert set(values("DATE")) == {(here.date() - dt.date(1970, 1, 1)).days}
    (time,) = set(values("TIME(3)"))
    assert time == ((here.hour * 60 + here.minute) * 60 + here.second) * 10**9 + 123_000_000
    past = values("TIMESTAMP_LTZ(3)", max_past="1 min")
    assert all(0 <= BEGUN // 10**6 - each // 10**6 <= 60_000 for each in past)
    assert len(set(past)) > 1


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("SMALLINT", 3, 4),
        ("DOUBLE", 3.0, 4.0),
        ("DECIMAL(5, 2)", Decimal(3), Decimal(4)),
        ("CHAR(3)", "3", "4"),
        ("BYTES", b"\0\0\0\0\0\0\0\3", b"\0\0\0\0\0\0\0\4"),
    ],
)
def test_sequences(kind: str, first: Any, second: Any) -> None:
    assert values(kind, kind="sequence", start="3", end="500")[:2] == [first, second]


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ("a INT", "'fields.a.length' = '3'", "has no option 'fields.a.length'."),
        ("a CHAR(3)", "'fields.a.length' = '2'", "has no option 'fields.a.length'."),
        ("a CHAR(3)", "'fields.a.var-len' = 'true'", "has no option 'fields.a.var-len'."),
        ("a INT", "'fields.a.max-past' = '1 d'", "has no option 'fields.a.max-past'."),
        ("a ARRAY<INT>", "'fields.a.min' = '1'", "has no option 'fields.a.min'."),
        ("a ARRAY<INT>", "'fields.a.element.kind' = 'random'", "no option 'fields.a.element.kind'"),
        ("a VARCHAR(5)", "'fields.a.length' = '9'", "'fields.a.length' is 9, but the column is"),
        ("a STRING", "'fields.a.length' = '-1'", "'fields.a.length' is less than 0."),
        ("a INT", "'fields.a.min' = '9', 'fields.a.max' = '3'", "'fields.a.min' is more than"),
        ("a TINYINT", "'fields.a.max' = '300'", "'fields.a.max' is 300, which is no TINYINT."),
        ("a BOOLEAN", "'fields.a.kind' = 'sequence'", "is not 'sequence' of a column that is BOO"),
        ("a DATE", "'fields.a.kind' = 'sequence'", "is not 'sequence' of a column that is DATE."),
        ("a INT", "'fields.a.kind' = 'sequence'", "needs 'fields.a.start' and 'fields.a.end'"),
        (
            "a INT",
            "'fields.a.kind' = 'sequence', 'fields.a.start' = '2', 'fields.a.end' = '1'",
            "'fields.a.start' is more than 'fields.a.end'.",
        ),
        ("a ROW<b RAW('x', 'y')>", "'number-of-rows' = '1'", ""),
    ],
)
def test_options_that_make_no_sense(column: str, options: str, message: str) -> None:
    env = environment(1)
    with pytest.raises(ValidationError) as raised:  # noqa: PT012 - either may say it
        env.execute_sql(f"CREATE TABLE t ({column}) WITH ('connector' = 'datagen', {options})")
        env.sql_query("SELECT * FROM t")
    assert message in str(raised.value)


def test_a_query_reads_nested_values(tmp_path: Path) -> None:
    env = environment(2)
    env.execute_sql(
        "CREATE TABLE t (id INT, tags ARRAY<STRING>, m MAP<STRING, INT>, r ROW<x INT, y DOUBLE>) "
        "WITH ('connector' = 'datagen', 'rows-per-second' = '100000', 'number-of-rows' = '50', "
        "'fields.tags.element.length' = '2', 'fields.m.length' = '1', 'fields.r.x.min' = '7', "
        "'fields.r.x.max' = '7')"
    )
    query = "SELECT CARDINALITY(tags), CHAR_LENGTH(tags[1]), CARDINALITY(m), r.x, r.y > 0 FROM t"
    assert materialised(changelog(env, query, tmp_path)) == {(3, 2, 1, 7, True): 50}


def test_columns_that_are_not_read_change_no_others() -> None:
    row = row_of("a INT, b ARRAY<INT>, c STRING")
    whole = rows_of(row, {})
    for number in random.Random(1).sample(range(ROWS), 9):
        drawn: Any = whole.map(number)
        assert whole.narrowed([1]).map(number) == drawn[1:2]
        assert whole.narrowed([0, 2]).map(number) == (drawn[0], drawn[2])
