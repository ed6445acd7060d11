"""Where the workers' daemon takes PySpark from."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engines.spark.session import warm_up
from millstream.engines.spark.worker_daemon import without_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PROGRAM = """
import sys
from millstream.engines.spark import worker_daemon
assert "pyspark" not in sys.modules
sys.path[:] = worker_daemon.without_archive(sys.path)
import pyspark
print(pyspark.__file__)
"""


def installed(site: Path, *, files: bool) -> str:
    """Make an installation of PySpark, with or without its files; returns its archive."""
    library = site / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    if files:
        (site / "pyspark" / "__init__.py").touch()
    archive = library / "pyspark.zip"
    archive.touch()
    return str(archive)


def test_only_an_archive_that_is_there_as_files_is_left_out(tmp_path: Path) -> None:
    site, cluster, empty = tmp_path / "site", tmp_path / "cluster", tmp_path / "empty"
    ours, other = installed(site, files=True), installed(cluster, files=True)
    bare = installed(empty, files=False)
    elsewhere = str(tmp_path / "job" / "pyspark.zip")
    py4j = str(site / "pyspark" / "python" / "lib" / "py4j-0.10-src.zip")
    paths = [ours, py4j, other, bare, elsewhere, str(empty), str(site), ""]
    # That of the cluster is another installation, whose files nobody could import from here.
    assert without_archive(paths) == paths[1:]


def test_pyspark_as_it_is_installed_is_imported_from_files() -> None:
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    archive = Path(package.origin).parent / "python" / "lib" / "pyspark.zip"
    command = [sys.executable, "-c", PROGRAM]
    # As Spark starts it: the archive comes first.
    paths = [str(archive), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert archive.is_file()
    assert done.stdout.strip() == package.origin


def test_tasks_find_the_daemon_that_was_started_in_advance(spark: SparkSession) -> None:
    def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getppid()]})

    warm_up(spark).join(60)
    started = _daemons(spark)
    frame = spark.range(2, numPartitions=2).mapInArrow(parents, "pid long")
    assert {row.pid for row in frame.collect()} <= started
    assert _daemons(spark) == started


def _daemons(spark: SparkSession) -> set[int]:
    """The daemons of ours that the JVM has started."""
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == jvm and b"worker_daemon" in (path / "cmdline").read_bytes():
                found.add(int(path.name))
    return found
