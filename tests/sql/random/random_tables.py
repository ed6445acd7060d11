"""The tables of random queries, a run of a query over them, and DuckDB's answer.

What it is: rows drawn by a seed, with NULLs and duplicates; two tables that grow, one that is
changed by -U, +U and -D, one that is changed by upserts, one with event time.  A run is cut into
epochs at random, stopped, and goes on at another parallelism on either engine.
What it is not: the queries (``tests/sql/random/random_queries.py``).
"""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import duckdb
from tests.integration.job_runs import SplitsSource
from tests.sql.random.random_queries import BASES, EVENTS, SOME
from tests.support.query_running import materialised

from millstream.common import Row, RowKind, Types, WatermarkStrategy
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.contracts.source import SourceBatch
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ValidationError
from millstream.table import ChangelogMode, Schema, StreamTableEnvironment
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.sql.random.random_expressions import Text

    from millstream.contracts.source import Split
    from millstream.graph.model import JobGraph

__all__ = ["Run", "Tables", "answer", "collected", "upserted"]

_SQL_TYPES: Final = {
    "I": "INT",
    "S": "STRING",
    "D": "DOUBLE",
    "N": "DECIMAL(6, 2)",
    "B": "BOOLEAN",
    "T": "DATE",
}
_STREAM_TYPES: Final = {
    "I": Types.INT(),
    "S": Types.STRING(),
    "D": Types.DOUBLE(),
    "N": Types.BIG_DEC(),
    "B": Types.BOOLEAN(),
    "T": Types.SQL_DATE(),
}
_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "I": (None, 0, 1, 2, 3, 4, -4),
    "S": (None, "", "a", "b", "ab", "Ab ", "äö"),
    "D": (None, 0.5, 0.25, 2.0, -1.5),
    "N": (None, Decimal("1.25"), Decimal("0.50"), Decimal("-3.10")),
    "B": (None, True, False),
    "T": (None, *(dt.date(2024, month, day) for month in (1, 2) for day in (1, 2, 3, 29))),
}
_START: Final = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_I, _UB, _UA, _D = (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)

Change = tuple[RowKind, tuple[Any, ...]]


class _ChangesSource(SplitsSource):
    """Rows with their kinds."""

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        values = self._values(split)[start:stop]
        if values:
            yield SourceBatch(values=[_row(*each) for each in values])  # type: ignore[misc]


def _row(kind: RowKind, values: tuple[Any, ...]) -> Row:
    made = Row(*values)
    made.set_row_kind(kind)
    return made


class Tables:
    """Rows of a seed: for each table two splits of changes."""

    def __init__(self, seed: int) -> None:
        self._drawn = random.Random(seed)
        self.outside: Path | None = None
        self.outside_rows: Sequence[tuple[Any, ...]] = ()
        self.splits: dict[str, list[list[Change]]] = {}
        for name, types in BASES.items():
            count = self._drawn.randint(8, 20)
            make = {"s": self._changed, "p": self._upserted}.get(name, self._grown)
            self.splits[name] = [make(types, count, part) for part in (0, 1)]
        times = self._drawn.sample(range(600), 40)
        self.splits["e"] = [
            [(_I, (_START + dt.timedelta(seconds=time), *self._values(EVENTS))) for time in part]
            for part in (sorted(times[:25]), sorted(times[25:]))
        ]

    def _values(self, types: str) -> tuple[Any, ...]:
        return tuple(self._drawn.choice(_VALUES[each]) for each in types)

    def _grown(self, types: str, count: int, part: int) -> list[Change]:
        del part
        return [(_I, self._values(types)) for _ in range(count)]

    def _changed(self, types: str, count: int, part: int) -> list[Change]:
        del part
        there: list[tuple[Any, ...]] = [self._values(types)]
        changes: list[Change] = [(_I, there[0])]
        for _ in range(count):
            step = self._drawn.random()
            if step < 0.4 or len(there) < 2:
                there.append(self._values(types))
                changes.append((_I, there[-1]))
                continue
            old = there.pop(self._drawn.randrange(len(there)))
            if step < 0.6:
                changes.append((_D, old))
            else:
                new = self._values(types)
                new = tuple(
                    b if self._drawn.random() < 0.4 else a for a, b in zip(old, new, strict=True)
                )
                there.append(new)
                changes += [(_UB, old), (_UA, new)]
        return changes

    def _upserted(self, types: str, count: int, part: int) -> list[Change]:
        there: dict[int, tuple[Any, ...]] = {}
        changes: list[Change] = []
        for number in range(count):
            key = 2 * self._drawn.randrange(5) + part
            if key in there and number and self._drawn.random() < 0.3:
                changes.append((_D, there.pop(key)))
                continue
            new = (key, *self._values(types[1:]))
            changes.append((_UA if key in there else _I, new))
            there[key] = new
        if not there:
            changes.append((_I, (part, *self._values(types[1:]))))
        return changes

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """What is there at the end."""
        changes = [change for split in self.splits[name] for change in split]
        if name == "p":
            by_key: dict[Any, tuple[Any, ...]] = {}
            for kind, row in changes:
                by_key.pop(row[0], None)
                if kind is not _D:
                    by_key[row[0]] = row
            return list(by_key.values())
        found: Counter[tuple[Any, ...]] = Counter()
        for kind, row in changes:
            found[row] += 1 if kind in {_I, _UA} else -1
        return list(found.elements())

    def environment(self, parallelism: int, *, mini_batch: bool = False) -> StreamTableEnvironment:
        """The tables in an environment."""
        stream_env = StreamExecutionEnvironment.get_execution_environment()
        stream_env.set_parallelism(parallelism)
        env = StreamTableEnvironment.create(stream_env)
        env.get_config().set("table.exec.mini-batch.enabled", str(mini_batch).lower())
        for name, splits in self.splits.items():
            fields = _fields(name)
            kind = Types.ROW_NAMED(list(fields), [_stream_type(each) for each in fields.values()])
            source = _ChangesSource(splits, kind)
            stream = env_stream(stream_env, source, name)
            schema = Schema.new_builder()
            for field, each in fields.items():
                not_null = " NOT NULL" if (name, field) == ("p", "c0") else ""
                schema.column(field, _SQL_TYPES.get(each, "TIMESTAMP(3)") + not_null)
            if name == "p":
                made = schema.primary_key("c0").build()
                table = env.from_changelog_stream(stream, made, ChangelogMode.upsert())
            elif name == "e":
                made = schema.watermark("ts", "ts - INTERVAL '1' HOUR").build()
                table = env.from_data_stream(stream, made)
            else:
                reader = env.from_changelog_stream if name == "s" else env.from_data_stream
                table = reader(stream, schema.build())
            env.create_temporary_view(name, table)
        for key in "kv":
            env.execute_sql(
                f"CREATE TEMPORARY VIEW last_{key} AS SELECT ts, id, k, v FROM (SELECT *, "
                f"ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY ts DESC) AS n FROM e "
                f"WHERE {SOME}) WHERE n = 1"
            )
        if self.outside is not None:
            env.execute_sql(
                "CREATE TABLE outside (id INT, name STRING, m INT) WITH ('connector' = 'sqlite', "
                f"'path' = '{self.outside}', 'table-name' = 'outside')"
            )
        return env

    def with_outside(self, path: Path, rows: Sequence[tuple[Any, ...]]) -> None:
        """Have a table that may be looked up, in a file."""
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE outside (id INT, name TEXT, m INT)")
        connection.executemany("INSERT INTO outside VALUES (?, ?, ?)", rows)
        connection.commit()
        connection.close()
        self.outside, self.outside_rows = path, rows


def env_stream(stream_env: StreamExecutionEnvironment, source: SplitsSource, name: str) -> Any:
    stream = stream_env.from_source(source, WatermarkStrategy.no_watermarks(), name)
    return stream.uid(f"source-{name}")


def _fields(name: str) -> dict[str, str]:
    if name == "e":
        return dict(zip(("ts", "id", "k", "v"), f"X{EVENTS}", strict=True))
    return {f"c{i}": kind for i, kind in enumerate(BASES[name])}


def _stream_type(kind: str) -> Any:
    return _STREAM_TYPES.get(kind, Types.SQL_TIMESTAMP())


def answer(tables: Tables, query: Text) -> Counter[tuple[Any, ...]]:
    """DuckDB's."""
    connection = duckdb.connect(config={"threads": 1})
    for name in tables.splits:
        fields = _fields(name)
        types = ", ".join(
            f"{field} {_SQL_TYPES.get(kind, 'TIMESTAMP')}" for field, kind in fields.items()
        )
        connection.execute(f"CREATE TABLE {name} ({types})")
        marks = ", ".join("?" * len(fields))
        rows = tables.rows(name)
        if rows:
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    if tables.outside_rows:
        connection.execute("CREATE TABLE outside (id INT, name VARCHAR, m INT)")
        connection.executemany("INSERT INTO outside VALUES (?, ?, ?)", tables.outside_rows)
    return Counter(connection.execute(query.duck).fetchall())


@dataclass(frozen=True)
class Run:
    """How a query is run: cut into epochs, stopped, and gone on with."""

    seed: int
    mini_batch: bool
    #: For each start: the parallelism, and whether tasks live on.
    starts: Sequence[tuple[int, bool]]

    @staticmethod
    def of(seed: int) -> Run:
        """The run of a seed."""
        drawn = random.Random(seed)
        count = drawn.choice((1, 1, 2, 3))
        starts = [(drawn.choice((1, 3)), drawn.random() < 0.3) for _ in range(count)]
        return Run(seed, mini_batch=drawn.random() < 0.3, starts=starts)

    def clusters(self, graphs: Iterator[JobGraph], state: Path) -> None:
        """Run jobs of the same program, one after the other, on one state."""
        drawn = random.Random(self.seed)
        for number, (graph, (_, lives_on)) in enumerate(zip(graphs, self.starts, strict=True)):
            limits = (drawn.randint(1, 12) for _ in range(1000))
            cluster = MiniCluster(graph, state, limits=limits, seed=self.seed, pipelined=lives_on)
            last = number == len(self.starts) - 1
            cluster.run(10_000 if last else drawn.randint(1, 3))


def collected(tables: Tables, query: str, run: Run, directory: Path) -> Counter[tuple[Any, ...]]:
    """What is there of a query at the end; no row is taken away that is not there."""
    out = str(directory / "out")

    def graphs() -> Iterator[JobGraph]:
        for parallelism, _ in run.starts:
            env = tables.environment(parallelism, mini_batch=run.mini_batch)
            end = env.session.collected(env.sql_query(query).plan, out)
            yield env.session.program.graph_of([end], "random")

    run.clusters(graphs(), directory / "state")
    return materialised(read_collected(out))


def at_the_end(
    tables: Tables, query: str, run: Run, directory: Path
) -> Counter[tuple[Any, ...]] | None:
    """The same in batch mode, which gives inserts alone; None: it takes none of the tables."""
    out = str(directory / "batch")

    def graphs() -> Iterator[JobGraph]:
        for parallelism, _ in run.starts:
            env = tables.environment(parallelism)
            env.get_config().set("execution.runtime-mode", "BATCH")
            end = env.session.collected(env.sql_query(query).plan, out)
            yield env.session.program.graph_of([end], "random")

    try:
        run.clusters(graphs(), directory / "state-of-batch")
    except ValidationError as refused:
        if "is not insert-only" not in str(refused):
            raise
        return None
    rows: list[Any] = list(read_collected(out))
    assert all(row.get_row_kind().value == 0 for row in rows)
    return Counter(tuple(row) for row in rows)


def upserted(
    tables: Tables, query: str, run: Run, directory: Path
) -> Counter[tuple[Any, ...]] | None:
    """The same of upserts by the query's key; None if it has none.

    What is deleted is there, as the row of its key.
    """
    node = tables.environment(1).sql_query(query)
    plan = node._environment.session.result_plan(node.plan)
    if plan.upsert_key is None or plan.input.is_insert_only:
        return None
    out = directory / "upserts"

    def graphs() -> Iterator[JobGraph]:
        for parallelism, _ in run.starts:
            env = tables.environment(parallelism, mini_batch=run.mini_batch)
            stream = env.to_changelog_stream(env.sql_query(query), None, ChangelogMode.upsert())
            stream.sink_to(CollectSink(str(out))).uid("sink").set_parallelism(1)
            yield stream.get_execution_environment().get_job_graph("random")

    run.clusters(graphs(), directory / "state-of-upserts")
    there: dict[Any, tuple[Any, ...]] = {}
    rows: Any = read_collected(out)
    for row in rows:
        values = tuple(row)
        key = tuple(values[i] for i in plan.upsert_key)
        kind = row.get_row_kind()
        if kind in {_D, _UB}:
            # -U where a condition may end what was there: then it is given, as in Flink.
            assert key in there, f"{row!r} is taken away and was not there"
            del there[key]
        else:
            there[key] = values
    return Counter(there.values())
