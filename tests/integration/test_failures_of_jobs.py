"""Failures in whole jobs: nothing of a failed epoch is visible, and the next run goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time

from millstream.common import Types
from millstream.connectors.files.source import FileSource
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors import FileSink
from millstream.errors import InconsistentEpochError, SinkError, SourceError, UserFunctionError
from millstream.runtime.stage import StageInstance
from millstream.runtime.task import Task
from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sinks import CollectSink, FailingSink
from millstream.testing.sources import CRASH, EPOCH, At, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.checkpoint.model import TaskAck
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan

pytestmark = pytest.mark.both_engines(about="barriers")

EVENTS = [(at % 5, at, at * 10) for at in range(60)]
RECORD = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


def totals() -> list[tuple[int, int]]:
    """Running sums per key."""
    sums: dict[int, int] = {}
    out = []
    for key, value, _ in EVENTS:
        sums[key] = sums.get(key, 0) + value
        out.append((key, sums[key]))
    return out


@dataclass(frozen=True)
class FailWhile:
    """Raises on one record while a file is there."""

    file: Path
    number: int

    def __call__(self, record: tuple[int, int, int]) -> tuple[int, int, int]:
        if record[1] == self.number and self.file.exists():
            message = "not today"
            raise ValueError(message)
        return record


def job(
    directory: Path, function: Callable[..., object], place: int, parallelism: int = 2
) -> JobGraph:
    """Three stages, with a sink in the first and the last; ``function`` runs in one of them."""
    env = environment(parallelism)
    records = env.from_source(SplitsSource([EVENTS], RECORD), event_time(0), "records")
    if place == 0:
        records = records.map(function, RECORD)
    collect(records, directory, "first")
    summed = records.key_by(lambda record: record[0]).sum(1)
    if place == 1:
        collect(summed.map(lambda record: function((0, record[1], 0))), directory, "between")
    spread = summed.rebalance().map(lambda record: (record[0], record[1]))
    if place == 2:
        spread = spread.map(lambda pair: function((pair[0], pair[1], 0))[:2])  # type: ignore[index]
    collect(spread, directory, "last")
    return env.get_job_graph("failing")


def check_all(directory: Path) -> None:
    assert sorted(collected(directory, "first")) == sorted(EVENTS)
    assert sorted(collected(directory, "last")) == sorted(totals())


def check_part(directory: Path, records: int) -> None:
    """What the first epochs, which read so many records, must show, and no more."""
    assert sorted(collected(directory, "first")) == sorted(EVENTS[:records])
    assert sorted(collected(directory, "last")) == sorted(totals()[:records])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_failing_user_function_leaves_no_output_and_the_next_run_continues(
    tmp_path: Path, place: int, backend: str
) -> None:
    # Record 30, or the sum it makes: an epoch reads 12 records, so that is in the third.
    number = 30 if place == 0 else totals()[30][1]
    assert place == 0 or number not in [total for _, total in totals()[:24]]
    flag = tmp_path / "flag"
    flag.touch()

    def cluster() -> MiniCluster:
        graph = job(tmp_path, FailWhile(flag, number), place)
        directory = tmp_path / "checkpoint"
        return MiniCluster(graph, directory, limits=[24], state_backend=backend)

    for _ in range(2):
        running = cluster()
        for _ in range(2):  # twice in each run
            with pytest.raises(UserFunctionError, match="not today"):
                running.run()
            check_part(tmp_path, 24)
    flag.unlink()
    cluster().run()
    check_all(tmp_path)


def test_source_that_fails_in_mid_epoch(tmp_path: Path) -> None:
    stamped = [At(event, event[2]) for event in EVENTS]
    script = [*stamped[:20], EPOCH, *stamped[20:33], CRASH, *stamped[33:]]
    env = environment(2)
    source = ScriptedSource(script, RECORD, tmp_path / "script")
    records = env.from_source(source, source.watermark_strategy(), "script")
    collect(records, tmp_path, "first")
    summed = records.key_by(lambda record: record[0]).sum(1)
    collect(summed.map(lambda record: record[:2]), tmp_path, "last")
    graph = env.get_job_graph("crash")
    with pytest.raises(SourceError, match="CRASH"):
        MiniCluster(graph, tmp_path / "checkpoint").run()
    check_part(tmp_path, 20)
    MiniCluster(graph, tmp_path / "checkpoint").run()
    check_all(tmp_path)


@pytest.mark.parametrize(
    "step", ["create_writer", "write", "prepare.before", "prepare.after", "commit.half"]
)
def test_failing_sink(tmp_path: Path, step: str) -> None:
    # A commit is tried again a few times at once; more failures end the run.
    inner = CollectSink(tmp_path / "last", fsync=False)
    sink = FailingSink(inner, step, times=1, directory=tmp_path / "failures")

    def graph() -> JobGraph:
        env = environment(3)
        records = env.from_source(SplitsSource([EVENTS], RECORD), event_time(0), "records")
        collect(records, tmp_path, "first")
        summed = records.key_by(lambda record: record[0]).sum(1)
        summed.map(lambda record: record[:2]).sink_to(sink)
        return env.get_job_graph("sink")

    for _ in range(3):
        try:
            MiniCluster(graph(), tmp_path / "checkpoint", limits=[75]).run()
        except SinkError:
            continue
        break
    assert sink.failures == 1
    check_all(tmp_path)


class TwoAttempts(MiniCluster):
    """Runs one task of stage 0 twice in every epoch, as Spark may."""

    #: Whether consumers get the frames of different attempts.
    mixed = False

    def _run_task(
        self, plan: EpochPlan, level: int, subtask: int, frames: list[pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        made = super()._run_task(plan, level, subtask, frames)
        if level or subtask:
            return made
        instance = StageInstance(self._graph, level, subtask)
        instance.open()
        again = list(Task(instance, plan).run(iter(())))
        instance.close()
        if not self.mixed:
            # The first attempt's frames are lost, its acknowledgement came through.
            return [*_only(made, acknowledgements=True), *again]
        mixed = [*_for_subtask(made, 0), *_for_subtask(again, 1)]
        return [*mixed, *_only(made, acknowledgements=True), *_only(again, acknowledgements=True)]


def _only(batches: list[pa.RecordBatch], *, acknowledgements: bool) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        levels = batch.column(0).to_pylist()
        keep = [at for at, level in enumerate(levels) if (level > 1000) == acknowledgements]
        yield batch.take(pa.array(keep, pa.int64()))


def _for_subtask(batches: list[pa.RecordBatch], subtask: int) -> Iterator[pa.RecordBatch]:
    for batch in _only(batches, acknowledgements=False):
        subtasks = batch.column(1).to_pylist()
        mine = [at for at, target in enumerate(subtasks) if target == subtask]
        yield batch.take(pa.array(mine, pa.int64()))


@pytest.mark.epochs_only("no task is tried again within a run")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_epoch_whose_tasks_read_different_attempts_is_refused(tmp_path: Path, backend: str) -> None:
    def cluster() -> TwoAttempts:
        graph = job(tmp_path, lambda record: record, 0)
        directory = tmp_path / "checkpoint"
        return TwoAttempts(graph, directory, limits=[24], state_backend=backend)

    running = cluster()
    running.run(1)
    check_part(tmp_path, 12)
    running.mixed = True
    with pytest.raises(InconsistentEpochError, match="read attempt"):
        running.run()
    check_part(tmp_path, 12)
    running.mixed = False  # the same epoch again, in the same run
    running.run(1)
    check_part(tmp_path, 24)
    cluster().run()
    check_all(tmp_path)


def test_lost_acknowledgement_is_refused(tmp_path: Path) -> None:
    class Losing(MiniCluster):
        def _run_tasks(self, plan: EpochPlan) -> list[TaskAck]:
            return super()._run_tasks(plan)[:-1]

    graph = job(tmp_path, lambda record: record, 0)
    with pytest.raises(InconsistentEpochError, match="no acknowledgement"):
        Losing(graph, tmp_path / "checkpoint").run()
    assert collected(tmp_path, "first") == []
    MiniCluster(graph, tmp_path / "checkpoint").run()
    check_all(tmp_path)


def test_older_run_is_fenced(tmp_path: Path) -> None:
    graph = job(tmp_path, lambda record: record, 0)
    older = MiniCluster(graph, tmp_path / "checkpoint", limits=[24])
    older.run(1)
    newer = MiniCluster(graph, tmp_path / "checkpoint", limits=[24])
    newer.run(1)
    with pytest.raises(Exception, match=r"newer|fenced|generation"):
        older.run()
    newer.run()
    check_all(tmp_path)


# -- files in, files out ---------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_dead_letters_go_to_their_side_output_once(tmp_path: Path, parallelism: int) -> None:
    good, bad = [], []
    (tmp_path / "in").mkdir()
    for number in range(4):
        lines = []
        for at in range(10):
            if at % 4 == 3:
                lines.append(f"{{broken {number} {at}")
                bad.append((f"part-{number}.json:{at + 1}", lines[-1]))
            else:
                record = {"key": at % 3, "value": number * 100 + at}
                lines.append(json.dumps(record))
                good.append((record["key"], record["value"]))
        (tmp_path / "in" / f"part-{number}.json").write_text("\n".join(lines) + "\n")
    schema = Types.ROW_NAMED(["key", "value"], [Types.LONG(), Types.LONG()])

    def graph(env: StreamExecutionEnvironment) -> JobGraph:
        source = FileSource.json_lines(str(tmp_path / "in"), schema=schema, malformed="dead-letter")
        rows = env.from_source(source, None, "files")
        letters = rows.get_side_output(OutputTag("dead-letter"))
        collect(letters.map(lambda row: (row.place, row.raw)), tmp_path, "letters")
        output = FileSink.csv(str(tmp_path / "out"), header=False)
        pairs = rows.key_by(lambda row: row.key).reduce(lambda _, new: new)
        pairs.sink_to(output)
        return env.get_job_graph("files")

    for _ in range(2):  # stopped after two epochs
        MiniCluster(graph(environment(parallelism)), tmp_path / "checkpoint", limits=[90]).run(2)
    MiniCluster(graph(environment(parallelism)), tmp_path / "checkpoint", limits=[90]).run()
    seen = [(place.rpartition("/")[2], raw) for place, raw in collected(tmp_path, "letters")]
    assert sorted(seen) == sorted(bad)
    files = [path for path in (tmp_path / "out").rglob("*.csv") if path.name[0] not in "._"]
    rows = [line.split(",") for path in files for line in path.read_text().splitlines()]
    assert sorted((int(key), int(value)) for key, value in rows) == sorted(good)


def test_malformed_line_fails_the_job_naming_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"key": 1}\n{"key": \n')
    schema = Types.ROW_NAMED(["key"], [Types.LONG()])
    env = environment(1)
    source = FileSource.json_lines(str(tmp_path / "one.json"), schema=schema)
    rows = env.from_source(source, None, "file")
    collect(rows, tmp_path)
    with pytest.raises(SourceError, match=r"one\.json:2|one\.json.*line 2"):
        MiniCluster(env.get_job_graph("malformed"), tmp_path / "checkpoint").run()
    assert collected(tmp_path) == []


def _final_states(directory: Path) -> dict[str, Any]:
    return {str(path): path.stat().st_size for path in directory.rglob("*") if path.is_file()}


def test_job_that_is_over_does_nothing_when_it_is_run_again(tmp_path: Path) -> None:
    graph = job(tmp_path, lambda record: record, 0)
    MiniCluster(graph, tmp_path / "checkpoint", limits=[24]).run()
    before = _final_states(tmp_path / "first") | _final_states(tmp_path / "last")
    MiniCluster(graph, tmp_path / "checkpoint", limits=[24]).run()
    assert _final_states(tmp_path / "first") | _final_states(tmp_path / "last") == before
    check_all(tmp_path)
