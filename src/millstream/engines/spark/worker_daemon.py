"""The daemon that forks Spark's Python workers, with the imports of every stage done before.

A forked worker starts in milliseconds instead of importing pandas, pyarrow and Millstream again,
and shares their memory with the others.  PySpark itself is imported from where it is installed:
from the archive that Spark puts before that, Python would compile it again at each start, for a
second.  Sessions that Millstream starts use it; any other can by ``spark.python.daemon.module``.

Its workers end silently when nobody listens.  Spark closes the connection of a worker to cancel its
task, and after a minute without work; a plain worker would report that over the closed connection,
fail, and print a traceback.
"""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence


_IMPORTED_BEFORE: Final = (
    "pandas",
    "pyspark.sql.pandas.serializers",
    "millstream.engines.spark.stage_function",
    "millstream.engines.spark.slot_function",
    "millstream.state.backends.rocksdb",
    "millstream.datastream",
    "millstream.connectors.files.source",
    "millstream.connectors.files.sink",
)


def without_archive(paths: Sequence[str]) -> list[str]:
    """A module path without the archive of a PySpark that is there as files as well.

    Only of the very installation that the archive is a part of, so that the version stays what
    Spark chose.
    """
    kept = []
    for entry in paths:
        archive = Path(entry)
        if archive.name == "pyspark.zip" and archive.parent.match("pyspark/python/lib"):
            package = archive.parents[2]
            if str(package.parent) in paths and (package / "__init__.py").exists():
                continue
        kept.append(entry)
    return kept


def quiet(worker: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """The body of a worker, as PySpark's daemon calls it for each task, ending in silence."""

    def run(connection: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - as PySpark's
        try:
            return worker(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1  # the daemon ends the worker

    return run


def main() -> None:
    """Import, then serve; Spark ends it by closing its standard input."""
    sys.path[:] = without_archive(sys.path)
    # Spark has daemons for other purposes too (planning of data sources): these stay lean.
    if sys.argv[1:2] == ["pyspark.worker"]:
        for name in _IMPORTED_BEFORE:
            importlib.import_module(name)
        # What is there now lives as long as the workers do.
        gc.freeze()
    daemon: Any = importlib.import_module("pyspark.daemon")
    daemon.worker = quiet(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
