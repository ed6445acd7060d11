"""Compare the demo's results with answers that DuckDB computes from the whole input.

What it is: SQL over the input files and the output files, and a comparison of every row as a
multiset: a row too many counts as much as a row too few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from demo.job import (
    HOUR_MS,
    MINUTE_MS,
    OUT_OF_ORDERNESS_MS,
    PATIENCE_MS,
    TURNAROUND_MS,
    committed_files,
)

if TYPE_CHECKING:
    import duckdb

    from demo.job import OutputDirectories
    from demo.prepare import InputFiles

__all__ = ["Comparison", "Report", "check"]

_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared and how it came out."""

    name: str
    #: Rows that the answer has.
    rows: int
    #: Rows of the answer that the output lacks, and rows of the output that the answer lacks.
    missing: int
    unexpected: int
    #: A few of them, as text.
    examples: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether the two are the same multiset of rows."""
        return not self.missing and not self.unexpected


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of all comparisons."""

    flights: int
    #: Flights that the job did not account for, and those it accounted for more than once.
    lost: int
    duplicated: int
    late: int
    hours: int
    missed: int
    comparisons: list[Comparison]

    @property
    def correct(self) -> bool:
        """Whether nothing differs."""
        return not (self.lost or self.duplicated) and all(c.equal for c in self.comparisons)

    def summary(self) -> str:
        """``336,776 flights in, 0 lost, 0 duplicated``."""
        return f"{self.flights:,} flights in, {self.lost:,} lost, {self.duplicated:,} duplicated"


def check(inputs: InputFiles, outputs: OutputDirectories) -> Report:
    """Compare every output row with DuckDB's answer.

    Args:
        inputs: what the job read.
        outputs: what it wrote; all committed files are read.
    """
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        _load(connection, inputs, outputs)
        comparisons = [
            _compare(connection, "flights as read", "FROM flights", "FROM seen"),
            _compare(connection, "hourly statistics", _HOURLY, "FROM hourly"),
            _compare(connection, "late flights are in the input", "FROM late", _LATE_AS_READ),
            _compare(connection, "late flights were late", "FROM late", _REALLY_LATE),
            _compare(connection, "missed flights", _MISSED, "FROM missed"),
            _compare(connection, "too late for the aircraft", _TOO_LATE, "FROM too_late"),
        ]
        return _report(connection, comparisons)


def _report(connection: duckdb.DuckDBPyConnection, comparisons: list[Comparison]) -> Report:
    flights = _number(connection, "SELECT count(*) FROM flights")
    return Report(
        flights=flights,
        # Each flight is once in the account of the input, and once in a window or late.  The
        # second is a difference of sums: which flights a window holds is compared above.
        lost=_number(connection, _LOST) + max(0, flights - _number(connection, _ACCOUNTED)),
        duplicated=_number(connection, _DUPLICATED)
        + max(0, _number(connection, _ACCOUNTED) - flights),
        late=_number(connection, "SELECT count(*) FROM late"),
        hours=_number(connection, "SELECT count(*) FROM hourly"),
        missed=_number(connection, "SELECT count(*) FROM missed"),
        comparisons=comparisons,
    )


def _load(
    connection: duckdb.DuckDBPyConnection, inputs: InputFiles, outputs: OutputDirectories
) -> None:
    connection.execute(f"CREATE TABLE flights AS FROM read_parquet('{inputs.flights}/*.parquet')")
    connection.execute(f"CREATE TABLE weather AS FROM read_parquet('{inputs.weather}')")
    connection.execute(f"CREATE TABLE planes AS FROM read_parquet('{inputs.planes}')")
    for table, directory, empty in (
        ("seen", outputs.flights, "FROM flights LIMIT 0"),
        ("hourly", outputs.hourly, _EMPTY_HOURLY),
        ("late", outputs.late, "FROM flights LIMIT 0"),
        ("missed", outputs.missed, _EMPTY_MISSED),
        ("too_late", outputs.too_late, "FROM flights LIMIT 0"),
    ):
        files = [str(path) for path in committed_files(directory)]
        if files:
            connection.execute(f"CREATE TABLE {table} AS FROM read_parquet({files})")
        else:
            connection.execute(f"CREATE TABLE {table} AS {empty}")


def _compare(
    connection: duckdb.DuckDBPyConnection, name: str, answer: str, output: str
) -> Comparison:
    connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {answer}")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE output AS {output}")
    missing = connection.execute("FROM answer EXCEPT ALL FROM output").fetchall()
    unexpected = connection.execute("FROM output EXCEPT ALL FROM answer").fetchall()
    examples = [f"missing: {row}" for row in missing[:_EXAMPLES]]
    examples += [f"unexpected: {row}" for row in unexpected[:_EXAMPLES]]
    rows = _number(connection, "SELECT count(*) FROM answer")
    return Comparison(name, rows, len(missing), len(unexpected), examples)


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    row = connection.execute(query).fetchone()
    return int(row[0]) if row is not None and row[0] is not None else 0


_LOST: Final = "SELECT count(*) FROM flights WHERE id NOT IN (SELECT id FROM seen)"
_DUPLICATED: Final = "SELECT count(*) - count(DISTINCT id) FROM seen"
_ACCOUNTED: Final = (
    "SELECT (SELECT coalesce(sum(flights), 0) FROM hourly) + (SELECT count(*) FROM late)"
)
_EMPTY_HOURLY: Final = """
    SELECT * FROM (VALUES (NULL::VARCHAR, 0::BIGINT, 0::BIGINT, 0::BIGINT, 0::DOUBLE, 0::BIGINT,
        0::BIGINT, 0::DOUBLE, 0::DOUBLE)) AS t(origin, hour_start, flights, cancelled, mean_delay,
        max_delay, sum_of_ids, wind_speed, visibility) LIMIT 0
"""
_EMPTY_MISSED: Final = """
    SELECT * FROM (VALUES (NULL::VARCHAR, NULL::VARCHAR, 0::BIGINT, NULL::VARCHAR, 0::BIGINT,
        0::BIGINT, 0::BIGINT, 0::BIGINT, true, 0::BIGINT)) AS t(tailnum, model, flown_id, flown_to,
        back_by, missed_id, missed_scheduled, short_by_minutes, missed_cancelled, missed_delay)
        LIMIT 0
"""
_HOURLY: Final = f"""
    WITH hours AS (
        SELECT *, scheduled // {HOUR_MS} * {HOUR_MS} AS hour_start FROM flights
        WHERE id NOT IN (SELECT id FROM late)
    )
    SELECT origin, hour_start, count(*) AS flights, count(*) - count(delay) AS cancelled,
        sum(delay)::DOUBLE / nullif(count(delay), 0) AS mean_delay, max(delay) AS max_delay,
        sum(id)::BIGINT AS sum_of_ids, any_value(wind_speed), any_value(visib)
    FROM hours LEFT JOIN weather USING (origin, hour_start)
    GROUP BY origin, hour_start
"""
_LATE_AS_READ: Final = "SELECT flights.* FROM late JOIN flights USING (id)"
# The latest schedule seen before a flight bounds the watermark that any task can have had.
_REALLY_LATE: Final = f"""
    WITH history AS (
        SELECT *, max(scheduled) OVER
            (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
        FROM flights
    )
    SELECT late.* FROM late JOIN history USING (id)
    WHERE (history.scheduled // {HOUR_MS} + 1) * {HOUR_MS} - 1
        <= history.latest - {OUT_OF_ORDERNESS_MS} - 1
"""
_MISSED: Final = f"""
    WITH known AS (
        SELECT *, CASE WHEN departed IS NOT NULL THEN {{
                'id': id, 'dest': dest,
                'back_by': arrived + {TURNAROUND_MS} + (arrived - departed)
            }} END AS rotation
        FROM flights
        WHERE tailnum IS NOT NULL AND id NOT IN (SELECT id FROM too_late)
    ), following AS (
        SELECT *, last_value(rotation IGNORE NULLS) OVER
            (PARTITION BY tailnum ORDER BY scheduled, id
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS out_on
        FROM known
    )
    SELECT tailnum,
        CASE WHEN planes.tailnum IS NOT NULL THEN concat(manufacturer, ' ', model) END AS model,
        out_on.id AS flown_id, out_on.dest AS flown_to, out_on.back_by AS back_by,
        id AS missed_id, scheduled AS missed_scheduled,
        (out_on.back_by - scheduled) // {MINUTE_MS} AS short_by_minutes,
        departed IS NULL AS missed_cancelled, delay AS missed_delay
    FROM following LEFT JOIN planes USING (tailnum)
    WHERE out_on.back_by > scheduled
"""
# Nothing at all may be too late: the patience is longer than the longest delay.
_TOO_LATE: Final = f"""
    WITH history AS (
        SELECT *, max(scheduled) OVER
            (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
        FROM flights
    )
    SELECT * EXCLUDE (latest) FROM history
    WHERE scheduled + {PATIENCE_MS} <= latest - {OUT_OF_ORDERNESS_MS} - 1
"""
