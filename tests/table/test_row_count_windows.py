"""Windows of a number of rows, against a plain loop."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment, materialised

from millstream.connectors.basic.collect import read_collected
from millstream.errors import ProgramError, UnsupportedSqlError, ValidationError
from millstream.table.expressions import call, col, lit, row_interval
from millstream.table.udf import udaf
from millstream.table.window import Over, Session, Slide, Tumble
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millstream.table import Table, TableEnvironment


def timed(env: TableEnvironment, rows: list[tuple[str, int]]) -> Table:
    table = env.from_elements(rows, ["k", "v"])
    return env.sql_query(f"SELECT *, PROCTIME() AS pt FROM {table}")


def result(table: Table, directory: Path) -> Counter[tuple[Any, ...]]:
    session = table._environment.session
    end = session.collected(table.plan, str(directory))
    MiniCluster(session.program.graph_of([end], "test"), limits=iter([3] * 100)).run()
    return materialised(read_collected(directory))


def windows_of(rows: Iterable[int], size: int, slide: int) -> list[list[int]]:
    """The complete windows of the values of one key."""
    values = list(rows)
    starts = range(0, len(values) - size + 1, slide)
    return [values[start : start + size] for start in starts]


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines
@pytest.mark.parametrize(("size", "slide"), [(1, 1), (3, 3), (4, 2), (3, 2), (2, 3)])
def test_oracle_windows_by_key(size: int, slide: int, tmp_path: Path) -> None:
    drawn = random.Random(size * 10 + slide)
    rows = [(drawn.choice("abc"), drawn.randint(0, 9)) for _ in range(40)]
    table = timed(environment(1), rows)
    length: Any = Tumble.over(row_interval(size))
    if size != slide:
        length = Slide.over(row_interval(size)).every(row_interval(slide))
    largest = udaf(lambda values: int(values.max()), result_type="BIGINT", func_type="pandas")
    shown = (
        table.window(length.on(col("pt")).alias("w"))
        .group_by(col("w"), col("k"))
        .select(
            col("k"),
            col("v").sum.alias("sum"),
            (col("v").count + 1).alias("more"),
            col("v").count.distinct.alias("kinds"),
            largest(col("v")).alias("max"),
        )
    )
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, value in rows:
        by_key[key].append(value)
    expected = Counter(
        (key, sum(each), size + 1, len(set(each)), max(each))
        for key, values in by_key.items()
        for each in windows_of(values, size, slide)
    )
    assert result(shown, tmp_path) == expected


@pytest.mark.both_engines
def test_windows_without_keys_and_of_aggregate(tmp_path: Path) -> None:
    table = timed(environment(2), [("a", each) for each in range(1, 10)])
    slide = Slide.over(row_interval(4)).every(row_interval(2)).on(col("pt")).alias("w")
    whole = table.window(slide).group_by(col("w")).select(col("v").count, col("v").avg)
    assert [count for count, _ in result(whole, tmp_path / "1").elements()] == [4, 4, 4]
    tumble = Tumble.over(row_interval(3)).on("pt").alias("w")
    total = udaf(lambda values: int(values.sum()), result_type="BIGINT", func_type="pandas")
    made = table.window(tumble).group_by(col("w"), col("k")).aggregate(total(col("v")).alias("t"))
    found = result(made.select(col("k"), col("t")), tmp_path / "2")
    assert sum(value for _, value in found.elements()) == sum(range(1, 10))
    assert len(list(found.elements())) == 3


def test_aggregates_of_users_are_called_by_name(tmp_path: Path) -> None:
    env = environment(1)
    table = timed(env, [("a", each) for each in range(1, 5)])
    total = udaf(lambda values: int(values.sum()), result_type="BIGINT", func_type="pandas")
    env.create_temporary_function("total", total)
    window = Tumble.over(row_interval(2)).on(col("pt")).alias("w")
    made = table.window(window).group_by(col("w"), col("k")).select(call("total", col("v")))
    assert result(made, tmp_path) == Counter([(3,), (7,)])


def test_what_makes_no_sense_is_refused() -> None:
    env = environment(1)
    table = timed(env, [("a", 1)])
    tumble = Tumble.over(row_interval(2))
    grouped = table.window(tumble.on(col("pt")).alias("w")).group_by(col("w"), col("k"))
    with pytest.raises(ProgramError, match="Window start and Window end cannot be selected"):
        grouped.select(col("k"), col("w").start)
    with pytest.raises(ProgramError, match="time attribute"):
        table.window(tumble.on(col("v")).alias("w")).group_by(col("w"))
    with pytest.raises(ProgramError, match="at least one row, not 0"):
        Tumble.over(row_interval(0))
    with pytest.raises(ProgramError, match="the same type of size and slide"):
        Slide.over(row_interval(2)).every(lit(1).seconds)
    with pytest.raises(ProgramError, match="the same type of size and slide"):
        Slide.over(lit(1).minutes).every(row_interval(2))
    with pytest.raises(ProgramError, match="gap of time"):
        Session.with_gap(row_interval(2))
    env.execute_sql(
        "CREATE TABLE events (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
        "WITH ('connector' = 'datagen')"
    )
    with pytest.raises(UnsupportedSqlError, match="Event-time grouping windows on row intervals"):
        env.from_path("events").window(tumble.on(col("ts")).alias("w")).group_by(col("w"))


def test_windows_around_rows_of_a_stream_are_ordered_by_time() -> None:
    table = timed(environment(1), [("a", 1)])
    by_value = Over.partition_by(col("k")).order_by(col("v")).preceding(row_interval(1)).alias("w")
    with pytest.raises(ValidationError, match="must be a TIME ATTRIBUTE, but is: BIGINT"):
        table.over_window(by_value).select(col("v").sum.over(col("w")))
    by_time = Over.partition_by(col("k")).order_by(col("pt")).preceding(row_interval(1)).alias("w")
    assert table.over_window(by_time).select(col("v").sum.over(col("w")).alias("s")) is not None
