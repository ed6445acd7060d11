"""SOURCE_WATERMARK: watermarks of tables that are those of a stream."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource
from tests.support.query_running import changelog

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError, ValidationError
from millstream.execution.driver import check_job
from millstream.table import Schema, StreamTableEnvironment
from millstream.table.expressions import source_watermark

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.datastream import DataStream

COUNTS = (
    "SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(rowtime), INTERVAL '10' "
    "SECOND) GROUP BY window_start, window_end"
)


def stream(rows: list[tuple[str, int]], parallelism: int = 1, delay: int = 0) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    kind = Types.ROW_NAMED(["k", "t"], [Types.STRING(), Types.LONG()])
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(delay))
    given = env.from_collection(rows, type_info=kind)
    return given.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda row, _: row[1])
    )


def registered(given: DataStream, schema: Schema) -> StreamTableEnvironment:
    env = StreamTableEnvironment.create(given.get_execution_environment())
    env.create_temporary_view("t", env.from_data_stream(given, schema))
    return env


def of_records(watermark: Any = "SOURCE_WATERMARK()") -> Schema:
    builder = Schema.new_builder().column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)")
    return builder.watermark("rowtime", watermark).build()


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(about="time")
@pytest.mark.parametrize("delay", [0, 4_000])
def test_oracle_rows_are_late_behind_the_watermark_of_the_stream(
    delay: int, tmp_path: Path
) -> None:
    """Beside plain Python: the watermark is the greatest timestamp so far, less the delay."""
    drawn = random.Random(delay)
    rows = [("a", at * 1_500 + drawn.randint(0, 20_000)) for at in range(70)]
    wanted: dict[int, int] = {}
    watermark = -1
    for _, time in rows:
        if time // 10_000 * 10_000 + 9_999 > watermark:
            wanted[time // 10_000] = wanted.get(time // 10_000, 0) + 1
        watermark = max(watermark, time - delay - 1)
    env = registered(stream(rows, delay=delay), of_records())
    found = changelog(env, COUNTS, tmp_path, seed=delay, limit=1)
    counts = {row[0].second // 10 + row[0].minute * 6: row[1] for row in found}
    assert sum(counts.values()) <= len(rows)
    assert counts == wanted


@pytest.mark.both_engines(about="time")
def test_a_computed_column_goes_by_the_same_watermarks(tmp_path: Path) -> None:
    schema = (
        Schema.new_builder()
        .column_by_expression("rowtime", "TO_TIMESTAMP_LTZ(t, 3)")
        .watermark("rowtime", source_watermark())
        .build()
    )
    rows = [("a", 1_000), ("b", 30_000), ("late", 2_000), ("c", 31_000)]
    env = registered(stream(rows, parallelism=3), schema)
    found = changelog(env, COUNTS, tmp_path, limit=1)
    assert [row[1] for row in found][-1] == 2
    assert "watermark=[SOURCE_WATERMARK()]" in env.explain_sql(COUNTS)


def test_the_schema_says_so() -> None:
    env = registered(stream([("a", 1)]), of_records())
    assert [str(each) for each in env.sql_query("SELECT * FROM t").plan.row.children] == [
        "STRING",
        "BIGINT",
        "TIMESTAMP_LTZ(3) *ROWTIME*",
    ]
    assert "WATERMARK FOR `rowtime` AS [SOURCE_WATERMARK()]" in str(of_records(source_watermark()))


def test_records_without_timestamps_are_refused(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    given = env.from_collection([("a", 1)], type_info=Types.ROW([Types.STRING(), Types.INT()]))
    with pytest.raises(MillstreamError, match="Could not find timestamp in a record of the stream"):
        changelog(registered(given, of_records()), "SELECT * FROM t", tmp_path)


def test_connectors_have_none() -> None:
    env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())
    env.execute_sql(
        "CREATE TABLE d (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()) "
        "WITH ('connector' = 'datagen')"
    )
    with pytest.raises(ValidationError, match="connector 'datagen' gives no watermarks of its own"):
        env.sql_query("SELECT * FROM d")
    with pytest.raises(ValidationError, match="is a declarative marker function"):
        env.sql_query("SELECT SOURCE_WATERMARK()")
    declared = "ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK() - INTERVAL '1' SECOND"
    with pytest.raises(ValidationError, match="is a declarative marker function"):
        env.execute_sql(f"CREATE TABLE e ({declared}) WITH ('connector' = 'datagen')")
    schema = Schema.new_builder().column_by_metadata("x", "BIGINT", "offset").build()
    with pytest.raises(ValidationError, match="Invalid metadata key 'offset' in column 'x'"):
        env.from_data_stream(stream([("a", 1)]), schema)


OVER = "SELECT COUNT(*) OVER (PARTITION BY k ORDER BY rowtime) AS n FROM t"
RANKED = (
    "SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY t) "
    "AS n FROM TUMBLE(TABLE t, DESCRIPTOR(rowtime), INTERVAL '10' SECOND)) WHERE n <= 2"
)
MATCHED = (
    "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime MEASURES A.t AS found "
    "PATTERN (A) DEFINE A AS A.t > 0)"
)
PAIRS = (
    "SELECT a.k FROM (SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(rowtime), INTERVAL '10' SECOND)) a "
    "JOIN (SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(rowtime), INTERVAL '10' SECOND)) b "
    "ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end"
)
SESSIONS = "SELECT COUNT(*) AS n FROM t GROUP BY SESSION(rowtime, INTERVAL '1' MINUTE)"
SORTED = "SELECT k FROM t ORDER BY rowtime"


def check(query: str, schema: Schema, strategy: WatermarkStrategy, *, unbounded: bool) -> None:
    """Check a query over a stream without running it."""
    env = StreamExecutionEnvironment.get_execution_environment()
    kind = Types.ROW_NAMED(["k", "t"], [Types.STRING(), Types.LONG()])
    source = SplitsSource([[("a", 1)]], kind, unbounded=unbounded)
    tables = registered(env.from_source(source, strategy, "events"), schema)
    tables.to_changelog_stream(tables.sql_query(query)).print()
    check_job(env.get_job_graph("watermarks"))


@pytest.mark.parametrize("query", [COUNTS, OVER, RANKED, MATCHED, PAIRS, SESSIONS, SORTED])
def test_a_query_that_never_emits_is_warned_of(
    query: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "millstream"):
        check(query, of_records(), WatermarkStrategy.no_watermarks(), unbounded=True)
    assert "never emits: it fires by event time, and source 'Source: events'" in caplog.text


BY_COLUMN = (
    Schema.new_builder()
    .column_by_expression("rowtime", "TO_TIMESTAMP_LTZ(t, 3)")
    .watermark("rowtime", "rowtime")
    .build()
)


@pytest.mark.parametrize(
    ("query", "schema", "strategy", "unbounded"),
    [
        (COUNTS, BY_COLUMN, WatermarkStrategy.no_watermarks(), True),
        (COUNTS, of_records(), WatermarkStrategy.for_monotonous_timestamps(), True),
        (COUNTS, of_records(), WatermarkStrategy.no_watermarks(), False),
        ("SELECT k FROM t WHERE t > 1", of_records(), WatermarkStrategy.no_watermarks(), True),
        ("SELECT COUNT(*) FROM t", of_records(), WatermarkStrategy.no_watermarks(), True),
    ],
)
def test_a_query_that_emits_is_not_warned_of(
    query: str,
    schema: Schema,
    strategy: WatermarkStrategy,
    unbounded: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "millstream"):
        check(query, schema, strategy, unbounded=unbounded)
    assert "never emits" not in caplog.text
