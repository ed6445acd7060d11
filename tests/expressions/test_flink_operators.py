"""Operators, arithmetic, conditions and casts give what Flink 2.3 gives, through parser and binder.

``flink_operators.tsv`` holds expressions with what Flink 2.3.0 answered when it was asked on Java
17: the type, or ``-`` where ours differs by intent, and the result.  ``RAND() * 0`` and an empty
part of ``UUID()`` keep Flink from computing constants beforehand, which it does otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.bound_sql import evaluated
from tests.support.flink_texts import flink_text

from millstream.errors import MillstreamError
from millstream.expressions.casts import text_function
from millstream.expressions.functions import (
    arithmetic,
    comparison,
    conditional,
    conversion,
)

TABLE = Path(__file__).with_name("flink_operators.tsv")
MODULES = (comparison, arithmetic, conditional, conversion)


def test_results_are_those_of_flink() -> None:
    wrong = []
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    for line in lines:
        expression, type_, result = line.split("\t")
        if type_ == "ERROR":
            with pytest.raises(MillstreamError):
                evaluated(expression)
            continue
        value, found = evaluated(expression)
        text = flink_text(value, found)
        if text != result or type_ not in {"-", found.as_summary_string()}:
            wrong.append(f"{expression}: {type_} {result}, not {found} {text}")
    assert wrong == []
    assert len(lines) > 300


@pytest.mark.parametrize(
    ("expression", "result", "flink"),
    [
        # Before 1970 Flink rounds towards it.
        ("CAST(TIMESTAMP '1969-12-31 23:59:59.999' AS DATE)", "1969-12-31", "1970-01-01"),
        ("CAST(TIMESTAMP '1969-12-31 23:59:59.999' AS TIME)", "23:59:59", "00:00"),
        # The fewest digits, as Java writes them from 19 on.
        ("CAST(CAST('3276913443134' AS FLOAT) AS STRING)", "3.2769135E12", "3.27691351E12"),
        # The offset is added to the time.
        ("TRY_CAST('12:34:56+01:00' AS TIME)", "NULL", "13:34:56"),
    ],
)
def test_where_results_differ_by_intent(expression: str, result: str, flink: str) -> None:
    value, type_ = evaluated(expression)
    text = "NULL" if value is None else text_function(type_, "UTC")(value)
    assert text == result
    assert text != flink


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.functions.name)
def test_examples(module: object) -> None:
    for definition in module.functions.definitions:  # type: ignore[attr-defined]
        assert definition.examples, definition.name
        for example, expected in definition.examples:
            value, type_ = evaluated(example)
            text = "NULL" if value is None else text_function(type_, "UTC")(value)
            assert text == expected, example
