"""The Spark session of a job: the active one, or a new one of Millstream's own.

What it is: finding the session, the user's Python files, and the few options that a query needs.
What it is not: the start of a session.

Read next: ``engines/spark/local_session.py``.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession, is_remote

from millstream.engines.spark.local_session import start_session
from millstream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.configuration.configuration import Configuration

__all__ = ["STREAMING_OPTIONS", "get_session", "streaming_options"]

#: Options of the session in which the query starts.  Spark copies them into the query's own
#: session, so they are put back afterwards.
STREAMING_OPTIONS: Final = {
    # The plan of an epoch is fixed: the target subtasks are partitions and must stay so.
    "spark.sql.adaptive.enabled": "false",
    # Frames are large: a batch of them is limited by its bytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024 * 1024),
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    # An epoch without a new offset is never wanted: the planner decides.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stopTimeout": "30s",
    # Spark's default for its logs of offsets and commits starts a process for each permission and
    # each link that it looks at where Hadoop's native library is missing, as on most machines: some
    # 40 ms a file, two files an epoch.  What they are needed for is in the manifests as well.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}


def get_session(configuration: Configuration) -> SparkSession:
    """The active session, or a new one on ``local[*]`` (or the configured master).

    Workers run the Python of the driver unless ``python.executable`` (of a new session) or
    ``PYSPARK_PYTHON`` says otherwise.

    Raises:
        ConfigurationError: there is no Java.
        EngineError: Spark's JVM does not start, or is one that only Spark Connect leads to.
    """
    if is_remote():
        message = (
            "this program uses Spark Connect, whose sessions are in another process: Spark cannot"
            " call the program for offsets and epochs from there, nor tell it of its task slots and"
            " jobs. Use a session of its own: without SPARK_REMOTE, spark.remote and"
            " spark.api.mode: connect, by spark-submit or with millstream.spark.master"
        )
        raise EngineError(message)
    # At INFO it logs each call between the JVM and Python: in the middle of a program's rows.
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.WARNING)
    return SparkSession.getActiveSession() or start_session(configuration)


@contextlib.contextmanager
def streaming_options(session: SparkSession) -> Iterator[None]:
    """Set ``STREAMING_OPTIONS`` for the time in which a query is started."""
    current = session.conf.getAll
    before = {key: current.get(key) for key in STREAMING_OPTIONS}
    try:
        for key, value in STREAMING_OPTIONS.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, previous in before.items():
            if previous is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, previous)
