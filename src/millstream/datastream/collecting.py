"""execute_and_collect: running a program and giving its records back.

What it is: a collect sink at the end of the stream, the job in the background, and an iterator
over what the sink has committed so far.  Each record comes once, also after restarts.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING

from millstream.connectors.basic.collect import CollectSink
from millstream.datastream.closeable_iterator import CloseableIterator
from millstream.datastream.running_jobs import note_reader
from millstream.directories.run_directory import run_directory
from millstream.execution.job_client import collected_records

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream


def add_collect_sink(stream: DataStream, directory: str) -> None:
    """End a stream in one subtask that keeps its order, as Flink's collect sink is one."""
    stream.sink_to(CollectSink(directory)).name("Collect Stream Sink").set_parallelism(1)


def collect_stream(stream: DataStream, job_name: str | None) -> CloseableIterator:
    """Run the program of ``stream``, ending in a collect sink; the job runs until it is closed."""
    directory = tempfile.mkdtemp(prefix="collect-", dir=run_directory().path)
    try:
        add_collect_sink(stream, directory)
        client = stream.get_execution_environment().execute_async(job_name)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise

    note_reader(client)

    def close() -> None:
        if not client.job.get_job_status().is_terminal_state():
            client.job.cancel()
        shutil.rmtree(directory, ignore_errors=True)

    return CloseableIterator(collected_records(client, directory), close, stream.get_type())
