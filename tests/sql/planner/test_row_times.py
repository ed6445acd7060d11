"""Timestamps beside the rows of tables: carried as far as somebody reads them, and no further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.common import Types
from millstream.datastream import ProcessFunction, StreamExecutionEnvironment
from millstream.graph.transformation import OneInputTransformation
from millstream.sql.parser.parser import parse_statement
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import run_and_collect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.graph.transformation import Transformation
    from millstream.table import TableEnvironment

_TIMED = (
    "CREATE TABLE events (k INT, n INT, t TIMESTAMP(3), WATERMARK FOR t AS t) "
    "WITH ('connector' = 'datagen', 'number-of-rows' = '5')"
)


def _keepers(env: TableEnvironment, *texts: str) -> list[bool]:
    """For each calc and watermark of a job, from the source on: whether rows keep their times."""
    session = env.session
    targets = []
    for text in texts:
        statement: Any = parse_statement(text)
        targets.append(session.target(statement, text))
    found: dict[int, bool] = {}

    def walk(node: Transformation) -> None:
        for below in node.inputs:
            walk(below)
        if isinstance(node, OneInputTransformation):
            keeps = getattr(node.factory, "keeps_times", None)
            if keeps is not None and node.name in {"Calc", "WatermarkAssigner"}:
                found[node.id] = keeps

    for end in session.sinks(targets):
        walk(end)
    return list(found.values())


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    made.execute_sql(_TIMED)
    made.execute_sql("CREATE TABLE nowhere (k INT, n BIGINT) WITH ('connector' = 'blackhole')")
    made.execute_sql("CREATE TABLE shown (k INT, n BIGINT) WITH ('connector' = 'print')")
    made.execute_sql(
        "CREATE TABLE files (k INT, n BIGINT) WITH ('connector' = 'filesystem', "
        "'format' = 'parquet', 'path' = '/nowhere')"
    )
    return made


@pytest.mark.parametrize("table", ["nowhere", "files"])
def test_sinks_that_do_not_read_them_get_none(env: TableEnvironment, table: str) -> None:
    text = f"INSERT INTO {table} SELECT k, CAST(n AS BIGINT) FROM events WHERE MOD(n, 2) = 0"
    assert set(_keepers(env, text)) == {False}


def test_other_sinks_get_them(env: TableEnvironment) -> None:
    text = "INSERT INTO shown SELECT k, CAST(n AS BIGINT) FROM events WHERE MOD(n, 2) = 0"
    assert set(_keepers(env, text)) == {True}


def test_an_aggregate_reads_none(env: TableEnvironment) -> None:
    keepers = _keepers(env, "INSERT INTO shown SELECT k, COUNT(*) FROM events GROUP BY k")
    # What is behind it passes on what it gives, which is none.
    assert keepers[0] is False
    assert False in keepers[:2]


def test_one_reader_of_a_shared_part_is_enough(env: TableEnvironment) -> None:
    select = "SELECT k, CAST(n AS BIGINT) FROM events WHERE MOD(n, 2) = 0"
    keepers = _keepers(env, f"INSERT INTO nowhere {select}", f"INSERT INTO shown {select}")
    assert True in keepers


class _Times(ProcessFunction):
    def process_element(
        self, value: Any, ctx: ProcessFunction.Context
    ) -> Iterator[tuple[int, int | None]]:
        yield value[0], ctx.timestamp()


@pytest.mark.both_engines(about="time")
def test_a_stream_has_the_times_of_the_rows_that_a_filter_lets_through() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    tables = StreamTableEnvironment.create(env)
    numbers = env.from_collection(
        [(number, 1_000 * number) for number in range(20)],
        type_info=Types.ROW_NAMED(["n", "ms"], [Types.INT(), Types.LONG()]),
    )
    schema = (
        Schema.new_builder()
        .column("n", "INT")
        .column("ms", "BIGINT")
        .column_by_expression("t", "TO_TIMESTAMP_LTZ(ms, 3)")
        .watermark("t", "t")
        .build()
    )
    tables.create_temporary_view("numbers", numbers, schema)
    chosen = tables.sql_query("SELECT n, t FROM numbers WHERE MOD(n, 4) = 1 OR n > 17")
    stream = tables.to_data_stream(chosen).process(
        _Times(), output_type=Types.TUPLE([Types.INT(), Types.LONG()])
    )
    (found,) = run_and_collect(stream)
    assert sorted(found, key=str) == [(n, 1_000 * n) for n in (1, 13, 17, 18, 19, 5, 9)]
