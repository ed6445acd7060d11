"""Sinks of lakehouse tables: what others commit meanwhile, partitions, columns, the page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.databases.targets import RESULT, TARGETS, LakeTarget

from millstream.common import Row, Types
from millstream.connectors.lakehouse.delta import DeltaSink, partition_text
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, WriterContext
from millstream.crash_points import arm
from millstream.errors import PermanentSinkError, SinkError
from millstream.graph.validation import validate_connectors
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.contracts.sink import Committable, Sink

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "lakehouse.md"
LAKES = ["delta", "delta-partitions", "iceberg", "iceberg-partitions"]


@pytest.fixture(params=LAKES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTarget:
    made = TARGETS[request.param](str(tmp_path / "t"))
    assert isinstance(made, LakeTarget)
    made.create()
    return made


@pytest.fixture
def at_point() -> Iterator[Callable[[str, Callable[[], object]], None]]:
    """Run something once where a crash point is passed."""
    waiting: list[Callable[[], object]] = []

    def run(name: str) -> None:
        del name
        if waiting:
            waiting.pop()()

    def register(name: str, action: Callable[[], object]) -> None:
        waiting.append(action)
        arm(name, run)

    yield register
    arm("")


def written(sink: Sink, keys: str, epoch: int = 1, *, job: str = "job") -> list[Committable]:
    writer = sink.create_writer(WriterContext(job, "sink", 0, 1, epoch, "a", generation=1))
    rows: list[object] = [Row(key=key, n=n, id=epoch) for n, key in enumerate(keys)]
    writer.write(Batch(RESULT, values=rows))
    return list(writer.prepare_commit())


def commit(
    sink: Sink, files: Sequence[Committable], epoch: int = 1, *, published: bool = True
) -> None:
    committer = sink.create_committer()
    assert committer is not None
    committer.commit(
        [CommitRequest(each, epoch, retried=True, published=published) for each in files]
    )


def keys(target: LakeTarget) -> str:
    return "".join(sorted(str(key) for (key,) in target.read("SELECT key FROM results")))


def test_a_commit_that_others_are_ahead_of(
    target: LakeTarget, at_point: Callable[[str, Callable[[], object]], None]
) -> None:
    sink, other = target.sink(), target.sink()
    theirs = written(other, "xy", job="other")
    at_point("lakehouse.commit.before", lambda: commit(other, theirs))
    commit(sink, written(sink, "aab"))
    assert keys(target) == "aabxy"


def test_a_commit_that_arrives_while_the_next_run_makes_it(
    target: LakeTarget, at_point: Callable[[str, Callable[[], object]], None]
) -> None:
    """An older run was stopped within its commit: the files are added once."""
    sink = target.sink()
    files = written(sink, "aab")
    at_point("lakehouse.commit.before", lambda: commit(target.sink(), files))
    commit(sink, files)
    assert keys(target) == "aab"


def test_batches_become_one_row_group(tmp_path: Path) -> None:
    target = TARGETS["delta"](str(tmp_path / "t"))
    assert isinstance(target, LakeTarget)
    target.create()
    writer = target.sink().create_writer(WriterContext("job", "sink", 0, 1, 1, "a"))
    for n in range(20):
        writer.write(Batch(RESULT, values=[Row(key="a", n=n, id=1)]))
    (file,) = list(writer.prepare_commit())
    assert isinstance(file, dict)
    metadata = pq.read_metadata(target.directory / file["path"])
    assert (metadata.num_rows, metadata.num_row_groups) == (20, 1)


def test_orphans_are_looked_for_once(target: LakeTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of the table is not read after each checkpoint for what this run has committed."""
    sink: Any = target.sink()
    committer = sink.create_committer()
    looks: list[str] = []
    look = type(sink.table).look

    def counted(table: Any) -> Any:
        looks.append("look")
        return look(table)

    monkeypatch.setattr(type(sink.table), "look", counted)
    lost = written(sink, "x", 1)
    for epoch in range(1, 6):
        files = written(sink, "ab", epoch)
        committer.commit([CommitRequest(each, epoch, retried=False) for each in files])
        committer.abort_orphans("job", "sink", files, 1)
    assert lost
    assert target.leftovers() == []
    assert len(looks) == 5 + 1


def test_other_output_of_a_checkpoint(target: LakeTarget) -> None:
    sink = target.sink()
    commit(sink, written(sink, "ab", 3), 3)
    with pytest.raises(PermanentSinkError, match="holds other output of this checkpoint"):
        commit(sink, written(sink, "ab", 3), 3)
    with pytest.raises(PermanentSinkError, match="holds checkpoint 3 of this job"):
        commit(sink, written(sink, "c", 2), 2)
    assert keys(target) == "ab"
    # At-least-once: a run that died before it published has written the checkpoint as well.
    commit(sink, written(sink, "ab", 3), 3, published=False)
    assert keys(target) == "aabb"


def test_a_table_that_others_have_compacted(tmp_path: Path) -> None:
    target = TARGETS["delta"](str(tmp_path / "t"))
    target.create()
    sink: Any = target.sink()
    first, second = written(sink, "ab"), written(sink, "c", 2)
    commit(sink, first)
    commit(sink, second, 2)
    deltalake.DeltaTable(f"{target.address}-lake").optimize.compact()
    commit(sink, second, 2)
    assert sorted(target.read("SELECT key FROM results")) == [("a",), ("b",), ("c",)]


def test_files_follow_the_size_and_the_partition(target: LakeTarget) -> None:
    sink = target.sink(target_file_size=1)
    assert len(written(sink, "aaaa")) == 1
    writer = sink.create_writer(WriterContext("job", "sink", 0, 1, 1, "a"))
    for key in "ab":
        writer.write(Batch(RESULT, values=[Row(key=key, n=1, id=1)]))
    files: list[Any] = list(writer.prepare_commit())
    assert len(files) == 2
    assert sum(file["rows"] for file in files) == 2


def test_statistics_find_the_file(tmp_path: Path) -> None:
    target = TARGETS["iceberg"](str(tmp_path / "t"))
    assert isinstance(target, LakeTarget)
    target.create()
    for epoch, letters in enumerate(("abc", "xyz"), 1):
        commit(target.sink(), written(target.sink(), letters, epoch), epoch)
    opened: Any = target._open()  # type: ignore[attr-defined]
    assert len(list(opened.scan(row_filter="key > 'd'").plan_files())) == 1


def test_columns_that_do_not_fit(target: LakeTarget) -> None:
    sink = target.sink()
    sink.validate()
    with pytest.raises(PermanentSinkError, match="has no column 'word'"):
        sink.validate_input(Types.ROW_NAMED(["word"], [Types.STRING()]))
    with pytest.raises(PermanentSinkError, match="column 'n' is int64, the records have list"):
        sink.validate_input(
            Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LIST(Types.LONG())])
        )
    with pytest.raises(PermanentSinkError, match="takes rows with columns"):
        sink.validate_input(Types.PICKLED_BYTE_ARRAY())
    texts = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.STRING()])
    writer = sink.create_writer(WriterContext("job", "sink", 0, 1, 1, "a"))
    with pytest.raises(PermanentSinkError, match=r"(?s)checkpoint 1|column 'n'"):
        writer.write(Batch(texts, values=[Row(key="a", n="many")]))
    writer.abort()
    assert target.leftovers() == []


def test_a_table_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="there is no Delta table"):
        DeltaSink(tmp_path / "none").validate()
    made = DeltaSink(tmp_path / "new", create_with=RESULT.arrow_schema, partition_by=["key"])
    made.validate()
    made.validate()
    assert deltalake.DeltaTable(str(tmp_path / "new")).metadata().partition_columns == ["key"]


def test_values_of_partitions() -> None:
    assert partition_text(None) is None
    assert partition_text(value=True) == "true"
    assert partition_text(7) == "7"
    with pytest.raises(PermanentSinkError, match="cannot have the value"):
        partition_text([1])


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), scope)
    graph = scope["env"].get_job_graph("lake")
    validate_connectors(graph)
    MiniCluster(graph, tmp_path / "checkpoints").run()
    found: pa.Table = deltalake.DeltaTable("lake/counts").to_pyarrow_table()
    assert sorted(map(tuple, map(dict.values, found.to_pylist()))) == [
        ("be", 2),
        ("or", 1),
        ("to", 2),
    ]


def test_a_table_that_is_made_again(tmp_path: Path) -> None:
    """A later run in the same process has its columns and partitions."""
    for generation, columns in enumerate((["key"], ["key", "n"]), 1):
        schema = pa.schema([(name, pa.string()) for name in columns])
        sink = DeltaSink(tmp_path / "t", create_with=schema, partition_by=columns[1:])
        sink.validate()
        kind = Types.ROW_NAMED(columns, [Types.STRING()] * len(columns))
        sink.validate_input(kind)
        writer = sink.create_writer(WriterContext("job", "s", 0, 1, 1, "a", generation=generation))
        row = dict.fromkeys(columns, "a")
        writer.write(Batch(kind, values=[Row(**row)]))
        commit(sink, writer.prepare_commit())
        opened = deltalake.DeltaTable(str(tmp_path / "t"))
        assert opened.to_pyarrow_table().to_pylist() == [row]
        shutil.rmtree(tmp_path / "t")


def test_what_delta_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="takes % in"):
        DeltaSink(tmp_path / "a%20b")
    sink = DeltaSink(tmp_path / "t", create_with=RESULT.arrow_schema)
    sink.validate()
    deltalake.DeltaTable(str(tmp_path / "t")).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(PermanentSinkError, match=r"has delta\.constraints\.positive"):
        sink.validate_input(RESULT)


def test_files_of_earlier_versions_are_no_orphans(tmp_path: Path) -> None:
    """What a compaction has replaced is read by those who ask for the version before."""
    target = TARGETS["delta"](str(tmp_path / "t"))
    target.create()
    sink: Any = target.sink()
    for epoch, keys_of in ((1, "ab"), (2, "c")):
        commit(sink, written(sink, keys_of, epoch), epoch)
    path = f"{target.address}-lake"
    deltalake.DeltaTable(path).optimize.compact()
    written(sink, "lost", 3)
    committer = sink.create_committer()
    committer.abort_orphans("job", "sink", [], 1)
    assert deltalake.DeltaTable(path, 2).to_pyarrow_table().num_rows == 3
    assert len(list(Path(path, "data").glob("*/*"))) == 2


def test_iceberg_partitions_that_change_before_the_commit(tmp_path: Path) -> None:
    target = TARGETS["iceberg-partitions"](str(tmp_path / "t"))
    target.create()
    sink: Any = target.sink()
    files = written(sink, "ab")
    opened: Any = target._open()  # type: ignore[attr-defined]
    with opened.update_spec() as partitions:
        partitions.add_identity("n")
    with pytest.raises(PermanentSinkError, match="Set them back"):
        commit(sink, files)
    with opened.update_spec() as partitions:
        partitions.remove_field("n")
    commit(sink, files)
    assert sorted(target.read("SELECT key FROM results")) == [("a",), ("b",)]


def test_workers_that_are_forked_of_a_driver_with_deltalake(tmp_path: Path) -> None:
    """The library does not run there; the second job has another table in its place."""
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for name, columns, values in (("a", "k STRING", "'x'"), ("b", "k STRING, n INT", "'x', 1")):
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH"
            f" ('connector' = 'delta', 'table-path' = '{tmp_path}/lake')"
        )
        tables.execute_sql(f"INSERT INTO {name} VALUES ({values})").wait()
        with tables.execute_sql(f"SELECT * FROM {name}").collect() as rows:
            assert ["x" in str(row) for row in rows] == [True]
        shutil.rmtree(tmp_path / "lake")
