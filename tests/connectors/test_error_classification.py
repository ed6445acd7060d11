"""What a target refuses for good, told from what it may take later; files and users' sinks."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from tests.connectors.test_file_sink_hazards import cluster, files
from tests.small_disk import SmallDisk, may_mount

from millstream import crash_points
from millstream.common import Types
from millstream.connectors.error_classification import directory_refusal, is_permanent
from millstream.connectors.files.sink import FileSink
from millstream.contracts.sink import Sink, SinkWriter, WriterContext
from millstream.engines.spark.engine import original_error
from millstream.errors import EngineError, PermanentSinkError, SinkError
from millstream.execution.restart import FixedDelay, GiveUpOnRepeats
from millstream.runtime.operators.sink import SinkFactory
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable


def everything(directory: Path) -> list[int]:
    return sorted(int(line) for lines in files(directory).values() for line in lines)


def test_a_file_in_the_place_of_the_output_directory(tmp_path: Path) -> None:
    cluster(tmp_path).run(1)
    (tmp_path / "out").rename(tmp_path / "away")
    (tmp_path / "out").touch()
    job = cluster_of_next_run(tmp_path)
    assert f"{tmp_path / 'out'} is a file, not a directory" in job
    (tmp_path / "out").unlink()
    (tmp_path / "away").rename(tmp_path / "out")
    cluster(tmp_path).run()
    assert everything(tmp_path) == list(range(40))


def cluster_of_next_run(directory: Path) -> str:
    """What the next run says of why it fails for good."""
    with pytest.raises(PermanentSinkError) as caught:
        cluster(directory).run(1)
    return str(caught.value)


def test_a_commit_that_is_refused_is_done_when_the_directory_is_mended(tmp_path: Path) -> None:
    def replace(_: str) -> None:
        (tmp_path / "out").rename(tmp_path / "away")
        (tmp_path / "out").touch()

    crash_points.arm("file.rename.before", replace)
    try:
        with pytest.raises(PermanentSinkError, match=r"could not commit checkpoint 0 .* in 1 try"):
            cluster(tmp_path).run(1)
    finally:
        crash_points.arm("")
    for _ in range(3):  # nothing is given up meanwhile
        assert "the target has to be made to take it" in cluster_of_next_run(tmp_path)
    (tmp_path / "out").unlink()
    (tmp_path / "away").rename(tmp_path / "out")
    cluster(tmp_path).run()
    assert everything(tmp_path) == list(range(40))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if not may_mount(tmp_path):
        pytest.skip("only root may mount a small file system")
    small = SmallDisk(tmp_path / "out")
    yield small
    small.close()


def test_a_read_only_output_directory(tmp_path: Path, disk: SmallDisk) -> None:
    said = f"the output directory {tmp_path / 'out'} is on a read-only file system"
    cluster(tmp_path).run(1)
    disk.make_read_only()
    with pytest.raises(SinkError, match=said):
        FileSink.csv(str(tmp_path / "out")).validate()
    assert said in cluster_of_next_run(tmp_path)
    disk.make_writable()
    crash_points.arm("file.rename.before", lambda _: disk.make_read_only())
    try:
        assert said in cluster_of_next_run(tmp_path)
    finally:
        crash_points.arm("")
    disk.make_writable()
    cluster(tmp_path).run()
    assert everything(tmp_path) == list(range(40))


def test_a_disk_that_is_full_may_be_freed(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert type(directory_refusal("cannot write", tmp_path, full)) is SinkError
    assert not is_permanent(ConnectionError("gone"))
    assert not is_permanent(SinkError("down"))
    assert is_permanent(PermissionError(errno.EACCES, "no"))


def test_bucket_and_format_that_refuse_a_record(tmp_path: Path) -> None:
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    sink = FileSink.csv(str(tmp_path), bucket_assigner=lambda record: record.missing)  # type: ignore[attr-defined]
    with (
        OperatorHarness(SinkFactory(sink), input_type=row, name="out") as harness,
        pytest.raises(PermanentSinkError, match=r"no bucket for record \(7,\)"),
    ):
        harness.process((7,))


class Raising(Sink):
    """A user's sink whose writer raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _RaisingWriter(self.error)


class _RaisingWriter(SinkWriter):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, batch: Batch) -> None:
        raise self._error

    def prepare_commit(self) -> list[Committable]:
        return []


@pytest.mark.parametrize(
    ("error", "permanent"),
    [(ValueError("bad"), True), (ConnectionError("down"), False), (RuntimeError("?"), False)],
)
def test_errors_of_a_users_sink(error: Exception, permanent: bool) -> None:
    with (
        OperatorHarness(SinkFactory(Raising(error)), name="mine") as harness,
        pytest.raises(SinkError, match=f"sink 'mine' .*{type(error).__name__}") as caught,
    ):
        harness.process("x")
    assert isinstance(caught.value, PermanentSinkError) is permanent


def test_the_kind_of_error_comes_back_from_a_worker() -> None:
    told = RuntimeError("Traceback\nmillstream.errors.PermanentSinkError: no\n\n\tat org.x")
    assert isinstance(original_error(told), PermanentSinkError)


def test_workers_without_millstream_are_told_of_once() -> None:
    """No try of the restart strategy's can help."""
    lines = ["Traceback (most recent call last):", "  cloudpickle.loads(obj)"]
    lines += ["ModuleNotFoundError: No module named 'millstream'", " SQLSTATE: 38000", ""]
    told = original_error(RuntimeError("\n".join(lines)))
    assert isinstance(told, EngineError)
    assert "PYSPARK_PYTHON" in str(told)
    assert GiveUpOnRepeats(FixedDelay(9, 1)).next_delay(0, told) is None
    other = RuntimeError("\n".join(lines).replace("'millstream'", "'mine'"))
    assert original_error(other) is other
