"""Programs of the Table API in the style of PyFlink's examples, and what they give."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment, materialised

from millstream.common import Row, RowKind, Types
from millstream.configuration.option import ConfigOptions
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, ProgramError
from millstream.table import (
    DataTypes,
    FormatDescriptor,
    Schema,
    SqlDialect,
    StreamTableEnvironment,
    TableConfig,
    TableDescriptor,
)
from millstream.table.expressions import col, lit, row_interval
from millstream.table.udf import udf, udtf
from millstream.table.window import Over, Session, Slide, Tumble
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.table import Table, TableEnvironment

START = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - a TIMESTAMP
#: Second, user, amount.
ORDERS = [(0, "ann", 3), (70, "bob", 5), (80, "ann", 7), (200, "ann", 11), (210, "bob", 2)]


def result(table: Table, directory: Path) -> Counter[tuple[Any, ...]]:
    """What is there of a table at the end."""
    session = table._environment.session
    end = session.collected(table.plan, str(directory))
    MiniCluster(session.program.graph_of([end], "test"), limits=iter([2] * 100)).run()
    return materialised(read_collected(directory))


def orders() -> Table:
    """The orders, with event time."""
    stream = StreamExecutionEnvironment.get_execution_environment()
    stream.set_parallelism(2)
    rows = [(START + dt.timedelta(seconds=second), user, amount) for second, user, amount in ORDERS]
    kind = Types.ROW_NAMED(
        ["ts", "user", "amount"], [Types.SQL_TIMESTAMP(), Types.STRING(), Types.INT()]
    )
    schema = (
        Schema.new_builder()
        .column("ts", DataTypes.TIMESTAMP(3))
        .column("user", "STRING")
        .column("amount", DataTypes.INT())
        .watermark("ts", "ts - INTERVAL '10' SECOND")
        .build()
    )
    env = StreamTableEnvironment.create(stream)
    return env.from_data_stream(stream.from_collection(rows, kind), schema)


def at(second: int) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def tumbling(table: Table) -> Table:
    return (
        table.window(Tumble.over(lit(1).minutes).on(col("ts")).alias("w"))
        .group_by(col("w"), col("user"))
        .select(col("user"), col("w").start, col("w").end, col("amount").sum.alias("sum"))
    )


def sliding(table: Table) -> Table:
    return (
        table.window(Slide.over(lit(2).minutes).every(lit(1).minutes).on(col("ts")).alias("w"))
        .group_by(col("w"))
        .select(col("w").start, col("amount").count)
    )


def sessions(table: Table) -> Table:
    return (
        table.window(Session.with_gap(lit(90).seconds).on(col("ts")).alias("w"))
        .group_by(col("w"), col("user"))
        .select(col("user"), col("w").start, col("w").end, col("amount").max)
    )


def rows_around(table: Table) -> Table:
    return table.over_window(
        Over.partition_by(col("user")).order_by(col("ts")).preceding(row_interval(1)).alias("w")
    ).select(col("user"), col("amount").sum.over(col("w")))


@pytest.mark.both_engines(every=2)
@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (
            tumbling,
            [
                ("ann", at(0), at(60), 3),
                ("ann", at(60), at(120), 7),
                ("bob", at(60), at(120), 5),
                ("ann", at(180), at(240), 11),
                ("bob", at(180), at(240), 2),
            ],
        ),
        (sliding, [(at(-60), 1), (at(0), 3), (at(60), 2), (at(120), 2), (at(180), 2)]),
        (
            sessions,
            [
                ("ann", at(0), at(170), 7),
                ("ann", at(200), at(290), 11),
                ("bob", at(70), at(160), 5),
                ("bob", at(210), at(300), 2),
            ],
        ),
        (rows_around, [("ann", 3), ("ann", 10), ("ann", 18), ("bob", 5), ("bob", 7)]),
    ],
)
def test_windows(
    program: Callable[[Table], Table], wanted: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    assert result(program(orders()), tmp_path) == Counter(wanted)


@pytest.mark.both_engines(every=2)
@pytest.mark.parametrize(("size", "slide"), [(150, 60), (20, 70), (50, 20)])
def test_oracle_slides_need_not_make_up_the_size(size: int, slide: int, tmp_path: Path) -> None:
    """As PyFlink's example of sliding windows, of 5 seconds every 2."""
    window = Slide.over(lit(size).seconds).every(lit(slide).seconds).on(col("ts")).alias("w")
    table = (
        orders()
        .window(window)
        .group_by(col("w"), col("user"))
        .select(col("user"), col("w").start, col("w").end, col("amount").sum)
    )
    sums: Counter[tuple[Any, ...]] = Counter()
    offset = int(START.replace(tzinfo=dt.UTC).timestamp()) % slide
    for second, user, amount in ORDERS:
        for start in range(-offset - 10 * slide, 300, slide):
            if start <= second < start + size:
                sums[user, at(start), at(start + size)] += amount
    assert result(table, tmp_path) == Counter([(*key, total) for key, total in sums.items()])


PAIR = DataTypes.ROW(
    [DataTypes.FIELD("id", DataTypes.BIGINT()), DataTypes.FIELD("word", DataTypes.STRING())]
)


@udf(result_type=PAIR)
def louder(id_: int, word: str) -> Row:
    return Row(id_ * 10, word.upper())


@udf(result_type=PAIR)
def louder_row(row: Row) -> Row:
    return Row(row.id * 10, row["word"].upper())


@udtf(result_types=PAIR)
def letters(row: Row) -> Any:
    for letter in row.word:
        if letter != "x":
            yield row.id, letter


@udtf(result_types=[DataTypes.STRING()])
def split(text: str) -> Any:
    return text.split("-") if text else None


@pytest.fixture
def env() -> TableEnvironment:
    return environment(2)


@pytest.mark.both_engines
def test_functions_over_rows(env: TableEnvironment, tmp_path: Path) -> None:
    table = env.from_elements([(1, "ab"), (2, "x"), (3, "c-d")], ["id", "word"])
    called = table.map(louder(col("id"), col("word")))
    assert called.plan.row.names == ["id", "word"]
    loud = Counter([(10, "AB"), (20, "X"), (30, "C-D")])
    assert result(called, tmp_path / "1") == loud
    assert result(table.map(louder_row).alias("n", "w"), tmp_path / "2") == loud
    assert result(table.flat_map(letters).where(col("id") < 3), tmp_path / "3") == Counter(
        [(1, "a"), (1, "b")]
    )
    parts = table.join_lateral(split(col("word")).alias("part")).select(col("id"), col("part"))
    assert result(parts, tmp_path / "4") == Counter([(1, "ab"), (2, "x"), (3, "c"), (3, "d")])
    flat = table.select(louder(col("id"), col("word")).alias("r")).select(col("r").flatten)
    assert flat.plan.row.names == ["r$id", "r$word"]
    assert result(flat, tmp_path / "5") == loud


def test_null_is_not_true_and_not_false(env: TableEnvironment, tmp_path: Path) -> None:
    table = env.from_elements(
        [(1,), (None,), (3,)], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())])
    )
    assert result(table.where(~(col("a") > 2)), tmp_path) == Counter([(1,), (None,)])


@pytest.mark.both_engines
def test_a_word_count_by_descriptors(env: TableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "words.csv").write_text("flink is\nmill is\n")
    schema = Schema.new_builder().column("line", DataTypes.STRING()).build()
    descriptor = (
        TableDescriptor.for_connector("filesystem")
        .schema(schema)
        .option(ConfigOptions.key("path").string_type().no_default_value(), tmp_path / "in")
        .format(
            FormatDescriptor.for_format("csv")
            .option(ConfigOptions.key("field-delimiter").string_type().no_default_value(), ";")
            .option(
                ConfigOptions.key("ignore-parse-errors").boolean_type().default_value(False), True
            )
            .build(),
            ConfigOptions.key("format").string_type().no_default_value(),
        )
        .build()
    )
    assert "PARTITIONED" not in str(descriptor)
    assert str(descriptor).startswith("(\n  `line` STRING\n)\nWITH (")
    assert descriptor.get_options() == {
        "connector": "filesystem",
        "path": str(tmp_path / "in"),
        "format": "csv",
        "csv.field-delimiter": ";",
        "csv.ignore-parse-errors": "true",
    }
    lines = env.from_descriptor(descriptor)
    assert env.list_tables() == []

    @udtf(result_types=[DataTypes.STRING()])
    def words(line: str) -> Any:
        yield from line.split()

    counts = (
        lines.flat_map(words(col("line")).alias("word"))
        .group_by(col("word"))
        .select(col("word"), lit(1).count.alias("n"))
    )
    assert result(counts, tmp_path / "out") == Counter([("flink", 1), ("is", 2), ("mill", 1)])
    pipeline = counts.insert_into(TableDescriptor.for_connector("print").build())
    assert "Sink(table=[default_catalog.default_database.*anonymous_print$2*]" in pipeline.explain()
    assert pipeline.get_sink_identifier() is None


def test_an_option_that_does_not_take_its_value_is_refused_by_a_descriptor() -> None:
    rows = ConfigOptions.key("number-of-rows").int_type().no_default_value()
    with pytest.raises(ConfigurationError, match="number-of-rows is 'many'; it must be a whole"):
        TableDescriptor.for_connector("datagen").option(rows, "many")


@pytest.fixture
def stream_env() -> StreamExecutionEnvironment:
    made = StreamExecutionEnvironment.get_execution_environment()
    made.set_parallelism(2)
    return made


def collected(stream: Any, directory: Path) -> list[Any]:
    stream.sink_to(CollectSink(str(directory)))
    graph = stream.get_execution_environment().get_job_graph("test")
    MiniCluster(graph, limits=iter([1] * 100)).run()
    return list(read_collected(directory))


PEOPLE = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


@pytest.mark.both_engines
def test_streams_in_older_words(stream_env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env = StreamTableEnvironment.create(stream_env)
    stream = stream_env.from_collection([(1, "ann"), (2, "bob"), (3, "ann")], PEOPLE)
    by_name = env.from_data_stream(stream, col("name"), col("id").alias("number"))
    assert by_name.plan.row.names == ["name", "number"]
    by_position = env.from_data_stream(stream, col("a"), col("b"))
    assert by_position.plan.row.names == ["a", "b"]
    with pytest.raises(ProgramError, match="3 names for the 2 columns"):
        env.from_data_stream(stream, col("a"), col("b"), col("c"))
    with pytest.raises(ProgramError, match="take a Schema"):
        env.from_data_stream(stream, col("name"), col("ts").rowtime)
    appended = env.to_append_stream(by_position, Types.TUPLE([Types.LONG(), Types.STRING()])).map(
        lambda row: row[0] * 2, output_type=Types.LONG()
    )
    counts = by_name.group_by(col("name")).select(col("name"), col("number").count.alias("n"))
    retracted = env.to_retract_stream(counts, Types.ROW([Types.STRING(), Types.LONG()]))
    with pytest.raises(ProgramError, match="does not have 2 fields"):
        env.to_append_stream(by_position, Types.ROW([Types.LONG()]))
    appended.sink_to(CollectSink(str(tmp_path / "appended")))
    found = [(kind, tuple(row)) for kind, row in collected(retracted, tmp_path / "retracted")]
    assert sorted(map(str, read_collected(tmp_path / "appended"))) == ["2", "4", "6"]
    assert Counter(found) == Counter(
        {
            (True, ("ann", 1)): 1,
            (False, ("ann", 1)): 1,
            (True, ("ann", 2)): 1,
            (True, ("bob", 1)): 1,
        }
    )


@pytest.mark.both_engines
def test_statements_of_a_set_become_ends_of_the_program(
    stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env = StreamTableEnvironment.create(stream_env)
    env.create_temporary_view("people", stream_env.from_collection([(1, "ann")], PEOPLE))
    env.execute_sql(f"""
        CREATE TABLE written (id INT, name STRING)
        WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{tmp_path / "out"}')
    """)
    statements = env.create_statement_set()
    statements.add(env.from_path("people").insert_into("written"))
    statements.attach_as_datastream()
    with pytest.raises(ProgramError, match="is empty"):
        statements.attach_as_datastream()
    stream = env.to_data_stream(env.from_path("people").select(col("id")))
    assert [tuple(row) for row in collected(stream, tmp_path / "stream")] == [(1,)]
    written = [each.read_text() for each in (tmp_path / "out").iterdir() if each.is_file()]
    assert [each.strip() for each in written] == ["1,ann"]


def test_options_have_names_of_their_own(env: TableEnvironment) -> None:
    config = env.get_config()
    config.set_idle_state_retention(dt.timedelta(hours=2))
    assert config.get("table.exec.state.ttl", "") == "7200000 ms"
    assert config.get_idle_state_retention() == dt.timedelta(hours=2)
    assert config.get_sql_dialect() is SqlDialect.DEFAULT
    config.set_sql_dialect(SqlDialect.HIVE)
    assert config.get_sql_dialect() is SqlDialect.HIVE
    with pytest.raises(ProgramError, match="'hive' is not in this release"):
        env.execute_sql("SELECT 1")
    assert config.get_max_generated_code_length() == 4000
    config.set_max_generated_code_length(32_000)
    assert config.get_max_generated_code_length() == 32_000
    assert TableConfig.get_default().to_map() == {}


def test_schemas_are_made_of_others() -> None:
    first = Schema.new_builder().column("a", "INT NOT NULL").primary_key("a").build()
    second = Schema.new_builder().from_schema(first).column_by_expression("b", "a + 1").build()
    resolved = environment().from_elements([(1,)], ["x"]).get_resolved_schema()
    third = Schema.new_builder().from_resolved_schema(resolved).build()
    assert str(second) == (
        "(\n  `a` [INT NOT NULL],\n  `b` AS [a + 1],\n"
        "  CONSTRAINT `PK_a` PRIMARY KEY (`a`) NOT ENFORCED\n)"
    )
    assert str(third) == "(\n  `x` BIGINT\n)"


def test_kinds_of_rows_are_not_lost_on_the_way_into_a_changelog(
    stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env = StreamTableEnvironment.create(stream_env)
    table = env.from_data_stream(stream_env.from_collection([(1, "a"), (2, "a")], PEOPLE))
    counts = table.group_by(col("name")).select(col("name"), col("id").sum.alias("s"))
    kinds = [row.get_row_kind() for row in collected(env.to_changelog_stream(counts), tmp_path)]
    assert kinds == [RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]


@pytest.mark.both_engines
def test_columns_are_attributes_and_tables_have_names_in_statements(
    env: TableEnvironment, tmp_path: Path
) -> None:
    table = env.from_elements([(1, "mill"), (2, "stream"), (3, "mill")], ["id", "word"])
    with pytest.raises(AttributeError, match="has no column named 'words', it has: id, word"):
        table.words  # noqa: B018 - it is asked for
    mills = env.sql_query(f"SELECT id FROM {table} WHERE word = 'mill'")
    assert str(table) != str(mills)
    assert result(mills, tmp_path / "1") == Counter([(1,), (3,)])
    counts = table.group_by(table.word).select(table.word, table.id.count.alias("n"))
    assert result(counts, tmp_path / "2") == Counter([("mill", 2), ("stream", 1)])

    @udtf(result_types=[DataTypes.STRING()])
    def halves(row: Row) -> Any:
        yield row.word[:2]
        yield row[1][2:]

    joined = table.join_lateral(halves.alias("half")).select(col("half"))
    twice = Counter([("mi",), ("ll",)] * 2 + [("st",), ("ream",)])
    assert result(joined, tmp_path / "3") == twice
    named = table.flat_map(halves.alias("part"))
    assert named.plan.row.names == ["part"]
    assert halves.names == ()
    assert table.map(louder_row.alias("p", "q")).plan.row.names == ["p", "q"]


@pytest.mark.both_engines
def test_columns_are_computed_of_what_the_table_has_not(
    stream_env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    rows = [(1000, "ann", 1.5), (4000, "bob", 2.0), (3000, "ann", 4.0), (9000, "ann", 8.0)]
    stream = stream_env.from_collection(
        rows, Types.ROW([Types.LONG(), Types.STRING(), Types.DOUBLE()])
    )
    schema = (
        Schema.new_builder()
        .column_by_expression("ts", "TO_TIMESTAMP_LTZ(f0, 3)")
        .column("f1", DataTypes.STRING())
        .column("f2", DataTypes.DOUBLE())
        .watermark("ts", "ts - INTERVAL '3' SECOND")
        .build()
    )
    table = StreamTableEnvironment.create(stream_env).from_data_stream(stream, schema)
    named = table.alias("ts", "name", "price")
    assert named.get_schema().get_column_names() == ["ts", "name", "price"]
    sums = (
        named.window(Tumble.over(lit(5).seconds).on(named.ts).alias("w"))
        .group_by(named.name, col("w"))
        .select(named.name, named.price.sum.alias("s"))
    )
    assert result(sums, tmp_path) == Counter([("ann", 5.5), ("bob", 2.0), ("ann", 8.0)])
