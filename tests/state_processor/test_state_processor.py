"""State is read and written as data, and a job starts from what was written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.checkpoint import kept_program as program
from tests.checkpoint.test_savepoint import (
    COUNT,
    KEY_FILE,
    KEYS,
    NATIVE,
    PATH,
    finish,
    results,
    save,
    start,
    whole,
)
from tests.integration.job_runs import SplitsSource, collect, collected, environment

from millstream.common import SavepointFormatType, Time, Types
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.errors import CheckpointError, StateError
from millstream.state_processor import SavepointReader, SavepointWriter
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.datastream import RuntimeContext

#: What the operator of ``test_savepoint.py`` keeps.
REDUCED = "reduced"


@pytest.fixture(params=["canonical", "native", "checkpoints"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same state in all three forms."""
    kind = SavepointFormatType(request.param) if request.param != "checkpoints" else NATIVE
    path = save(tmp_path / "first", 2, kind)
    return tmp_path / "first" / "checkpoints" if request.param == "checkpoints" else path


def counts() -> Counter[int]:
    """How often each key came up to the savepoint."""
    return Counter(n % KEYS for n in range(28))


def name_of_state(reader: SavepointReader) -> str:
    (info,) = reader.states("count")
    return info.name


def test_oracle_keyed_state_is_what_was_read(saved: Path) -> None:
    with SavepointReader.read(saved) as reader:
        (info,) = reader.states("count")
        assert (info.operator, info.kind, info.entries) == ("count", "value", KEYS)
        table = reader.read_keyed_state("count", info.name)
        rows = dict(table.to_pandas()[["key", "value"]].itertuples(index=False))
        assert {key: value["f1"] for key, value in rows.items()} == counts()
        assert table.to_arrow().column_names == ["key", "value"]
        assert {row["key"]: row["value"] for row in table.rows()} == {
            key: (key, count) for key, count in counts().items()
        }
        assert reader.checkpoint_id == 1
        positions = reader.read_source_positions().to_pandas()
        assert positions["position"].sum() == 28


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    path = save(tmp_path / "first")
    with SavepointReader.read(path) as reader:
        with pytest.raises(StateError, match="no operator with uid 'x'; there are: "):
            reader.read_keyed_state("x", "y")
        with pytest.raises(StateError, match="operator 'count' has no state 'y'; there are: "):
            reader.read_keyed_state("count", "y")
    with pytest.raises(CheckpointError, match="there is no savepoint"):
        SavepointReader.read(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="is neither a savepoint nor"):
        SavepointReader.read(tmp_path)


def test_oracle_written_unchanged_it_has_the_same_results(tmp_path: Path, saved: Path) -> None:
    before = results(tmp_path / "first")
    with SavepointWriter.from_existing_savepoint(saved) as writer:
        written = writer.write(tmp_path / "written")
    finish(start(tmp_path / "second", 3, backend="rocksdb", settings={PATH: written}))
    assert before + results(tmp_path / "second") == whole()


def test_oracle_read_and_written_with_pandas_it_has_the_same_results(
    tmp_path: Path, saved: Path
) -> None:
    with SavepointReader.read(saved) as reader:
        name = name_of_state(reader)
        frame = reader.read_keyed_state("count", name).to_pandas()
    before = results(tmp_path / "first")
    with SavepointWriter.from_existing_savepoint(saved) as writer:
        written = writer.with_keyed_state("count", name, frame).write(tmp_path / "written")
    finish(start(tmp_path / "second", settings={PATH: written}))
    assert before + results(tmp_path / "second") == whole()


def test_changed_state_is_what_the_job_goes_on_from(tmp_path: Path) -> None:
    path = save(tmp_path / "first")
    with SavepointReader.read(path) as reader:
        name = name_of_state(reader)
    rows = [{"key": key, "value": {"f0": key, "f1": 1000}} for key in range(KEYS - 1)]
    with SavepointWriter.from_existing_savepoint(path) as writer:
        written = writer.with_keyed_state("count", name, rows).write(tmp_path / "written")
    finish(start(tmp_path / "second", settings={PATH: written}))
    found = results(tmp_path / "second")
    seen = Counter(n % KEYS for n in range(28, COUNT))
    expected = Counter(
        (key, (1000 if key < KEYS - 1 else 0) + number)
        for key, count in seen.items()
        for number in range(1, count + 1)
    )
    assert found == expected


class Sums(KeyedProcessFunction):
    """Keeps a sum, a list and a map per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self.items = runtime_context.get_list_state(ListStateDescriptor("items", Types.LONG()))
        names = MapStateDescriptor("names", Types.STRING(), Types.LONG())
        self.names = runtime_context.get_map_state(names)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.sum.update((self.sum.value() or 0) + value[1])
        self.items.add(value[1])
        self.names.put(f"n{value[1] % 2}", value[1])
        ctx.timer_service().register_event_time_timer(10**15)
        yield value[0], self.sum.value(), tuple(self.items.get()), tuple(sorted(self.names.items()))


RECORDS = [(key, number) for number in range(6) for key in ("a", "b")]


def run(directory: Path, savepoint: str, records: list[Any], parallelism: int = 2) -> list[Any]:
    """The results of the job with ``Sums``, started from a savepoint."""
    env = environment(parallelism, **({PATH: savepoint} if savepoint else {}))
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    events = env.from_source(SplitsSource([records], pair), None, "events").uid("events")
    collect(events.key_by(lambda each: each[0]).process(Sums()).uid("sums"), directory / "results")
    MiniCluster(env.get_job_graph("sums"), directory / "checkpoints").run()
    return [tuple(each) for each in collected(directory / "results")]


def model(records: list[Any]) -> list[Any]:
    found, lists = [], {"a": [], "b": []}  # type: ignore[var-annotated]
    for key, number in records:
        lists[key].append(number)
        names = {f"n{each % 2}": each for each in lists[key]}
        found.append((key, sum(lists[key]), tuple(lists[key]), tuple(sorted(names.items()))))
    return found


def test_oracle_a_job_starts_from_state_that_a_function_made(tmp_path: Path) -> None:
    with SavepointWriter.new_savepoint() as writer:
        writer.with_operator("sums", Sums(), RECORDS[:8], lambda each: each[0])
        path = writer.write(tmp_path / "made")
    assert sorted(run(tmp_path, path, RECORDS[8:])) == sorted(model(RECORDS)[8:])


@pytest.mark.parametrize("form", ["arrow", "pandas", "rows"])
def test_oracle_a_job_starts_from_state_of_tables(tmp_path: Path, form: str) -> None:
    first = RECORDS[:8]
    keys = ("a", "b")
    own = {key: [number for each, number in first if each == key] for key in keys}
    rows = {
        "sum": [{"key": key, "value": sum(own[key])} for key in keys],
        "items": [{"key": key, "value": number} for key, number in first],
        "names": [
            {"key": key, "map_key": name, "value": value}
            for key in keys
            for name, value in {f"n{each % 2}": each for each in own[key]}.items()
        ],
        "timers": [{"time": 10**15, "key": key} for key in keys],
    }
    tables: dict[str, Any] = dict(rows)
    if form != "rows":
        tables = {name: pa.Table.from_pylist(some) for name, some in rows.items()}
    if form == "pandas":
        tables = {name: table.to_pandas() for name, table in tables.items()}
    long = Types.LONG()
    with SavepointWriter.new_savepoint() as writer:
        writer.with_keyed_state("sums", ValueStateDescriptor("sum", long), tables["sum"])
        writer.with_keyed_state("sums", ListStateDescriptor("items", long), tables["items"])
        names = MapStateDescriptor("names", Types.STRING(), long)
        writer.with_keyed_state("sums", names, tables["names"])
        writer.with_timers("sums", tables["timers"])
        path = writer.write(tmp_path / "made")
    assert sorted(run(tmp_path, path, RECORDS[8:], 3)) == sorted(model(RECORDS)[8:])


def test_a_function_changes_state_that_is_there(tmp_path: Path) -> None:
    with SavepointWriter.new_savepoint() as writer:
        writer.with_operator("sums", Sums(), RECORDS[:4], lambda each: each[0])
        path = writer.write(tmp_path / "made")
    with SavepointWriter.from_existing_savepoint(path) as writer:
        writer.with_operator("sums", Sums(), RECORDS[4:8], lambda each: each[0])
        writer.remove_state("sums", "names")
        path = writer.write(tmp_path / "made")
    with SavepointReader.read(path) as reader:
        assert [info.name for info in reader.states("sums")] == ["items", "sum", "\0timers.event"]
        timers = reader.read_timers("sums").to_pandas()
        assert timers["time"].tolist() == [10**15] * 2
    found = sorted(run(tmp_path, path, RECORDS[8:]))
    assert [each[:3] for each in found] == [each[:3] for each in sorted(model(RECORDS)[8:])]


class Appends(KeyedProcessFunction):
    """Adds to a list that it does not read, so each batch is a chunk of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.items = runtime_context.get_list_state(ListStateDescriptor("items", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.items.add(value[1])


def test_oracle_a_function_appends_to_a_list_that_keeps_its_numbers(tmp_path: Path) -> None:
    with SavepointWriter.new_savepoint() as writer:
        writer.with_operator("sums", Appends(), RECORDS[:8], lambda each: each[0])
        path = writer.write(tmp_path / "made")
    with SavepointReader.read(path) as reader:
        frame = reader.read_keyed_state("sums", "items").to_pandas()
    assert frame["number"].max() > 0
    items = ListStateDescriptor("items", Types.LONG())
    with SavepointWriter.new_savepoint() as writer:
        writer.with_keyed_state("sums", items, frame)
        writer.with_operator("sums", Appends(), RECORDS[8:], lambda each: each[0])
        path = writer.write(tmp_path / "made")
    with SavepointReader.read(path) as reader:
        found = reader.read_keyed_state("sums", "items").to_pandas().groupby("key")["value"]
    expected = {key: [n for each, n in RECORDS if each == key] for key in ("a", "b")}
    assert found.apply(list).to_dict() == expected


def test_oracle_a_signed_savepoint_with_sources_is_changed(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    settings = {KEY_FILE: str(key)}
    path = save(tmp_path / "first", settings=settings)
    before = results(tmp_path / "first")
    given = f"{path}/savepoint.json"
    with SavepointWriter.from_existing_savepoint(given, key_file=str(key)) as writer:
        written = writer.write(tmp_path / "written", key_file=str(key))
    finish(start(tmp_path / "second", settings={PATH: written, **settings}))
    assert before + results(tmp_path / "second") == whole()


def test_checkpoints_whose_output_may_not_be_committed_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "first", 2, NATIVE)
    checkpoints = tmp_path / "first" / "checkpoints"
    (checkpoints / "committed.json").unlink()  # as after a kill
    with pytest.raises(CheckpointError, match="may not be committed"):
        SavepointWriter.from_existing_savepoint(checkpoints)
    with SavepointWriter.from_existing_savepoint(checkpoints, checkpoint_id=0):
        pass  # the next one waited for its commit


def test_a_source_that_is_removed_begins_again(tmp_path: Path) -> None:
    path = save(tmp_path / "first")
    with SavepointWriter.from_existing_savepoint(path) as writer:
        written = Path(writer.remove_operator("numbers").write(tmp_path / "written"))
    assert not (written / "sources").exists()
    with SavepointReader.read(written) as reader:
        assert reader.manifest.offsets["sources"] == {}
        assert len(reader.read_source_positions()) == 0


def test_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    ttl = ValueStateDescriptor("timed", Types.LONG())
    ttl.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(9)).build())
    plain = ValueStateDescriptor("sum", Types.LONG())
    with SavepointWriter.new_savepoint() as writer:
        with pytest.raises(StateError, match="the rows have no column 'value'"):
            writer.with_keyed_state("sums", plain, [{"key": 1}])
        with pytest.raises(StateError, match="two rows have the same key"):
            writer.with_keyed_state("sums", plain, [{"key": 1, "value": n} for n in (1, 2)])
        with pytest.raises(StateError, match="the rows need a column 'last_access'"):
            writer.with_keyed_state("sums", ttl, [{"key": 1, "value": 2}])
        with pytest.raises(StateError, match="there is no state 'other' of operator 'sums'"):
            writer.with_keyed_state("sums", "other", [{"key": 1, "value": 2}])
        with pytest.raises(StateError, match="not int"):
            writer.with_keyed_state("sums", plain, 3)
        writer.with_keyed_state("sums", plain, [{"key": 1, "value": 2}])
        with pytest.raises(StateError, match="has type string and cannot be converted to int64"):
            writer.with_keyed_state("sums", "sum", [{"key": 1, "value": "a"}])
        with pytest.raises(StateError, match="is kept as value state, not as list state"):
            writer.with_keyed_state("sums", ListStateDescriptor("sum"), [{"key": 1, "value": 1}])
        with pytest.raises(StateError, match="no operator with uid 'x'"):
            writer.remove_operator("x")


def test_operator_state_is_read_and_written(tmp_path: Path) -> None:
    rules = {"low": 1, "high": 9}
    with SavepointWriter.new_savepoint() as writer:
        rows = [{"key": key, "value": value} for key, value in rules.items()]
        writer.with_broadcast_state("rules", "limits", rows)
        writer.with_list_state("rules", "seen", pa.table({"value": [3, 1, 2]}))
        path = writer.write(tmp_path / "made")
    with SavepointReader.read(path) as reader:
        table = reader.read_broadcast_state("rules", "limits")
        assert {row["key"]: row["value"] for row in table.rows()} == rules
        seen = reader.read_list_state("rules", "seen").to_pandas()
        assert seen["value"].tolist() == [3, 1, 2]
        with pytest.raises(StateError, match="is list state, not union state"):
            reader.read_union_state("rules", "seen")


def test_oracle_windows_are_read(tmp_path: Path) -> None:
    graph = program.build(2, tmp_path / "results").get_job_graph("read")
    cluster = MiniCluster(graph, tmp_path / "checkpoint", limits=[24] * 9)
    cluster.run(3)
    cluster.coordinator.close()
    with SavepointReader.read(tmp_path / "checkpoint") as reader:
        reduced = {
            (row["time"], row["key"]): row["value"][1]
            for row in reader.read_window_state("tumbling-reduce").rows()
        }
        sums: Counter[Any] = Counter()
        for row in reader.read_window_state("tumbling-sum").rows():
            sums[row["time"], row["key"]] += row["p0"]
        assert reduced == sums
        elements = reader.read_window_state("tumbling-fires-continuous", "elements").to_pandas()
        assert set(elements["window_end"] - elements["window_start"]) == {100}
