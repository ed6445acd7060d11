"""The daemon that forks Spark's Python workers, with what every stage needs imported before.

What it is: ``pyspark.daemon`` after a few imports.  A forked worker starts in milliseconds instead
of importing pandas, pyarrow and Millstream anew, and shares their memory with the others.
Sessions that Millstream starts use it; any other can by ``spark.python.daemon.module``.
What it is not: a change of what workers do.

Read next: ``spark/stage_function.py``.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Final

from pyspark.daemon import manager

__all__ = ["main"]

_IMPORTED_BEFORE: Final = (
    "pandas",
    "pyspark.sql.pandas.serializers",
    "millstream.spark.stage_function",
    "millstream.state.rocksdb",
    "millstream.datastream",
    "millstream.connectors.files",
    "millstream.connectors.file_sink",
)


def main() -> None:
    """Import, then serve; Spark ends it by closing its standard input."""
    # Spark has daemons for other purposes too (planning of data sources): these stay lean.
    if sys.argv[1:2] == ["pyspark.worker"]:
        for name in _IMPORTED_BEFORE:
            importlib.import_module(name)
        # What is there now lives as long as the workers do.
        gc.freeze()
    manager()


if __name__ == "__main__":
    main()
