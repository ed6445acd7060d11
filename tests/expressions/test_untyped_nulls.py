"""NULL without a type as each argument of each function: what Flink 2.3 accepts has its results.

``flink_untyped_nulls.tsv`` holds the examples of the functions with NULL in place of one argument,
and of all of them.  Flink 2.3.0 was asked: where it has accepted the expression, the type (``-``
where ours differs) and the result are its own.  Flink refuses most others (``Illegal use of
'NULL'``); Millstream computes them as for a NULL with a type, and the table has the type and the
result of that.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.flink_texts import flink_text
from tests.support.sql_expressions import value_and_type

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = Path(__file__).with_name("flink_untyped_nulls.tsv")


def _cases() -> Iterator[tuple[str, str, str]]:
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        expression, _, type_, *result = line.split("\t")
        yield expression, type_, "".join(result)


def _answer(expression: str) -> tuple[str, str]:
    try:
        value, type_ = value_and_type(expression)
    except MillstreamError:
        return "refused", ""
    return type_.as_summary_string(), flink_text(value, type_)


def test_untyped_nulls() -> None:
    wrong = []
    for expression, type_, result in _cases():
        found, text = _answer(expression)
        if text != result or type_ not in {"-", found}:
            wrong.append(f"{expression}: {type_} {result}, not {found} {text}")
    assert wrong == []


def test_what_flink_accepts_is_accepted() -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    accepted = [line for line in lines if line.split("\t")[1] == "accepted"]
    assert len(accepted) > 90
    assert not [line for line in accepted if line.split("\t")[2] == "refused"]


@pytest.mark.parametrize("expression", ["ABS(NULL)", "UPPER(NULL)", "BITMAP_CARDINALITY(NULL)"])
def test_nulls_are_those_of_the_type(expression: str) -> None:
    assert _answer(expression)[1] == "NULL"
