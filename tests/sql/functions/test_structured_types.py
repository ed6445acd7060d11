"""Objects in tables: STRUCTURED types, OBJECT_OF, OBJECT_UPDATE, as in Flink 2.3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sql_expressions import bind

from millstream.common import Row
from millstream.errors import MillstreamError
from millstream.sql.parser.parser import parse_type
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.expressions import col, object_of
from millstream.table.udf import udf

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class User:
    """What OBJECT_OF names below."""

    name: str
    age: int = 18


@dataclass
class Loose:
    """What cannot be hashed."""

    name: str


class NoDataclass:
    """What is never made of a text in SQL."""

    def __init__(self, name: str) -> None:
        raise AssertionError(name)


USER = f"{__name__}.User"
TYPE = f"STRUCTURED<'{USER}', name STRING, age INT>"


@pytest.fixture(scope="module")
def env() -> TableEnvironment:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    made.execute_sql("SET 'parallelism.default' = '1'")
    made.execute_sql("CREATE TEMPORARY VIEW t (n, a) AS VALUES ('Ann', 30)")
    return made


def only(env: TableEnvironment, query: str) -> Any:
    result: Any = env.sql_query(query).execute()
    with result.collect() as rows:
        (found,) = list(rows)
    return found[0]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("OBJECT_OF('c.U', 'a', 1, 'b', 'x')", "STRUCTURED<'c.U', `a` INT NOT NULL, `b` CHAR(1)"),
        ("OBJECT_OF('c.U')", "STRUCTURED<'c.U', >"),
        (
            "OBJECT_UPDATE(OBJECT_OF('c.U', 'a', 1), 'a', CAST(NULL AS BIGINT))",
            "STRUCTURED<'c.U', `a` BIGINT>",
        ),
        ("CAST(ROW(1) AS STRUCTURED<'c.U', a INT>)", "STRUCTURED<'c.U', `a` INT>"),
        ("CAST(OBJECT_OF('c.U', 'a', 1) AS ROW<a INT>)", "ROW<`a` INT>"),
        ("OBJECT_OF('c.U', 'a', 1).a", "INT"),
        (
            "CASE WHEN TRUE THEN OBJECT_OF('c.U', 'a', 1) ELSE NULL END",
            "STRUCTURED<'c.U', `a` INT NOT NULL>",
        ),
    ],
)
def test_types_are_those_of_flink(expression: str, kind: str) -> None:
    found = bind(expression).type
    assert found.as_serializable_string().startswith(kind)
    if ", >" not in kind:
        assert parse_type(found.as_serializable_string()) == found


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("OBJECT_OF('c.U', 'a', 1, 'a', 2)", "The field name 'a' at position 4 is repeated."),
        ("OBJECT_OF('c.U', 'a')", "OBJECT_OF"),
        ("OBJECT_OF(CAST('a' AS STRING) || 'b', 'a', 1)", "OBJECT_OF"),
        ("OBJECT_OF('', 'a', 1)", "Invalid class name ''"),
        ("OBJECT_OF('c.U', 1, 1)", "The field key at position 2 must be"),
        ("OBJECT_UPDATE(ROW(1, 2), 'EXPR$0', 5)", "first argument must be a structured type"),
        (
            "OBJECT_UPDATE(OBJECT_OF('c.U', 'a', 1), 'b', 5)",
            "'b' at position 2 is not part of the structured type attributes",
        ),
        ("OBJECT_OF('c.U', 'a', 1) = OBJECT_OF('c.V', 'a', 1)", "c.V"),
        ("OBJECT_OF('c.U', 'a', 1) = ROW(1)", "="),
        (
            "CASE WHEN TRUE THEN OBJECT_OF('c.U', 'a', 1) ELSE OBJECT_OF('c.U', 'b', 1) END",
            "CASE",
        ),
        ("CAST(NULL AS STRUCTURED<'1x', a INT>)", "'1x' cannot name a class"),
    ],
)
def test_refused(expression: str, message: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        bind(expression)
    assert message in str(refused.value)


def test_objects_without_fields_are_rows_without_fields(env: TableEnvironment) -> None:
    found = only(env, "SELECT ARRAY[OBJECT_OF('c.U'), OBJECT_OF('c.U')] FROM t")
    assert [(type(each).__name__, list(each)) for each in found] == [("Row", [])] * 2
    assert only(env, "SELECT OBJECT_OF('c.U') = OBJECT_OF('c.U') FROM t") is True
    values = "(VALUES (OBJECT_OF('c.U')), (OBJECT_OF('c.U'))) AS v (x)"
    assert only(env, f"SELECT CAST(COALESCE(x, x) AS STRING) FROM {values} LIMIT 1") == "()"


def test_objects_come_out_as_objects_of_their_class(env: TableEnvironment) -> None:
    made = f"OBJECT_OF('{USER}', 'name', n, 'age', a)"
    assert only(env, f"SELECT {made} FROM t") == User("Ann", 30)
    assert only(env, f"SELECT OBJECT_UPDATE({made}, 'age', 31) FROM t") == User("Ann", 31)
    assert only(env, f"SELECT ARRAY[{made}] FROM t") == [User("Ann", 30)]
    assert only(env, f"SELECT OBJECT_OF('{USER}', 'name', n) FROM t") == User("Ann")
    assert only(env, f"SELECT OBJECT_UPDATE(CAST(NULL AS {TYPE}), 'age', a) FROM t") is None
    assert only(env, f"SELECT CAST({made} AS STRING) FROM t") == "(name=Ann, age=30)"


@pytest.mark.parametrize(
    "class_name", ["nowhere.User", "User", f"{__name__}.NoDataclass", "subprocess.Popen"]
)
def test_rows_stay_rows_of_what_is_no_dataclass_of_the_fields(
    class_name: str, env: TableEnvironment
) -> None:
    found = only(env, f"SELECT OBJECT_OF('{class_name}', 'name', n) FROM t")
    assert found == Row("Ann")


def test_functions_of_users_take_and_give_objects(env: TableEnvironment) -> None:
    @udf(input_types=[parse_type(TYPE)], result_type=parse_type(TYPE))
    def older(user: User) -> User:
        assert isinstance(user, User)
        return User(user.name, user.age + 1)

    env.create_temporary_function("older", older)
    made = f"OBJECT_OF('{USER}', 'name', n, 'age', a)"
    assert only(env, f"SELECT older({made}).age FROM t") == 31
    table = env.from_path("t")
    found = table.select(object_of(USER, "name", col("n"), "age", 1).object_update("age", col("a")))
    result: Any = found.execute()
    with result.collect() as rows:
        assert [row[0] for row in rows] == [User("Ann", 30)]


def test_tables_may_have_columns_of_objects(env: TableEnvironment) -> None:
    env.execute_sql(f"CREATE TABLE users (u {TYPE}) WITH ('connector' = 'blackhole')")
    result: Any = env.execute_sql("SHOW CREATE TABLE users")
    with result.collect() as rows:
        (shown,) = list(rows)
    assert f"STRUCTURED<'{USER}', `name` STRING, `age` INT>" in shown[0]
    for given in (f"OBJECT_OF('{USER}', 'name', n, 'age', a)", "ROW(n, a)"):
        env.explain_sql(f"INSERT INTO users SELECT {given} FROM t")
    with pytest.raises(MillstreamError, match="do not match"):
        env.explain_sql("INSERT INTO users SELECT OBJECT_OF('c.U', 'a', ARRAY[1], 'b', n) FROM t")
    assert DataTypes.ROW([]) != parse_type(TYPE)


def test_results_show_the_attributes_of_objects(
    env: TableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (USER, "c.U"):
        made = f"OBJECT_OF('{name}', 'name', n, 'age', a)"
        env.execute_sql(f"SELECT {made}, ARRAY[{made}] FROM t").print()
        shown = capsys.readouterr().out
        assert "| (name=Ann, age=30) |" in " ".join(shown.split())
        assert "| [(name=Ann, age=30)] |" in " ".join(shown.split())


def test_objects_that_are_keys_must_be_hashed(env: TableEnvironment) -> None:
    made = f"OBJECT_OF('{USER}', 'name', n, 'age', a)"
    assert only(env, f"SELECT MAP[{made}, 1] FROM t") == {User("Ann", 30): 1}
    with pytest.raises(MillstreamError, match=r"Loose.*cannot be hashed .*frozen=True"):
        only(env, f"SELECT MAP[OBJECT_OF('{__name__}.Loose', 'name', n), 1] FROM t")


def test_a_module_that_fails_is_named(
    env: TableEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_that_fails.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MillstreamError, match=r"module_that_fails\.User .*ZeroDivisionError"):
        only(env, "SELECT OBJECT_OF('module_that_fails.User', 'name', n) FROM t")


@pytest.mark.parametrize("kind", ["BITMAP", "VARIANT", "ROW<a INT>", TYPE, "MAP<INT, INT>"])
def test_what_has_no_order_is_refused_where_it_stands(kind: str) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    query = f"SELECT * FROM (SELECT CAST(NULL AS {kind}) AS x) ORDER BY "
    for key in ("x", "1", "COALESCE(x, x)"):
        with pytest.raises(MillstreamError, match="ORDER BY does not go by ") as refused:
            env.sql_query(query + key)
        assert f"column {len(query) + 1}:" in str(refused.value)
