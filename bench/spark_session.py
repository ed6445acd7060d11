"""The Spark session of every process that is measured on Spark: two cores, 3 GB.

What it is: what Millstream and the Spark peers have in common, so that nobody has an advantage;
and the size of the run that each of them makes first, in the same process, to warm up.  A stream
runs for days; a JVM needs some ten seconds of work before its code is compiled, which is longer
than most measurements here.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from bench.data import Dataset
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["start_session", "warm_up_dataset"]

#: Ten epochs of a few seconds at most on every system.
_WARM_UP_EVENTS = 200_000
_WARM_UP_FILES = 10


def warm_up_dataset(dataset: Dataset) -> Dataset:
    """What is run before ``dataset`` and not measured: the same keys, fewer events."""
    events = min(_WARM_UP_EVENTS, dataset.events)
    return Dataset(events, min(dataset.keys, events), _WARM_UP_FILES)


def start_session(name: str, scratch: Path, options: Mapping[str, str]) -> SparkSession:
    """Start the session of this process; ``options`` come on top."""
    # Workers must run the same Python, and find this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "localhost",
        "spark.driver.memory": "3g",
        "spark.local.dir": str(scratch / "local"),
        # What Millstream sets in a session that it starts itself.  In one run each on a loaded
        # machine, with and without it: Spark SQL 86,600 and 66,900 rows/s, mapInArrow 314,200 and
        # 317,800, transformWithState 4,700 and 5,500.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {**common, **options}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
