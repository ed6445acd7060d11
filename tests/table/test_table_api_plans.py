"""Programs of the Table API have the plan of the SQL that says the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.errors import ProgramError, ValidationError
from millstream.table import DataTypes, Row
from millstream.table.expression import TimeIntervalUnit
from millstream.table.expressions import (
    CURRENT_RANGE,
    CURRENT_ROW,
    UNBOUNDED_ROW,
    call,
    call_sql,
    col,
    if_then_else,
    lit,
    range_,
    row_interval,
    with_columns,
    without_columns,
)
from millstream.table.udf import udf, udtf
from millstream.table.window import Over, Session, Slide, Tumble

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.table import Table, TableEnvironment


@udtf(result_types=["STRING", "INT"])
def words(text: str) -> Any:
    for word in (text or "").split():
        yield word, len(word)


@udf(
    result_type=DataTypes.ROW(
        [DataTypes.FIELD("x", DataTypes.INT()), DataTypes.FIELD("y", DataTypes.STRING())]
    )
)
def pair(a: int, b: str) -> Row:
    return Row(a + 1, b)


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    made.execute_sql("""
        CREATE TABLE t (a INT, b STRING, c BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts,
                        pt AS PROCTIME())
        WITH ('connector' = 'datagen')
    """)
    made.execute_sql("CREATE TABLE u (d INT, e STRING) WITH ('connector' = 'datagen')")
    made.create_temporary_function("words", words)
    return made


PLANS: dict[str, tuple[Callable[[Table, Table], Table], str]] = {
    "expressions": (
        lambda t, _: t.select(
            (col("a") + 1).alias("p"),
            (2 - col("a")).alias("q"),
            col("b").upper_case.alias("r"),
            col("b").substring(2, 3).alias("s"),
            col("ts").extract(TimeIntervalUnit.HOUR).alias("h"),
            col("ts").floor(TimeIntervalUnit.DAY).alias("d"),
            if_then_else(col("a") > 3, "x", "y").alias("i"),
            col("b").position("xaby").alias("o"),
            col("b").trim_leading("x").alias("l"),
            (col("ts") + lit(5).minutes).alias("m"),
            call_sql("a * 2").alias("z"),
        ),
        (
            "SELECT a + 1 AS p, 2 - a AS q, UPPER(b) AS r, SUBSTRING(b, 2, 3) AS s, "
            "EXTRACT(HOUR FROM ts) AS h, FLOOR(ts TO DAY) AS d, "
            "CASE WHEN a > 3 THEN 'x' ELSE 'y' END AS i, POSITION(b IN 'xaby') AS o, "
            "TRIM(LEADING 'x' FROM b) AS l, ts + INTERVAL '5' MINUTE AS m, a * 2 AS z FROM t"
        ),
    ),
    "filters": (
        lambda t, _: t.where((col("a") > 1) & col("b").like("x%") | col("c").is_null).select(
            col("a")
        ),
        "SELECT a FROM t WHERE (a > 1 AND b LIKE 'x%') OR c IS NULL",
    ),
    "not true": (
        lambda t, _: t.where(~(col("a") > 1)).select(col("a")),
        "SELECT a FROM t WHERE (a > 1) IS NOT TRUE",
    ),
    "columns": (
        lambda t, _: t.select(with_columns(range_("a", 2)), without_columns(range_(1, 3), "pt")),
        "SELECT a, b, ts FROM t",
    ),
    "columns added, dropped and renamed": (
        lambda t, _: (
            t.drop_columns(col("ts"), col("pt"))
            .add_columns((col("a") + 1).alias("x"))
            .add_or_replace_columns((col("c") * 2).alias("c"), lit(1).alias("y"))
            .rename_columns(col("b").alias("name"))
        ),
        "SELECT a, b AS name, c * 2 AS c, x, 1 AS y FROM (SELECT a, b, c, a + 1 AS x FROM t)",
    ),
    "groups": (
        lambda t, _: t.group_by(col("b")).select(
            col("b"),
            col("a").sum.alias("s"),
            col("c").count.distinct.alias("n"),
            (col("a").max - col("a").min).alias("r"),
        ),
        "SELECT b, SUM(a) AS s, COUNT(DISTINCT c) AS n, MAX(a) - MIN(a) AS r FROM t GROUP BY b",
    ),
    "tumbling windows": (
        lambda t, _: (
            t.window(Tumble.over(lit(10).minutes).on(col("ts")).alias("w"))
            .group_by(col("w"), col("b"))
            .select(
                col("b"),
                col("w").start.alias("s"),
                col("w").end.alias("e"),
                col("a").sum.alias("n"),
            )
        ),
        (
            "SELECT b, window_start AS s, window_end AS e, SUM(a) AS n "
            "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTE)) "
            "GROUP BY b, window_start, window_end"
        ),
    ),
    "sliding windows by their time": (
        lambda t, _: (
            t.window(Slide.over(lit(10).minutes).every(lit(5).minutes).on("ts").alias("w"))
            .group_by(col("w"))
            .select(col("w").rowtime.alias("r"), col("a").count.alias("n"))
        ),
        (
            "SELECT window_time AS r, COUNT(a) AS n "
            "FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)) "
            "GROUP BY window_start, window_end, window_time"
        ),
    ),
    "sessions": (
        lambda t, _: (
            t.window(Session.with_gap(lit(30).seconds).on(col("ts")).alias("w"))
            .group_by(col("b"), col("w"))
            .select(col("b"), col("w").end.alias("e"), col("a").max.alias("m"))
        ),
        (
            "SELECT b, window_end AS e, MAX(a) AS m FROM TABLE(SESSION(TABLE t PARTITION BY b, "
            "DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY b, window_start, window_end"
        ),
    ),
    "rows around": (
        lambda t, _: t.over_window(
            Over.partition_by(col("b")).order_by(col("ts")).preceding(row_interval(2)).alias("w")
        ).select(col("a"), col("c").sum.over(col("w")).alias("s")),
        (
            "SELECT a, SUM(c) OVER (PARTITION BY b ORDER BY ts ROWS BETWEEN 2 PRECEDING AND "
            "CURRENT ROW) AS s FROM t"
        ),
    ),
    "times around": (
        lambda t, _: t.over_window(
            Over.order_by(col("ts")).preceding(lit(1).hours).following(CURRENT_RANGE).alias("w"),
            Over.order_by(col("ts")).preceding(UNBOUNDED_ROW).following(CURRENT_ROW).alias("v"),
            Over.order_by(col("ts")).alias("x"),
        ).select(
            col("c").sum.over(col("w")).alias("s"),
            col("c").max.over(col("v")).alias("m"),
            col("c").min.over(col("x")).alias("n"),
        ),
        (
            "SELECT SUM(c) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND "
            "CURRENT ROW) AS s, MAX(c) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND "
            "CURRENT ROW) AS m, MIN(c) OVER (ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND "
            "CURRENT ROW) AS n FROM t"
        ),
    ),
    "joins": (
        lambda t, u: t.select(col("a"), col("b")).left_outer_join(u, col("a") == col("d")),
        "SELECT * FROM (SELECT a, b FROM t) LEFT JOIN u ON a = d",
    ),
    "lateral joins": (
        lambda t, _: t.join_lateral(call("words", col("b")).alias("w", "n"), col("n") > 3).select(
            col("a"), col("w")
        ),
        "SELECT a, w FROM t JOIN LATERAL TABLE(words(b)) AS x(w, n) ON n > 3",
    ),
    "outer lateral joins": (
        lambda t, _: t.left_outer_join_lateral(words(col("b")).alias("w", "n")).select(
            col("a"), col("w"), col("n")
        ),
        "SELECT a, w, n FROM t LEFT JOIN LATERAL TABLE(words(b)) AS x(w, n) ON TRUE",
    ),
    "rows of functions": (
        lambda t, _: t.flat_map(words(col("b")).alias("w", "n")),
        "SELECT w, n FROM t, LATERAL TABLE(words(b)) AS x(w, n)",
    ),
    "sets": (
        lambda t, u: t.select(col("a"), col("b")).minus(u),
        "SELECT a, b FROM t EXCEPT SELECT d, e FROM u",
    ),
    "values of a table": (
        lambda t, u: t.where(col("a").in_(u.select(col("d")))).select(col("a")),
        "SELECT a FROM t WHERE a IN (SELECT d FROM u)",
    ),
    "the first rows": (
        lambda t, _: t.select(col("a"), col("b")).order_by(col("a").desc, col("b")).fetch(3),
        "SELECT a, b FROM t ORDER BY a DESC, b LIMIT 3",
    ),
    "rows in the middle": (
        lambda t, _: t.select(col("a")).order_by(col("a")).offset(2).fetch(3),
        "SELECT a FROM t ORDER BY a LIMIT 3 OFFSET 2",
    ),
}


@pytest.mark.parametrize("program", PLANS)
def test_a_program_has_the_plan_of_its_sql(env: TableEnvironment, program: str) -> None:
    build, query = PLANS[program]
    table = build(env.from_path("t"), env.from_path("u"))
    same = env.sql_query(query)
    assert table.plan.row == same.plan.row

    def optimised(text: str) -> str:
        return text.split("\n\n")[1].replace("$lateral", "x")

    assert optimised(table.explain("CHANGELOG_MODE")) == optimised(same.explain("CHANGELOG_MODE"))


def test_columns_without_names_have_those_of_flink(env: TableEnvironment) -> None:
    t = env.from_path("t")
    named = t.select(col("b"), col("a") + 1, lit(2), col("a").cast(DataTypes.BIGINT()))
    assert named.plan.row.names == ["b", "_c1", "_c2", "a-BIGINT"]
    counts = t.group_by(col("b")).select(col("a").sum + 1, col("a").sum, col("c").count)
    assert counts.plan.row.names == ["_c0", "EXPR$0", "EXPR$1"]
    assert t.map(pair(col("a"), col("b"))).plan.row.names == ["x", "y"]
    assert t.map(pair(col("a"), col("b")).alias("p", "q")).plan.row.names == ["p", "q"]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda t: t.select(col("a"), col("c").alias("a")), "Ambiguous column name: a"),
        (lambda t: t.add_columns(col("c").alias("a")), "Ambiguous column name: a"),
        (lambda t: t.rename_columns(col("a").alias("b")), "Ambiguous column name: b"),
        (lambda t: t.rename_columns(col("aa").alias("x")), "there is no column 'aa'"),
        (lambda t: t.drop_columns(col("aa")), "there is no column 'aa'"),
        (lambda t: t.join_lateral(words(col("b")).alias("a", "n")), "Ambiguous column name: a"),
        (lambda t: t.join_lateral(col("b")), "takes a call of a table function"),
        (lambda t: t.select(words(col("b"))), "a table function"),
        (lambda t: t.join_lateral(pair(col("a"), col("b"))), "no table function"),
        (lambda t: t.window(Tumble.over(row_interval(3))), "takes a window with a name"),
        (lambda t: t.window(Tumble.over(lit(3))), "is a length of time"),
        (lambda t: t.window(Tumble.over(lit(3).days)), "takes a window with a name"),
        (
            lambda t: t.window(Tumble.over(lit(3).days).on("ts").alias("w")).group_by(col("a")),
            "takes the name of its window exactly once",
        ),
        (
            lambda t: (
                t.window(Tumble.over(lit(3).days).on("ts").alias("w"))
                .group_by(col("w"))
                .select(col("w").proctime)
            ),
            "the window is on rowtime",
        ),
        (
            lambda t: t.window(Tumble.over(lit(3).days).on("ts").alias("a")).group_by(col("a")),
            "and so is a column",
        ),
        (
            lambda t: t.over_window(
                Over.order_by(col("ts"))
                .preceding(row_interval(2))
                .following(CURRENT_RANGE)
                .alias("w")
            ),
            "takes CURRENT_ROW",
        ),
        (lambda t: t.select(lit(1.5).days), "a whole number"),
        (lambda t: t.select(with_columns("a").alias("x", "y")), "a column has one name"),
        (lambda t: t.select(with_columns(range_("c", "a"))), "comes after the last"),
        (lambda t: t.select(col("a").flatten), "flatten is for rows"),
        (lambda t: t.map(col("a")), "map\\(\\) takes a call"),
    ],
)
def test_what_makes_no_sense_is_refused(
    env: TableEnvironment, program: Callable[[Table], object], message: str
) -> None:
    with pytest.raises(ProgramError, match=message):
        program(env.from_path("t"))


def test_an_order_alone_is_refused_when_it_is_run(env: TableEnvironment) -> None:
    with pytest.raises(ValidationError, match=r"ORDER BY|Sort"):
        env.from_path("t").order_by(col("a")).explain()


def test_every_expression_has_a_text() -> None:
    assert repr(col("a") + 1) == "<Expression `a` + 1>"
    for each in (UNBOUNDED_ROW, CURRENT_RANGE, col("w").start, col("a").flatten):
        assert repr(each).startswith("<Expression "), "what SQL has no words for, too"
