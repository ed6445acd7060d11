"""Streams as tables, tables as streams, INSERT and the Table API, on a MiniCluster."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from tests.support.query_running import environment, materialised

from millstream.common import Row, RowKind, Types
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import ProcessFunction
from millstream.errors import ProgramError, TypeMismatchError, ValidationError
from millstream.sql.parser.parser import parse_statement
from millstream.table import ChangelogMode, DataTypes, Schema, StreamTableEnvironment
from millstream.table.expressions import call, col, lit
from millstream.table.udf import udf
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.datastream import DataStream
    from millstream.table import Table

PEOPLE = [(1, "ann"), (2, "bob"), (3, "ann"), (4, "cid")]
PEOPLE_TYPE = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


@pytest.fixture
def stream_env() -> StreamExecutionEnvironment:
    made = StreamExecutionEnvironment.get_execution_environment()
    made.set_parallelism(2)
    return made


@pytest.fixture
def env(stream_env: StreamExecutionEnvironment) -> StreamTableEnvironment:
    return StreamTableEnvironment.create(stream_env)


def people(stream_env: StreamExecutionEnvironment) -> DataStream:
    return stream_env.from_collection(PEOPLE, PEOPLE_TYPE)


def collected(stream: DataStream, directory: Path) -> list[Any]:
    stream.sink_to(CollectSink(str(directory)))
    graph = stream.get_execution_environment().get_job_graph("test")
    MiniCluster(graph, limits=iter([1] * 100)).run()
    return list(read_collected(directory))


def result(table: Table, directory: Path) -> Counter[tuple[Any, ...]]:
    """What is there of a table at the end."""
    session = table._environment.session
    end = session.collected(table.plan, str(directory))
    MiniCluster(session.program.graph_of([end], "test"), limits=iter([1] * 100)).run()
    return materialised(read_collected(directory))


@pytest.mark.both_engines
def test_a_stream_becomes_a_table_and_a_stream_again(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    table = env.from_data_stream(people(stream_env))
    assert [str(kind) for kind in table.get_resolved_schema().types] == ["INT", "STRING"]
    stream = env.to_data_stream(table.filter(col("id") > 1).select(col("id") + 1, col("name")))
    assert sorted(map(tuple, collected(stream, tmp_path))) == [(3, "bob"), (4, "ann"), (5, "cid")]


@pytest.mark.both_engines
def test_a_changelog_stream_has_kinds(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.create_temporary_view("people", people(stream_env))
    counts = env.sql_query("SELECT name, COUNT(*) AS n FROM people GROUP BY name")
    rows = collected(env.to_changelog_stream(counts), tmp_path)
    of_ann = [(row.get_row_kind(), row.n) for row in rows if row.name == "ann"]
    assert of_ann == [(RowKind.INSERT, 1), (RowKind.UPDATE_BEFORE, 1), (RowKind.UPDATE_AFTER, 2)]


@pytest.mark.both_engines
def test_an_upsert_stream_has_no_update_before(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.create_temporary_view("people", people(stream_env))
    counts = env.sql_query("SELECT name, COUNT(*) AS n FROM people GROUP BY name")
    stream = env.to_changelog_stream(counts, changelog_mode=ChangelogMode.upsert())
    kinds = Counter(row.get_row_kind() for row in collected(stream, tmp_path))
    assert kinds == {RowKind.INSERT: 3, RowKind.UPDATE_AFTER: 1}


def test_a_table_that_is_updated_is_no_data_stream(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment
) -> None:
    table = env.from_data_stream(people(stream_env)).group_by(col("name")).select(col("id").sum)
    with pytest.raises(ValidationError, match="update changes which is produced by node GroupAgg"):
        env.to_data_stream(table)


@pytest.mark.both_engines
def test_upserts_of_a_stream_become_a_full_changelog(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    rows = [
        _row(kind, *values)
        for kind, values in (
            (RowKind.INSERT, ("a", 1)),
            (RowKind.UPDATE_AFTER, ("b", 2)),
            (RowKind.UPDATE_AFTER, ("a", 5)),
            (RowKind.DELETE, ("b", 2)),
        )
    ]
    kind = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])
    schema = (
        Schema.new_builder()
        .column("k", DataTypes.STRING(nullable=False))
        .column("v", DataTypes.INT())
        .primary_key("k")
        .build()
    )
    table = env.from_changelog_stream(
        stream_env.from_collection(rows, kind), schema, ChangelogMode.upsert()
    )
    env.create_temporary_view("t", table)
    total = env.sql_query("SELECT SUM(v) AS s, COUNT(*) AS n FROM t")
    assert result(total, tmp_path) == Counter({(5, 1): 1})


def _row(kind: RowKind, *values: object) -> Row:
    made = Row(*values)
    made.set_row_kind(kind)
    return made


@pytest.mark.both_engines
def test_an_untyped_stream_is_a_column_of_objects(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    stream = stream_env.from_collection([(1, "a"), {"b": 2}])
    table = env.from_data_stream(stream)
    assert [str(each) for each in table.plan.row.names] == ["f0"]
    shown = udf(lambda value: f"{type(value).__name__} {value}", result_type="STRING")
    described = table.select(shown(col("f0")))
    assert result(described, tmp_path / "1") == Counter([("tuple (1, 'a')",), ("dict {'b': 2}",)])
    rows = collected(env.to_data_stream(table), tmp_path / "2")
    assert sorted(rows, key=repr) == [Row(f0=(1, "a")), Row(f0={"b": 2})]
    changes = env.from_changelog_stream(stream)
    collecting = env.session.collected(changes.plan, str(tmp_path / "3"))
    MiniCluster(env.session.program.graph_of([collecting], "test")).run()
    assert len(list(read_collected(tmp_path / "3"))) == 2
    schema = Schema.new_builder().column("f0", "INT").build()
    with pytest.raises(ProgramError, match="needs a stream whose type is known"):
        env.from_data_stream(stream, schema)


def test_objects_in_rows_of_a_stream_stay_objects(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment
) -> None:
    kind = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.PICKLED_BYTE_ARRAY()])
    stream = stream_env.from_collection([(1, {2})], kind)
    stream_env.get_configuration().set_string("execution.target", "local")
    assert list(env.from_data_stream(stream).execute().collect()) == [Row(1, {2})]


class Timed(ProcessFunction):
    """Gives rows with their kinds and timestamps."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield str(value.get_row_kind()), dict(value.as_dict()), ctx.timestamp()


@pytest.mark.both_engines
def test_a_changelog_stream_has_the_columns_of_a_schema(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.create_temporary_view("people", people(stream_env))
    table = env.sql_query("SELECT name, TO_TIMESTAMP_LTZ(1000 * id, 3) AS ts, id FROM people")
    schema = (
        Schema.new_builder()
        .column("who", "STRING")
        .column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)")
        .column_by_expression("ignored", "UPPER(who)")
        .column("number", "BIGINT NOT NULL")
        .build()
    )
    stream = env.to_changelog_stream(table, schema, ChangelogMode.insert_only())
    assert str(stream.get_type()) == "RowTypeInfo(who: String, number: Long)"
    found = collected(stream.process(Timed()), tmp_path)
    assert sorted(found, key=repr) == [
        ("+I", {"who": "ann", "number": 1}, 1000),
        ("+I", {"who": "ann", "number": 3}, 3000),
        ("+I", {"who": "bob", "number": 2}, 2000),
        ("+I", {"who": "cid", "number": 4}, 4000),
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": "INT"}, "Different number of columns"),
        (
            {"id": "STRING", "name": "STRING"},
            "Incompatible types for sink column 'id' at position 1",
        ),
        ({"id": "INT", "name": "INT"}, "Incompatible types for sink column 'name' at position 2"),
    ],
)
def test_columns_that_do_not_fit_a_stream_s_schema_are_refused(
    columns: dict[str, str], message: str, env: StreamTableEnvironment, stream_env: Any
) -> None:
    builder = Schema.new_builder()
    for name, kind in columns.items():
        builder.column(name, kind)
    table = env.from_data_stream(people(stream_env))
    with pytest.raises(ValidationError, match=message):
        env.to_changelog_stream(table, builder.build())


def test_a_row_without_time_is_refused_by_its_column(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.create_temporary_view("people", people(stream_env))
    query = "SELECT id, CAST(NULL AS TIMESTAMP_LTZ(3)) AS ts FROM people"
    schema = (
        Schema.new_builder()
        .column("id", "INT")
        .column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)")
        .build()
    )
    stream = env.to_changelog_stream(env.sql_query(query), schema)
    with pytest.raises(TypeMismatchError, match="'rowtime' of the table becomes the timestamp"):
        collected(stream, tmp_path)


@pytest.mark.both_engines
def test_insert_writes_files(env: StreamTableEnvironment, tmp_path: Path) -> None:
    env.execute_sql(
        "CREATE TABLE target (b STRING, a BIGINT) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path / 'out'}', 'format' = 'csv')"
    )
    text = "INSERT INTO target (a, b) VALUES (1, 'x'), (2, 'y')"
    statement: Any = parse_statement(text)
    session = env.session
    graph = session.program.graph_of(session.sinks([session.target(statement, text)]), "test")
    MiniCluster(graph).run()
    files = (tmp_path / "out").glob("*.csv")
    lines = sorted(line for path in files for line in path.read_text().splitlines())
    assert lines == ["x,1", "y,2"]


@pytest.mark.both_engines
def test_null_into_not_null_is_refused_with_the_row(
    env: StreamTableEnvironment, tmp_path: Path
) -> None:
    env.execute_sql(
        "CREATE TABLE target (a INT NOT NULL) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path / 'out'}', 'format' = 'csv')"
    )
    text = "INSERT INTO target SELECT NULLIF(x, 1) FROM (VALUES (2), (1)) AS t (x)"
    statement: Any = parse_statement(text)
    session = env.session
    graph = session.program.graph_of(session.sinks([session.target(statement, text)]), "test")
    with pytest.raises(ProgramError, match="NOT NULL, however, a null value is being written"):
        MiniCluster(graph).run()


@pytest.mark.parametrize("connector", ["sqlite", "duckdb"])
@pytest.mark.both_engines
def test_insert_writes_into_database_files(
    env: StreamTableEnvironment, tmp_path: Path, connector: str
) -> None:
    path = tmp_path / "data.db"
    opened: Any = sqlite3.connect(path) if connector == "sqlite" else duckdb.connect(str(path))
    with contextlib.closing(opened) as connection:
        connection.execute("CREATE TABLE people (name VARCHAR, n BIGINT)")
        connection.commit()
    env.execute_sql(
        f"CREATE TABLE target (n BIGINT, name STRING) WITH ('connector' = '{connector}', "
        f"'path' = '{path}', 'table-name' = 'people')"
    )
    text = "INSERT INTO target VALUES (1, 'x'), (2, CAST(NULL AS STRING))"
    statement: Any = parse_statement(text)
    session = env.session
    graph = session.program.graph_of(session.sinks([session.target(statement, text)]), "test")
    MiniCluster(graph).run()
    opened = sqlite3.connect(path) if connector == "sqlite" else duckdb.connect(str(path))
    with contextlib.closing(opened) as connection:
        rows = connection.execute("SELECT name, n FROM people ORDER BY n").fetchall()
    assert rows == [("x", 1), (None, 2)]


@pytest.mark.both_engines
def test_print_has_the_texts_of_java(
    env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = (
        "a FLOAT, b DOUBLE, c TIMESTAMP(9), d TIMESTAMP_LTZ(3), e TIME, f BYTES, g ARRAY<FLOAT>, "
        "h MAP<STRING, DOUBLE>, i ROW<x INT, y FLOAT>, j DECIMAL(5, 2), k BOOLEAN, l DATE"
    )
    env.execute_sql(f"CREATE TABLE shown ({columns}) WITH ('connector' = 'print')")
    text = """
        INSERT INTO shown VALUES
        (CAST(20.1 AS FLOAT), 1e10, TIMESTAMP '2024-01-01 12:00:00.000000001',
         TO_TIMESTAMP_LTZ(5000, 3), TIME '10:00:00', X'01FF', ARRAY[CAST(0.1 AS FLOAT)],
         MAP['k', 1e0], ROW(1, CAST(0.3 AS FLOAT)), 1.50, TRUE, DATE '2024-01-02'),
        (NULL, NULL, TIMESTAMP '2024-01-01 12:00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL)"""
    statement: Any = parse_statement(text)
    graph = env.session.program.graph_of(
        env.session.sinks([env.session.target(statement, text)]), "test"
    )
    MiniCluster(graph).run()
    lines = [line.rpartition("> ")[2] for line in capsys.readouterr().out.splitlines()]
    assert sorted(line for line in lines if line.startswith("+I")) == [
        (
            "+I[20.1, 1.0E10, 2024-01-01T12:00:00.000000001, 1970-01-01T00:00:05Z, 10:00, [1, -1], "
            "[0.1], {k=1.0}, +I[1, 0.3], 1.50, true, 2024-01-02]"
        ),
        f"+I[null, null, 2024-01-01T12:00{', null' * 9}]",
    ]


def test_a_sink_with_another_key_gets_a_materializer(
    env: StreamTableEnvironment, stream_env: StreamExecutionEnvironment
) -> None:
    env.create_temporary_view("people", people(stream_env))
    env.execute_sql(
        "CREATE TABLE by_count (n BIGINT, name STRING, PRIMARY KEY (n) NOT ENFORCED) "
        "WITH ('connector' = 'blackhole')"
    )
    text = (
        "INSERT INTO by_count SELECT COUNT(*), name FROM people GROUP BY name "
        "ON CONFLICT DO DEDUPLICATE"
    )
    plan = env.explain_sql(text, "CHANGELOG_MODE")
    sink = "upsertMaterialize=[true], conflictStrategy=[DEDUPLICATE], changelogMode=[NONE])"
    assert f"fields=[n, name], {sink}" in plan
    assert "select=[name, COUNT(*) AS EXPR$0], changelogMode=[I,UB,UA])" in plan
    statement: Any = parse_statement(text)
    session = env.session
    graph = session.program.graph_of(session.sinks([session.target(statement, text)]), "test")
    assert "SinkMaterializer" in {node.name for node in graph.nodes.values()}
    MiniCluster(graph, limits=iter([1] * 100)).run()


def test_a_query_runs_on_the_local_engine(tmp_path: Path) -> None:
    env = environment(2)
    with env.execute_sql("SELECT x, x * 2 AS y FROM (VALUES (1), (2)) AS t (x)").collect() as rows:
        found: list[Any] = list(rows)
    assert sorted(map(tuple, found)) == [(1, 2), (2, 4)]
    env.execute_sql(
        "CREATE TABLE kept WITH ('connector' = 'filesystem', 'format' = 'json', "
        f"'path' = '{tmp_path}') AS SELECT 'a' AS name, 1 AS n"
    ).wait()
    described: list[Any] = list(env.execute_sql("DESCRIBE kept").collect())
    assert tuple(described[0])[:2] == ("name", "CHAR(1)")
    files = [path.read_text() for path in tmp_path.glob("*.json*")]
    assert files == ['{"name":"a","n":1}\n']


def test_a_statement_set_reads_what_its_statements_share_once(env: StreamTableEnvironment) -> None:
    env.execute_sql("CREATE TABLE t1 (n BIGINT) WITH ('connector' = 'blackhole')")
    env.execute_sql("CREATE TABLE t2 (n BIGINT) WITH ('connector' = 'blackhole')")
    shared = env.sql_query("SELECT COUNT(*) AS n FROM (VALUES (1), (2)) AS t (x)")
    env.create_temporary_view("shared", shared)
    statements = env.create_statement_set()
    statements.add_insert_sql("INSERT INTO t1 SELECT n FROM shared")
    statements.add_insert("t2", shared)
    graph = env.session.program.graph_of(env.session.sinks(statements._targets), "test")
    names = Counter(node.name for node in graph.nodes.values())
    assert names["GroupAggregate"] == 1
    assert names["Sink: default_catalog.default_database.t1"] == 1
    assert names["Sink: default_catalog.default_database.t2"] == 1


@pytest.mark.both_engines
def test_names_of_operators_with_state_stay_when_a_filter_is_added(
    env: StreamTableEnvironment,
) -> None:
    env.execute_sql("CREATE TABLE g (a INT, b INT) WITH ('connector' = 'datagen')")

    def uid(query: str) -> str:
        end = env.session.collected(env.sql_query(query).plan, "/nowhere")
        graph = env.session.program.graph_of([end], "test")
        return next(node.uid for node in graph.nodes.values() if node.name == "GroupAggregate")

    plain = uid("SELECT a, COUNT(*) FROM g GROUP BY a")
    assert uid("SELECT a, COUNT(*) + 1 FROM g WHERE b > 3 GROUP BY a") == plain
    assert uid("SELECT b, COUNT(*) FROM g GROUP BY b") != plain


@pytest.mark.both_engines
def test_a_changed_query_goes_on_at_another_parallelism(tmp_path: Path) -> None:
    lines = "".join(f'{{"a": {i % 7}, "b": {i}}}\n' for i in range(70))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text(lines)

    def graph(parallelism: int, query: str) -> Any:
        env = environment(parallelism)
        env.execute_sql(
            "CREATE TABLE t (a INT, b INT) WITH ('connector' = 'filesystem', "
            f"'path' = '{tmp_path / 'in'}', 'format' = 'json')"
        )
        end = env.session.collected(env.sql_query(query).plan, str(tmp_path / "out"))
        return env.session.program.graph_of([end], "test")

    before = graph(1, "SELECT a, SUM(b) AS s FROM t GROUP BY a")
    MiniCluster(before, tmp_path / "state", limits=iter([100] * 100)).run(max_epochs=3)
    after = graph(3, "SELECT a, SUM(b) AS s FROM t WHERE b >= 0 GROUP BY a")
    MiniCluster(after, tmp_path / "state", limits=iter([100] * 100)).run()
    wanted = Counter((key, sum(range(key, 70, 7))) for key in range(7))
    assert materialised(read_collected(tmp_path / "out")) == wanted


@pytest.mark.both_engines
def test_the_table_api_makes_the_plans_of_sql(tmp_path: Path) -> None:
    env = environment(2)
    table = env.from_elements([(1, "a", 2.0), (2, "b", 4.0), (3, "a", 6.0)], ["id", "k", "v"])
    other = env.from_elements([("a", "first"), ("c", "third")], ["key", "word"])
    means = table.group_by(col("k")).select(
        col("k"), col("v").avg.alias("mean"), col("id").count_distinct.alias("n")
    )
    assert result(means, tmp_path / "1") == Counter({("a", 4.0, 2): 1, ("b", 4.0, 1): 1})
    joined = table.left_outer_join(other, col("k") == col("key")).select(
        col("id"), call("UPPER", col("word"))
    )
    assert result(joined, tmp_path / "2") == Counter(
        {(1, "FIRST"): 1, (2, None): 1, (3, "FIRST"): 1}
    )
    top = table.order_by(col("v").desc).fetch(1).add_columns((col("v") * lit(10)).alias("w"))
    assert result(top.drop_columns("k"), tmp_path / "3") == Counter({(3, 6.0, 60.0): 1})
    both = table.select(col("k")).union(other.select(col("key")))
    assert result(both, tmp_path / "4") == Counter({("a",): 1, ("b",): 1, ("c",): 1})
    named = table.rename_columns(col("v").alias("x")).where(col("x").between(3, 5))
    assert named.get_resolved_schema().get_column_names() == ["id", "k", "x"]
    assert result(named, tmp_path / "5") == Counter({(2, "b", 4.0): 1})


@pytest.mark.both_engines
def test_frames_of_pandas_become_tables(tmp_path: Path) -> None:
    env = environment(1)
    frame = pd.DataFrame({"a": [1, 2, 2], "b": ["x", "y", None]})
    table = env.from_pandas(frame)
    assert [str(kind) for kind in table.get_resolved_schema().types] == ["BIGINT", "STRING"]
    counts = table.group_by(col("a")).select(col("a"), col("b").count.alias("n"))
    assert result(counts, tmp_path) == Counter({(1, 1): 1, (2, 1): 1})


def test_rows_of_arrow_become_tables_and_come_back(tmp_path: Path) -> None:
    env = environment(1)
    columns = {
        "a": pa.array([1, None, 3, 3], pa.int32()),
        "b": pa.array(["x", "y", None, "z"]),
        "c": pa.array([[1], [], None, [2, None]], pa.list_(pa.int64())),
        "d": pa.array([Decimal("1.50"), None, Decimal("2.25"), None], pa.decimal128(10, 2)),
        "e": pa.array([0, 1, None, 2], pa.timestamp("ms")),
        "f": pa.array([{"x": 1}, None, {"x": None}, {"x": 2}], pa.struct({"x": pa.int64()})),
    }
    whole = pa.table(columns)
    cut = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    table = env.from_arrow(cut)
    assert [str(kind) for kind in table.get_resolved_schema().types] == [
        "INT",
        "STRING",
        "ARRAY<BIGINT>",
        "DECIMAL(10, 2)",
        "TIMESTAMP(3)",
        "ROW<`x` BIGINT>",
    ]
    assert table.to_arrow().equals(whole)
    counts = table.group_by(col("a")).select(col("a"), col("b").count.alias("n"))
    found = counts.to_arrow()
    assert found.schema.types == [pa.int32(), pa.int64()]
    assert sorted(found.to_pylist(), key=str) == [
        {"a": 1, "n": 1},
        {"a": 3, "n": 1},
        {"a": None, "n": 1},
    ]
    batch = whole.select(["b"]).to_batches()[0]
    assert result(env.from_arrow(batch, ["t"]), tmp_path)[None,] == 1
    assert env.from_arrow(whole.slice(0, 0)).to_arrow().num_rows == 0
    with pytest.raises(
        ProgramError, match=r"from_arrow\(\) takes a pyarrow.Table or a RecordBatch"
    ):
        env.from_arrow([1, 2])


def test_types_of_elements_are_inferred_as_in_pyflink(
    env: StreamTableEnvironment, tmp_path: Path
) -> None:
    rows = [(Decimal("1.5"), {"a": 1}, [{"b": True}], Row(1, 2.5)), (None, {"c": None}, None, None)]
    table = env.from_elements(rows, ["a", "b", "c", "d"])
    assert [str(kind) for kind in table.get_resolved_schema().types] == [
        "DECIMAL(38, 18)",
        "MAP<STRING NOT NULL, BIGINT>",
        "ARRAY<MAP<STRING NOT NULL, BOOLEAN>>",
        "ROW<`_1` BIGINT, `_2` DOUBLE>",
    ]
    shown = table.select(col("a"), col("b").at("a"), col("c").at(1).at("b"), col("d").get("_2"))
    assert result(shown, tmp_path) == Counter(
        {(Decimal("1.5"), 1, True, 2.5): 1, (None, None, None, None): 1}
    )
    typed = DataTypes.ROW(
        [DataTypes.FIELD("t", DataTypes.TIMESTAMP(3)), DataTypes.FIELD("u", DataTypes.TIME())]
    )
    when = dt.datetime(1969, 1, 1, 1, 2, 3, 456_789)  # noqa: DTZ001 - a TIMESTAMP
    cut = env.from_elements([(when, dt.time(1, 2, 3, 999_999))], typed)
    expected = (when.replace(microsecond=456_000), dt.time(1, 2, 3, 999_000))
    (tmp_path / "cut").mkdir()
    assert result(cut, tmp_path / "cut") == Counter({expected: 1})


def test_frames_of_results_may_have_nan_taken_back() -> None:
    env = environment(1)
    rows = [("a", float("nan")), ("a", 1.0), ("b", float("nan")), ("a", 2.0)]
    table = env.from_elements(rows, ["k", "x"])
    sums = table.group_by(col("k")).select(col("k"), col("x").sum.alias("s"), col("x").count)
    frame = sums.to_pandas().sort_values("k")
    assert frame["k"].tolist() == ["a", "b"]
    assert frame["s"].isna().all()
    assert frame.iloc[:, 2].tolist() == [3, 1]


def test_expressions_have_no_truth_value() -> None:
    with pytest.raises(ProgramError, match="write & for AND"):
        bool(col("a") == 1)


def test_views_hold_tables_and_names_are_suggested(env: StreamTableEnvironment) -> None:
    env.create_temporary_view("numbers", env.from_elements([(1,)], ["n"]))
    assert env.list_temporary_views() == ["numbers"]
    with pytest.raises(ValidationError, match="Did you mean 'numbers'"):
        env.from_path("number")
    assert env.drop_temporary_view("numbers")
    assert env.list_tables() == []


def test_results_of_statements_are_printed_in_flink_s_layout(
    env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    env.execute_sql(
        "CREATE TABLE t (a INT, b STRING NOT NULL) WITH ('connector' = 'print')"
    ).print()
    env.execute_sql("DESCRIBE t").print()
    assert capsys.readouterr().out == (
        "OK\n"
        "+------+--------+-------+--------+--------+-----------+\n"
        "| name |   type |  null |    key | extras | watermark |\n"
        "+------+--------+-------+--------+--------+-----------+\n"
        "|    a |    INT |  TRUE | <NULL> | <NULL> |    <NULL> |\n"
        "|    b | STRING | FALSE | <NULL> | <NULL> |    <NULL> |\n"
        "+------+--------+-------+--------+--------+-----------+\n"
        "2 rows in set\n"
    )
