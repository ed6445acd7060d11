"""What may befall committed files: readers that take them away, older checkpoints, power cuts."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

import pytest

from millstream import crash_points, directories
from millstream.cli.main import main
from millstream.common import Types
from millstream.connectors.files import pending_files
from millstream.connectors.files.sink import FileSink
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, WriterContext
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import SinkError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path


def cluster(directory: Path) -> MiniCluster:
    """A job that writes ten numbers per epoch."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    rows = Types.ROW_NAMED(["n"], [Types.LONG()])
    numbers = env.from_collection([(number,) for number in range(40)], rows).uid("numbers")
    numbers.sink_to(FileSink.csv(str(directory / "out"), header=False)).uid("out")
    graph = env.get_job_graph("numbers")
    return MiniCluster(graph, directory / "checkpoint", limits=itertools.repeat(10))


def files(directory: Path) -> dict[str, list[str]]:
    found = sorted((directory / "out").glob("part-*"))
    return {path.name: path.read_text().split() for path in found}


@pytest.mark.both_engines
@pytest.mark.parametrize("orderly", [True, False])
def test_committed_files_that_were_taken_away(tmp_path: Path, *, orderly: bool) -> None:
    first = cluster(tmp_path)
    first.run(2)
    if orderly:
        first.coordinator.close()
    taken = files(tmp_path)
    for name in taken:
        (tmp_path / "out" / name).unlink()
    if not orderly:  # it may as well have been lost
        with pytest.raises(SinkError, match="output of checkpoint 1 is lost"):
            cluster(tmp_path)
        return
    cluster(tmp_path).run()
    read = [line for lines in (taken | files(tmp_path)).values() for line in lines]
    assert sorted(map(int, read)) == list(range(40))


@pytest.mark.both_engines
def test_somebody_confirms_what_was_taken_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster(tmp_path).run(2)  # killed: it notes nothing
    taken = files(tmp_path)
    for name in taken:
        (tmp_path / "out" / name).unlink()
    with pytest.raises(SinkError, match=r"confirm it by `millstream checkpoints DIR confirm 1`"):
        cluster(tmp_path)
    where = str(tmp_path / "checkpoint")
    assert main(["checkpoints", where, "confirm", "0"]) == 1
    assert "cannot confirm checkpoint 0: its last is 1" in capsys.readouterr().err
    assert main(["checkpoints", where, "confirm", "1"]) == 0
    assert "the 1 committables of checkpoint 1" in capsys.readouterr().out
    cluster(tmp_path).run()
    read = [line for lines in (taken | files(tmp_path)).values() for line in lines]
    assert sorted(map(int, read)) == list(range(40))


@pytest.mark.both_engines
def test_what_is_pending_is_committed_though_it_is_confirmed(tmp_path: Path) -> None:
    def stop(_: str) -> None:
        raise InterruptedError

    crash_points.arm("manifest.publish.after", stop)
    try:
        with pytest.raises(InterruptedError):
            cluster(tmp_path).run(2)
    finally:
        crash_points.arm("")
    assert files(tmp_path) == {}
    assert main(["checkpoints", str(tmp_path / "checkpoint"), "confirm", "0"]) == 0
    cluster(tmp_path).run()
    read = [line for lines in files(tmp_path).values() for line in lines]
    assert sorted(map(int, read)) == list(range(40))


@pytest.mark.both_engines
def test_a_note_of_another_checkpoint_does_not_count(tmp_path: Path) -> None:
    first = cluster(tmp_path)
    first.run(1)
    first.coordinator.close()
    second = cluster(tmp_path)
    second.run(1)  # killed: it notes nothing
    for name in files(tmp_path):
        (tmp_path / "out" / name).unlink()
    with pytest.raises(SinkError, match="output of checkpoint 1 is lost"):
        cluster(tmp_path)


@pytest.mark.both_engines
def test_an_older_copy_of_the_checkpoint_replaces_nothing(tmp_path: Path) -> None:
    cluster(tmp_path).run(1)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    cluster(tmp_path).run(2)
    before = files(tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    with pytest.raises(SinkError, match=r"exists already, .* older than the output"):
        cluster(tmp_path).run(1)
    assert files(tmp_path) == before


def test_names_are_durable_up_to_where_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    for module in (pending_files, directories):
        monkeypatch.setattr(module, "sync_directory", synced.add)
    base = tmp_path / "a" / "b"
    sink = FileSink.csv(str(base), bucket_assigner=lambda _: "x/y/z")
    writer = sink.create_writer(WriterContext("job", "sink", 0, 1, 1, "a"))
    writer.write(Batch(Types.ROW_NAMED(["n"], [Types.LONG()]), values=[(1,)]))
    made = writer.prepare_commit()
    assert synced >= {tmp_path, tmp_path / "a", base}
    synced.clear()
    committer = sink.create_committer()
    committer.commit([CommitRequest(each, 1, retried=False) for each in made])
    assert synced == {base, base / "x", base / "x/y", base / "x/y/z"}
