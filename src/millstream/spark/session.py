"""The Spark session: the active one, or a local one with what Millstream needs.

What it is: finding or starting the session and setting the few options that matter.
What it is not: cluster configuration, which stays with the user's session or spark-submit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from millstream.common import options
from millstream.errors import ConfigurationError
from millstream.spark.java import use_java

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.common.configuration import Configuration

__all__ = ["STREAMING_OPTIONS", "get_session", "streaming_options"]

#: Of a session that is started here; ``spark.*`` keys of the job's configuration come on top.
_LOCAL_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "millstream.spark.worker_daemon",
    "spark.log.level": "ERROR",
    # The JVM schedules tasks and moves frames; compiling that to the last would take the cores from
    # the Python workers for a minute or more.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Frames go from process to process of one machine.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}

#: What these log of a failed task, in some hundred lines, the job's own error says in one.
_QUIET_LOGGERS: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
)

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
        ConfigurationError: there is no Java, or an entry of ``python.files`` does not exist.
    """
    files = _python_files(configuration)
    session = SparkSession.getActiveSession() or _start_session(configuration)
    for path in files:
        if path.is_dir():
            # What lies in a directory is importable, as in PyFlink.
            archive = Path(tempfile.mkdtemp(prefix="millstream-python-")) / path.name
            path = Path(shutil.make_archive(str(archive), "zip", path))  # noqa: PLW2901
        session.sparkContext.addPyFile(str(path))
    return session


def _python_files(configuration: Configuration) -> list[Path]:
    entries = configuration.get(options.PYTHON_FILES).split(",")
    files = [Path(entry.strip()) for entry in entries if entry.strip()]
    for path in files:
        if not path.exists():
            message = f"{options.PYTHON_FILES.key}: there is no file or directory {str(path)!r}"
            raise ConfigurationError(message)
    return files


def _start_session(configuration: Configuration) -> SparkSession:
    executable = configuration.get(options.PYTHON_EXECUTABLE)
    if executable:
        os.environ["PYSPARK_PYTHON"] = executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    use_java()
    master = configuration.get(options.SPARK_MASTER) or "local[*]"
    builder = SparkSession.builder.appName("millstream").master(master)
    own = {key: value for key, value in configuration.to_dict().items() if key.startswith("spark.")}
    for key, value in {**_LOCAL_OPTIONS, **own}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    log4j = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr] # noqa: SLF001
    for name in _QUIET_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    return session


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
