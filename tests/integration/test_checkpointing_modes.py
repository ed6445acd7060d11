"""The checkpointing modes do what docs/concepts/guarantees.md says, at a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.recovery.template_job import Files

from millstream.common import Types
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import CheckpointingMode, StreamExecutionEnvironment
from millstream.errors import CheckpointError, SinkError, UserFunctionError
from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sinks import FailingSink

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.sink import Sink
    from millstream.graph.model import JobGraph

pytestmark = pytest.mark.both_engines(about="barriers")

NUMBERS = list(range(1, 13))
PER_EPOCH = 3


def job(mode: CheckpointingMode, *sinks: Sink, fail: Path | None = None) -> JobGraph:
    """Counts numbers; the first try of number 8 fails if ``fail`` is given."""

    def check(number: int) -> int:
        if fail is not None and number == 8 and not fail.exists():
            fail.touch()
            message = "number 8"
            raise ValueError(message)
        return number

    def count(one: Any, other: Any) -> Any:
        return (other[0], one[1] + other[1])

    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.enable_checkpointing(1, mode)
    stream = env.from_collection(NUMBERS, Types.LONG()).uid("numbers")
    counted = stream.map(lambda n: (check(n), 1)).key_by(lambda _: 0).reduce(count).uid("count")
    for number, sink in enumerate(sinks):
        counted.sink_to(sink).uid(f"sink-{number}")
    return env.get_job_graph("modes")


def cluster(graph: JobGraph, path: Path) -> MiniCluster:
    return MiniCluster(graph, path / "checkpoint", limits=[PER_EPOCH] * 99)


def collected(path: Path) -> list[Any]:
    return list(read_collected(path))


def written(path: Path) -> list[Any]:
    files = [each for each in path.iterdir() if not each.name.startswith(".")]
    return sorted(eval(line) for each in files for line in each.read_text().splitlines())


@pytest.mark.parametrize(
    ("mode", "repeated"),
    [(CheckpointingMode.EXACTLY_ONCE, 0), (CheckpointingMode.AT_LEAST_ONCE, PER_EPOCH)],
)
def test_a_run_that_dies_before_it_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: CheckpointingMode, repeated: int
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    graph = job(mode, Files(files), CollectSink(tmp_path / "out"))
    first = cluster(graph, tmp_path)
    first.run(2)

    def die(*_manifest: object) -> int:
        message = "died"
        raise OSError(message)

    monkeypatch.setattr(first.coordinator._log, "publish", die)
    with pytest.raises(OSError, match="died"):
        first.run_epoch()
    first.close_instances()
    assert len(written(files)) == 2 * PER_EPOCH + repeated
    manifest = cluster(graph, tmp_path).run()
    assert manifest is not None
    assert manifest.final
    for seen in (written(files), collected(tmp_path / "out")):
        assert len(seen) == len(NUMBERS) + repeated
        assert sorted(set(seen)) == [(n, n) for n in NUMBERS]  # none lost, and state is exact


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_an_epoch_that_fails(tmp_path: Path, mode: CheckpointingMode) -> None:
    files = tmp_path / "files"
    files.mkdir()
    graph = job(mode, Files(files), CollectSink(tmp_path / "out"), fail=tmp_path / "failed")
    first = cluster(graph, tmp_path)
    with pytest.raises(UserFunctionError, match="number 8"):
        first.run()
    manifest = cluster(graph, tmp_path).run()
    assert manifest is not None
    assert manifest.final
    expected = [(n, n) for n in NUMBERS]
    if mode is CheckpointingMode.NONE:  # the epoch of 7, 8, 9 is lost, and so is the count
        expected = [(n, n) for n in NUMBERS[:6]] + [(10, 1), (11, 2), (12, 3)]
    assert written(files) == expected
    assert sorted(collected(tmp_path / "out")) == expected
    left = [each for each in files.iterdir() if each.name.startswith(".")]
    left += list((tmp_path / "checkpoint").rglob("*.transaction"))
    assert left == []


def test_at_most_once_does_not_try_a_commit_again(tmp_path: Path) -> None:
    sink = FailingSink(CollectSink(tmp_path / "out"), "commit.after", directory=tmp_path / "f")
    graph = job(CheckpointingMode.NONE, sink)
    first = cluster(graph, tmp_path)
    says = "failure 1 of 1 at commit.* drops them and does not write the output again"
    with pytest.raises(SinkError, match=says):
        first.run()
    cluster(graph, tmp_path).run()
    seen = collected(tmp_path / "out")
    assert [number for number, _ in seen] == NUMBERS
    assert [count for _, count in seen] == [1, 2, 3, *range(1, 10)]


def test_at_most_once_needs_to_know_that_an_epoch_begins(tmp_path: Path) -> None:
    target = cluster(job(CheckpointingMode.NONE, CollectSink(tmp_path / "out")), tmp_path)
    target.coordinator.begin_epoch = lambda metadata: None  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match="begin_epoch\\(\\) was not called"):
        target.run()


def test_at_least_once_says_what_becomes_of_a_commit_that_fails(tmp_path: Path) -> None:
    out, flags = tmp_path / "out", tmp_path / "f"
    sink = FailingSink(CollectSink(out), "commit.before", times=99, directory=flags)
    graph = job(CheckpointingMode.AT_LEAST_ONCE, sink)
    with pytest.raises(SinkError, match="drops them and writes the output again"):
        cluster(graph, tmp_path).run()
    for flag in flags.iterdir():
        flag.unlink()
    sink.step = "commit.after"
    sink.times = 1  # a try that failed behind its commit is tried again, and passed over
    cluster(graph, tmp_path).run()
    assert collected(out) == [(n, n) for n in NUMBERS]


@pytest.mark.parametrize("step", ["write", "prepare.before", "prepare.after"])
def test_one_vote_of_no_rolls_all_sinks_back(tmp_path: Path, step: str) -> None:
    files = tmp_path / "files"
    files.mkdir()
    no = FailingSink(CollectSink(tmp_path / "out"), step, directory=tmp_path / "f")
    graph = job(CheckpointingMode.EXACTLY_ONCE, Files(files), no, CollectSink(tmp_path / "other"))
    with pytest.raises(SinkError, match=f"at {step}"):
        cluster(graph, tmp_path).run()
    cluster(graph, tmp_path)  # recovers
    assert list(files.iterdir()) == []
    assert [each for each in (tmp_path / "other").rglob("*") if each.is_file()] == []
    cluster(graph, tmp_path).run()
    expected = [(n, n) for n in NUMBERS]
    assert written(files) == expected
    assert sorted(collected(tmp_path / "out")) == expected
    assert sorted(collected(tmp_path / "other")) == expected
