"""Functions give what Flink 2.3 gives: a table of expressions with its types and results.

``flink_results.tsv`` holds expressions of ours with what Flink 2.3.0 answered when it was asked on
Java 17 (batch mode, the time zone as said): the type, or ``-`` where ours differs by intent, and
the result.  Where results differ by intent stands in ``test_flink_differences.py``.
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

TABLE = Path(__file__).with_name("flink_results.tsv")


def _cases() -> Iterator[tuple[str, str, str, str]]:
    zone = "UTC"
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# zone "):
            zone = line.removeprefix("# zone ")
            continue
        expression, type_, result = line.split("\t")
        yield zone, expression, type_, result


def _chunks() -> list[list[tuple[str, str, str, str]]]:
    cases = list(_cases())
    return [cases[at : at + 50] for at in range(0, len(cases), 50)]


@pytest.mark.parametrize("cases", _chunks(), ids=lambda cases: cases[0][1][:30])
def test_results_are_those_of_flink(cases: list[tuple[str, str, str, str]]) -> None:
    wrong = []
    for zone, expression, type_, result in cases:
        if type_ == "ERROR":
            with pytest.raises(MillstreamError):
                value_and_type(expression, zone)
            continue
        value, found = value_and_type(expression, zone)
        text = flink_text(value, found)
        if text != result or type_ not in {"-", found.as_summary_string()}:
            wrong.append(f"{expression}: {type_} {result}, not {found} {text}")
    assert wrong == []


def test_the_table_is_not_small() -> None:
    assert sum(1 for _ in _cases()) > 800
