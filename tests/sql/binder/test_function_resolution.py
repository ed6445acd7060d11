"""Which function a name calls: temporary system functions hide built-in ones, as in Flink."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, materialised

from millstream.common import Row
from millstream.errors import CatalogError, ValidationError
from millstream.table import AggregateFunction, DataTypes
from millstream.table.expressions import call, col
from millstream.table.udf import udaf, udf, udtf

if TYPE_CHECKING:
    from millstream.table import TableEnvironment


@pytest.fixture
def env() -> TableEnvironment:
    return environment()


@udf(result_type="STRING")
def mine(*_: Any) -> str:
    return "mine"


@udf(result_type="STRING")
def other(*_: Any) -> str:
    return "other"


@udtf(result_types=["STRING"])
def letters(text: str) -> Any:
    yield from text


class Hundreds(AggregateFunction):
    """Counts each value as a hundred."""

    def create_accumulator(self) -> Row:
        return Row(0)

    def accumulate(self, accumulator: Row, *_: Any) -> None:
        accumulator[0] += 100

    def retract(self, accumulator: Row, *_: Any) -> None:
        accumulator[0] -= 100

    def get_value(self, accumulator: Row) -> int:
        return int(accumulator[0])


def hundreds() -> Any:
    accumulator = DataTypes.ROW([DataTypes.FIELD("n", DataTypes.BIGINT())])
    return udaf(Hundreds(), result_type="BIGINT", accumulator_type=accumulator)


def rows(env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with env.execute_sql(query).collect() as found:
        return [tuple(row) for row in found if isinstance(row, Row)]


def of(env: TableEnvironment, expression: str) -> Any:
    [(value,)] = rows(env, f"SELECT {expression}")
    return value


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "expression",
    [
        "UPPER('a')",
        "SUBSTRING('abc' FROM 2)",
        "OVERLAY('abc' PLACING 'x' FROM 1)",
        "COALESCE('a', 'b')",
        "NULLIF('a', 'b')",
        "JSON_VALUE('{}', '$')",
        "JSON_EXISTS('{}', '$')",
        "CURRENT_DATE",
        "LOCALTIME",
        "PI",
        "E()",
        "CURRENT_DATABASE()",
        "MOD(3, 2)",
        "`if`(TRUE, 'a', 'b')",
        "PROCTIME()",
        "`TRIM`('a')",
    ],
)
def test_a_temporary_system_function_hides_a_built_in_one(
    env: TableEnvironment, expression: str
) -> None:
    name = expression.partition("(")[0].strip("`").lower()
    env.create_temporary_system_function(name, mine)
    assert of(env, expression) == "mine"
    assert env.drop_temporary_system_function(name.upper())
    assert of(env, f"CAST({expression} AS STRING)") != "mine"


@pytest.mark.parametrize(
    ("name", "expression", "value"),
    [
        ("ceil", "CEIL(1.5)", 2),
        ("trim", "TRIM(' a ')", "a"),
        ("position", "POSITION('b' IN 'ab')", 2),
        ("extract", "EXTRACT(DAY FROM DATE '2024-05-06')", 6),
        ("translate", "TRANSLATE('ab', 'a', 'x')", "xb"),
        ("cast", "CAST(1 AS STRING)", "1"),
        ("row", "ROW(1, 2)[1]", 1),
        ("plus", "1 + 1", 2),
        ("mod", "3 % 2", 1),
        ("array", "ARRAY[5][1]", 5),
    ],
)
def test_what_the_grammar_calls_stays_built_in(
    env: TableEnvironment, name: str, expression: str, value: Any
) -> None:
    env.create_temporary_system_function(name, mine)
    assert of(env, expression) == value


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("json_query", "JSON_QUERY('{}', '$')"),
        ("json_object", "JSON_OBJECT('a' VALUE 1)"),
        ("json_array", "JSON_ARRAY(1)"),
        ("json_arrayagg", "JSON_ARRAYAGG(1)"),
        ("json_value", "JSON_VALUE('{}', '$' NULL ON EMPTY)"),
        ("try_cast", "TRY_CAST(1 AS STRING)"),
    ],
)
def test_a_function_that_cannot_take_the_clauses_is_refused(
    env: TableEnvironment, name: str, expression: str
) -> None:
    env.create_temporary_system_function(name, mine)
    with pytest.raises(ValidationError, match=f"hides {name.upper()}"):
        of(env, expression)


def test_the_order_of_resolution(env: TableEnvironment) -> None:
    env.create_temporary_function("lower", mine)
    env.create_temporary_function("f", mine)
    assert of(env, "LOWER('A')") == "a"  # built-in before the functions of a database
    assert of(env, "default_database.`lower`('A')") == "mine"
    assert of(env, "default_catalog.default_database.`lower`('A')") == "mine"
    env.create_temporary_system_function("f", other)
    assert rows(env, "SELECT f(), default_database.f()") == [("other", "mine")]
    env.execute_sql(f"CREATE FUNCTION g AS '{__name__}.mine' LANGUAGE PYTHON")
    assert of(env, "g()") == "mine"
    env.create_temporary_function("g", other)
    assert of(env, "g()") == "other"


def at_the_end(env: TableEnvironment, query: str, path: Path) -> list[tuple[Any, ...]]:
    """The rows that are there after all changes, in their order."""
    return sorted(materialised(changelog(env, query, Path(mkdtemp(dir=path)))).elements())


@pytest.mark.both_engines
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_aggregates_are_hidden(mode: str, tmp_path: Path) -> None:
    env = environment()
    env.get_config().set("execution.runtime-mode", mode)
    values = "(VALUES ('a', 1), ('a', 2), ('b', 3)) AS t(k, n)"
    query = f"SELECT k, SUM(n), COUNT(*), SUM(DISTINCT n) FROM {values} GROUP BY k"
    env.create_temporary_function("sum", hundreds())
    assert at_the_end(env, query, tmp_path) == [("a", 3, 2, 3), ("b", 3, 1, 3)]
    env.create_temporary_system_function("sum", hundreds())
    assert at_the_end(env, query, tmp_path) == [("a", 200, 2, 200), ("b", 100, 1, 100)]
    having = f"SELECT k FROM {values} GROUP BY k HAVING SUM(n) > 150"
    assert at_the_end(env, having, tmp_path) == [("a",)]
    env.create_temporary_system_function("count", hundreds())
    with pytest.raises(ValidationError, match="does not"):
        at_the_end(env, query, tmp_path)


def test_over_and_match_take_no_function_that_is_no_aggregate(env: TableEnvironment) -> None:
    values = "(SELECT n, PROCTIME() AS p FROM (VALUES (1), (2)) AS t(n))"
    env.create_temporary_system_function("max", mine)
    env.create_temporary_system_function("row_number", mine)
    for each in ("MAX(n)", "ROW_NUMBER()"):
        with pytest.raises(ValidationError, match="OVER must be applied to an aggregate"):
            rows(env, f"SELECT {each} OVER (ORDER BY p) FROM {values}")
    assert rows(env, "SELECT MAX(n) FROM (VALUES (1), (2)) AS t(n)") == [("mine",), ("mine",)]


@pytest.mark.both_engines
def test_over_calls_an_aggregate_that_hides_one(env: TableEnvironment, tmp_path: Path) -> None:
    env.create_temporary_system_function("sum", hundreds())
    env.create_temporary_system_function("upper", hundreds())
    values = "(SELECT n, PROCTIME() AS p FROM (VALUES (1), (2)) AS t(n))"
    query = f"SELECT n, SUM(n) OVER (ORDER BY p ROWS UNBOUNDED PRECEDING) FROM {values}"
    assert at_the_end(env, query, tmp_path) == [(1, 100), (2, 200)]
    query = "SELECT UPPER(x) FROM (VALUES 'a', 'b') AS t(x)"
    assert at_the_end(env, query, tmp_path) == [(200,)]


def test_a_table_function_hides_a_window(env: TableEnvironment) -> None:
    env.create_temporary_system_function("tumble", letters)
    query = "SELECT y FROM (VALUES 'ab') AS t(x), LATERAL TABLE(TUMBLE(x)) AS u(y)"
    assert rows(env, query) == [("a",), ("b",)]
    env.create_temporary_system_function("sin", letters)
    with pytest.raises(ValidationError, match="table function"):
        of(env, "SIN('ab')")


def test_methods_of_the_table_api_go_by_the_name_too(env: TableEnvironment) -> None:
    env.create_temporary_system_function("upper", mine)
    table = env.from_elements([("a",)], ["a"])
    found = table.select(col("a").upper_case.alias("x"), call("UPPER", col("a")).alias("y"))
    with found.execute().collect() as result:
        assert [tuple(row) for row in result if isinstance(row, Row)] == [("mine", "mine")]


def test_a_function_called_as_one_of_the_engine_is_not_taken_for_it(env: TableEnvironment) -> None:
    @udf(result_type="BOOLEAN")
    def AND(*_: Any) -> bool:  # noqa: N802 - what is tested
        return False

    env.create_temporary_system_function("both", AND)
    values = "(VALUES (TRUE, TRUE)) AS t(a, b)"
    assert rows(env, f"SELECT `both`(a, b) FROM {values}") == [(False,)]
    assert rows(env, f"SELECT * FROM {values} WHERE `both`(a, b)") == []


def test_described_shown_and_dropped(env: TableEnvironment) -> None:
    env.create_temporary_system_function("sin", mine)
    env.create_temporary_function("sin", mine)
    env.create_temporary_function("cos", mine)
    system = [("is system function", "true"), ("is temporary", "true")]
    assert rows(env, "DESCRIBE FUNCTION sin") == system
    assert rows(env, "DESCRIBE FUNCTION cos") == [system[0], ("is temporary", "false")]
    assert rows(env, "SHOW FUNCTIONS LIKE 'sin'") == [("sin",)]
    assert rows(env, "SHOW USER FUNCTIONS") == [("cos",), ("sin",), ("sin",)]
    with pytest.raises(CatalogError, match=r"A temporary function .*cos.* does already exist"):
        env.drop_function("cos")
    env.execute_sql("DROP TEMPORARY SYSTEM FUNCTION sin")
    assert rows(env, "SHOW USER FUNCTIONS") == [("cos",), ("sin",)]
    with pytest.raises(CatalogError, match="'sin' does not exist"):
        env.execute_sql("DROP TEMPORARY SYSTEM FUNCTION sin")


def test_functions_of_a_database_are_shown(env: TableEnvironment) -> None:
    env.execute_sql("CREATE DATABASE other")
    env.create_temporary_function("other.g", mine)
    env.create_temporary_system_function("h", mine)
    assert rows(env, "SHOW USER FUNCTIONS") == [("h",)]
    assert rows(env, "SHOW USER FUNCTIONS IN other") == [("g",), ("h",)]
    assert rows(env, "SHOW FUNCTIONS FROM default_catalog.other LIKE 'g'") == [("g",)]
    assert rows(env, "SHOW USER FUNCTIONS IN nowhere") == [("h",)]
