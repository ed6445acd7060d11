"""Unaligned checkpoints: taken while tasks stand still, kept with what waits there, restored.

The tasks behind the exchange are stalled by a gate, so nothing here depends on time: an aligned
checkpoint never completes, an unaligned one has all that was read in flight.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.checkpoint.inspect import inspect_checkpoint, list_checkpoints, verify_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.cli.main import main
from millstream.common import Configuration, Time, Types
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import (
    CorruptCheckpointError,
    IncompatibleProgramError,
)
from millstream.runtime.exchange import DATA_ARROW, DATA_PICKLE, decode_batch
from millstream.runtime.frames_in_flight import RestoredFrames, read_frames
from millstream.runtime.pipelined.uploader import PendingAck
from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sources import EPOCH, WATERMARK, At, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.graph.model import JobGraph

    Take = Callable[..., Manifest]

RECORD = Types.TUPLE([Types.LONG(), Types.LONG()])
RESULT = Types.TUPLE([Types.LONG(), Types.LONG()])
LATE = OutputTag("late", RECORD)
KEYS = 6
SIZE = 10


class Timed(At):
    """A record of the script."""

    value: tuple[int, int]


#: (key, number), in two epochs.  What is marked late is behind a watermark in flight.
FIRST = [Timed((n % KEYS, n), n % SIZE) for n in range(40)]
TOO_LATE = [Timed((n % KEYS, n), 3) for n in range(100, 106)]
SECOND = [Timed((n % KEYS, n), 20 + n % SIZE) for n in range(200, 240)]
SCRIPT = [*FIRST, WATERMARK(15), *TOO_LATE, EPOCH, *SECOND]


class Count(KeyedProcessFunction):
    """(number, the how-manieth of its key)."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield value[1], count


class Gather(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key and window, how many)."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        yield key * 1000 + context.window().start, len(list(elements))


def job(
    directory: Path,
    parallelism: int = 2,
    *,
    uid: str = "counts",
    typed: bool = True,
    mapped: int = 0,
    after: int = 0,
) -> JobGraph:
    """Counts and windows by key.

    Args:
        directory: of the job.
        parallelism: of both.
        uid: of the counts.
        typed: whether records are columns.
        mapped: the parallelism of a map ahead of them; 0: there is none.
        after: of one behind the counts.
    """
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(parallelism)
    source = ScriptedSource(SCRIPT, RECORD if typed else None, directory / "script")
    stream = env.from_source(source, source.watermark_strategy(), "numbers").uid("numbers")
    stream = stream.set_parallelism(1)
    if mapped:
        stream = stream.map(tuple, RECORD).uid("mapped").set_parallelism(mapped)
    keyed = stream.key_by(lambda record: record[0], Types.LONG())
    counts = keyed.process(Count(), RESULT).uid(uid)
    if after:
        counts = counts.map(tuple, RESULT).uid("after").set_parallelism(after)
    counts.sink_to(CollectSink(directory / "counts", fsync=False)).uid("counted")
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE)))
    gathered = windows.side_output_late_data(LATE).process(Gather(), RESULT).uid("windows")
    gathered.sink_to(CollectSink(directory / "windows", fsync=False)).uid("windowed")
    late = gathered.get_side_output(LATE)
    late.sink_to(CollectSink(directory / "late", fsync=False)).uid("lates")
    return env.get_job_graph("in flight")


def finish(graph: JobGraph, directory: Path, *, pipelined: bool) -> None:
    cluster = MiniCluster(graph, directory / "checkpoints", pipelined=pipelined)
    manifest = cluster.run()
    cluster.coordinator.close()
    assert manifest is not None
    assert manifest.final
    assert manifest.in_flight == []


def results(directory: Path, name: str) -> list[Any]:
    return sorted(tuple(cast("Any", each)) for each in read_collected(directory / name))


def check(directory: Path, *, late: bool = True) -> None:
    """Every record was counted once, and is in its window, or late.

    Args:
        directory: of the job.
        late: whether those that were late in flight are late; else they may be, and no others:
            where subtasks were given the records of several others, time waits for all of these.
    """
    numbers = [item.value[1] for item in SCRIPT if isinstance(item, Timed)]
    counts = results(directory, "counts")
    assert sorted(number for number, _ in counts) == sorted(numbers)
    for key in range(KEYS):
        mine = sorted(count for number, count in counts if number % KEYS == key)
        assert mine == list(range(1, len(mine) + 1))
    found = results(directory, "late")
    assert set(found) <= {item.value for item in TOO_LATE}
    assert len(found) == len(TOO_LATE) or not late
    kept = (item for item in SCRIPT if isinstance(item, Timed) and item.value not in found)
    windows = Counter(item.value[0] * 1000 + item.timestamp // SIZE * SIZE for item in kept)
    assert results(directory, "windows") == sorted(windows.items())


# -- taking ------------------------------------------------------------------------------------


def test_a_checkpoint_completes_while_its_tasks_stand_still(tmp_path: Path, take: Take) -> None:
    manifest = take(job(tmp_path), tmp_path)
    assert results(tmp_path, "counts") == [], "nothing was processed behind the exchange"
    storage = LocalStorage(tmp_path / "checkpoints")
    records = 0
    for handle in manifest.in_flight:
        channels, frames = read_frames(handle, storage)
        assert {each.edge.source for each in channels} == {"numbers"}
        assert {each.edge.target for each in channels} <= {"counts", "windows"}
        for frame in frames:
            if frame.kind in (DATA_ARROW, DATA_PICKLE):
                records += len(decode_batch(frame.kind, frame.payload, RECORD))
    assert records == 2 * (len(FIRST) + len(TOO_LATE)), "all that was read, on both edges"


def test_an_aligned_checkpoint_waits_for_all_that_lies_before_it(
    tmp_path: Path, gate: set[int]
) -> None:
    gate.add(1)
    cluster = MiniCluster(job(tmp_path), tmp_path / "checkpoints", pipelined=True)
    with pytest.raises(AssertionError, match="no progress, waiting for acknowledgements"):
        cluster.run_epoch()
    assert cluster.coordinator.last is None
    cluster.close_instances()


def test_barriers_wait_until_their_time_out(
    tmp_path: Path,
    gate: set[int],
    overtaking: Callable[[int | None], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Aligned at first; when the time is over, the same checkpoint completes unaligned."""
    gate.add(1)
    overtaking(50)
    cluster = MiniCluster(job(tmp_path), tmp_path / "checkpoints", pipelined=True)
    tasks = cluster._pipelined_tasks
    assert tasks is not None
    turn, turns = tasks._turn, []

    def turned() -> None:
        turn()
        turns.append(len(tasks._acks))
        if len(turns) in (400, 800):
            tasks._now += 30

    monkeypatch.setattr(tasks, "_turn", turned)
    assert cluster.run_epoch()
    assert set(turns[390:799]) == {1}, "that of the task that reads, and after 30 ms no other"
    assert turns[-1] == 5
    assert len(turns) > 800
    last = cluster.coordinator.last
    assert last is not None
    assert last.in_flight
    cluster.close_instances()


def test_frames_in_flight_are_let_go_of_once_they_are_written(
    tmp_path: Path, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_ack = PendingAck.finish
    recorded: list[PendingAck] = []

    def note(self: PendingAck) -> TaskAck:
        recorded.extend([self] if self.recording is not None else [])
        return finish_ack(self)

    monkeypatch.setattr(PendingAck, "finish", note)
    manifest = take(job(tmp_path), tmp_path)
    assert len(recorded) >= len(manifest.in_flight) > 0
    assert [each.recording for each in recorded] == [None] * len(recorded)


def test_nothing_is_in_flight_where_nothing_waits(tmp_path: Path) -> None:
    finish(job(tmp_path), tmp_path, pipelined=True)
    log = sorted((tmp_path / "checkpoints" / "log").iterdir())
    manifests = list(ManifestLog(LocalStorage(tmp_path / "checkpoints")).manifests())
    assert len(log) > len(manifests) > 0
    assert not any(each.in_flight for each in manifests)
    check(tmp_path)


# -- restoring ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "epochs"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_goes_on_with_what_was_in_flight(
    tmp_path: Path, take: Take, parallelism: int, *, pipelined: bool
) -> None:
    manifest = take(job(tmp_path), tmp_path)
    assert len(manifest.in_flight) == 4
    finish(job(tmp_path, parallelism), tmp_path, pipelined=pipelined)
    check(tmp_path, late=parallelism == 2)


@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "epochs"])
def test_records_that_are_no_columns(tmp_path: Path, take: Take, *, pipelined: bool) -> None:
    take(job(tmp_path, typed=False), tmp_path)
    finish(job(tmp_path, 3, typed=False), tmp_path, pipelined=pipelined)
    check(tmp_path, late=False)


def test_what_was_restored_can_be_in_flight_again(tmp_path: Path, take: Take) -> None:
    """A checkpoint waits for nothing, not for what the one before it had in flight either."""
    first = take(job(tmp_path), tmp_path)
    second = take(job(tmp_path, 3), tmp_path)
    assert second.epoch == first.epoch + 1
    assert len(second.in_flight) == 6
    assert results(tmp_path, "counts") == []
    finish(job(tmp_path, 1), tmp_path, pipelined=True)
    check(tmp_path, late=False)


def test_without_the_frames_records_are_lost(
    tmp_path: Path, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(job(tmp_path), tmp_path)
    monkeypatch.setattr(RestoredFrames, "_read", lambda *_: [])
    finish(job(tmp_path), tmp_path, pipelined=True)
    numbers = {number for number, _ in results(tmp_path, "counts")}
    assert numbers.isdisjoint(item.value[1] for item in FIRST)


def test_no_time_in_flight_overtakes_records_in_flight(
    tmp_path: Path, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the other producer's are as old; without what their reader knew they are late."""
    for name in ("known", "unknown"):
        directory = tmp_path / name
        take(job(directory, mapped=2), directory, levels=(2,))
        if name == "unknown":
            monkeypatch.setattr(RestoredFrames, "channels_of", lambda *_: {})
        finish(job(directory, mapped=2), directory, pipelined=True)
        if name == "known":
            check(directory, late=False)
    late = set(results(tmp_path / "unknown", "late"))
    assert late & {item.value for item in FIRST}


def test_an_operator_that_is_gone_is_refused_by_name(tmp_path: Path, take: Take) -> None:
    take(job(tmp_path), tmp_path)
    with pytest.raises(IncompatibleProgramError, match="counts"):
        finish(job(tmp_path, uid="other"), tmp_path, pipelined=True)


def test_an_edge_that_lies_in_a_task_that_reads_now_is_refused(tmp_path: Path, take: Take) -> None:
    take(job(tmp_path, mapped=2), tmp_path)
    with pytest.raises(IncompatibleProgramError, match=r"'Map'.*lies within one task now"):
        finish(job(tmp_path, mapped=1), tmp_path, pipelined=True)
    finish(job(tmp_path, mapped=3), tmp_path, pipelined=True)
    check(tmp_path, late=False)


@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "epochs"])
def test_an_edge_that_lies_in_a_task_behind_an_exchange_now(
    tmp_path: Path, take: Take, *, pipelined: bool
) -> None:
    manifest = take(job(tmp_path, after=1), tmp_path, levels=(2,))
    assert "after" in {name.target for each in manifest.in_flight for name in each.edges}
    finish(job(tmp_path, 1, after=1), tmp_path, pipelined=pipelined)
    check(tmp_path, late=False)


# -- files -------------------------------------------------------------------------------------


def in_flight_files(directory: Path) -> set[str]:
    return {each.name for each in (directory / "checkpoints").rglob("*-in-flight.arrow")}


def test_files_are_listed_verified_and_deleted(
    tmp_path: Path, take: Take, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = take(job(tmp_path), tmp_path)
    cluster = MiniCluster(job(tmp_path), tmp_path / "checkpoints", pipelined=True)
    storage = cluster.storage
    assert in_flight_files(tmp_path) == {each.file["local"] for each in manifest.in_flight}
    size = sum(each.file["size"] for each in manifest.in_flight)
    (listed,) = list_checkpoints(storage).checkpoints
    assert listed.in_flight_size == size
    assert listed.state_size >= size
    assert inspect_checkpoint(storage).manifest.in_flight == manifest.in_flight
    assert verify_checkpoints(storage).ok
    assert main(["checkpoints", str(tmp_path / "checkpoints")]) == 0
    assert main(["checkpoints", str(tmp_path / "checkpoints"), "inspect"]) == 0
    shown = capsys.readouterr().out
    assert "in flight" in shown
    assert "of it in flight between tasks" in shown
    cluster.run()
    cluster.coordinator.close()
    assert in_flight_files(tmp_path) == set(), "deleted with the checkpoint that had them"
    check(tmp_path)


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_damage_is_noticed(tmp_path: Path, take: Take, damage: str) -> None:
    take(job(tmp_path), tmp_path)
    file = next((tmp_path / "checkpoints").rglob("*-in-flight.arrow"))
    if damage == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    cluster = MiniCluster(job(tmp_path), tmp_path / "checkpoints", pipelined=True)
    assert [each.name for each in verify_checkpoints(cluster.storage).problems] == [
        str(file.relative_to(tmp_path / "checkpoints"))
    ]
    with pytest.raises(CorruptCheckpointError, match="frames in flight, is"):
        cluster.run()
