"""Operators between expressions, and rows of expressions, as Flink's Table API has them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.common import Row
from millstream.errors import ProgramError, ValidationError
from millstream.table import DataTypes
from millstream.table.expressions import and_, call, col, lit, null_of, row
from millstream.table.udf import udf

if TYPE_CHECKING:
    from millstream.table import Table
    from millstream.table.expression import Expression

DAY = dt.date(2020, 1, 1)


def sample() -> Table:
    time = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - a TIMESTAMP
    return environment().from_elements(
        [(1, "a", True, 1.5, DAY, time)], ["n", "s", "b", "f", "d", "ts"]
    )


def only(table: Table) -> Any:
    rows: list[Any] = list(table.execute().collect())
    ((value,),) = rows
    return value


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("s") + "text", "atext"),
        ("text" + col("s"), "texta"),
        (lit("q") + col("s"), "qa"),
        (col("s") + col("s") + "!", "aa!"),
        (col("s") + col("n"), "a1"),
        ("n" + col("n"), "n1"),
        (col("s") + 5, "a5"),
        (col("s") + col("b"), "aTRUE"),
        (col("s") + col("f"), "a1.5"),
        (col("s") + col("d"), "a2020-01-01"),
        (null_of(DataTypes.STRING()) + col("s"), None),
        (col("d") + lit(1).days, dt.date(2020, 1, 2)),
        (col("n") + 1, 2),
        (call("plus", col("n"), 1), 2),
        (call("lessThan", col("n"), 1), False),
    ],
)
def test_text_takes_what_is_added_to_it(expression: Expression, expected: object) -> None:
    assert only(sample().select(expression)) == expected


@pytest.mark.parametrize(
    "expression", [col("n") + col("s"), col("n") + "z", col("s") - col("s"), col("d") + 1]
)
def test_other_sums_with_text_are_refused(expression: Expression) -> None:
    with pytest.raises(ValidationError, match="does not take"):
        sample().select(expression)


def test_a_system_function_hides_the_operator_of_its_name() -> None:
    env = environment()
    table = env.from_elements([(1, "a")], ["n", "s"])
    env.create_temporary_system_function("plus", udf(lambda a, b: a + b - 1, result_type="BIGINT"))
    env.create_temporary_system_function("lessThan", udf(lambda a, b: True, result_type="BOOLEAN"))
    env.create_temporary_system_function("and", udf(lambda a, b: 3, result_type="INT"))
    # One of a catalog hides nothing.
    env.create_temporary_function("minus", udf(lambda a, b: 7, result_type="BIGINT"))
    made = table.where(col("n") < 0).select(
        col("n") + 1, 5 + col("n"), col("n") - 1, and_(col("n") > 0, lit(True))
    )
    assert list(made.execute().collect()) == [Row(1, 5, 0, 3)]
    # Statements have operators of their own.
    assert list(env.execute_sql("SELECT 1 + 1").collect()) == [Row(2)]


FIELDS = [
    DataTypes.FIELD("a", DataTypes.INT()),
    DataTypes.FIELD("b", DataTypes.STRING()),
    DataTypes.FIELD("c", DataTypes.FLOAT()),
]


def test_elements_are_rows_of_expressions() -> None:
    env = environment()
    elements = [row(1, "abc", 2.0), row(lit(3) + 4, "defgh", null_of(DataTypes.FLOAT()))]
    typed = env.from_elements(elements, DataTypes.ROW(FIELDS))
    assert list(typed.execute().collect()) == [Row(1, "abc", 2.0), Row(7, "defgh", None)]
    assert [each.as_summary_string().split()[0] for each in typed.plan.row.children] == [
        "INT",
        "STRING",
        "FLOAT",
    ]
    named = env.from_elements([*elements, (5, "x", 1.5)], ["x", "y", "z"])
    assert list(named.plan.row.names) == ["x", "y", "z"]
    assert list(named.execute().collect())[2] == Row(5, "x", 1.5)
    plain = env.from_elements([lit(1), lit(2)])
    assert list(plain.execute().collect()) == [Row(1), Row(2)]
    with pytest.raises(ProgramError, match="do not have 3 values"):
        env.from_elements([row(1, 2)], DataTypes.ROW(FIELDS))


def test_sum0_is_called_by_the_name_of_the_table_api() -> None:
    made = sample().select(call("sum0", col("n")).alias("s"))
    assert list(made.execute().collect())[-1] == Row(1)
