"""execute_and_collect: running a program and giving its records back.

What it is: a collect sink at the end of the stream, the job in the background, and an iterator
over what the sink has committed so far.  Each record comes once, also after restarts.

What it is not: for large results: they go through files in a temporary directory.

Read next: ``connectors/basic/collect.py``.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Final

from millstream.connectors.basic.collect import CollectSink, collected_files, read_collected_file
from millstream.datastream.closeable_iterator import CloseableIterator
from millstream.datastream.running_jobs import note_reader
from millstream.directories.run_directory import run_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.datastream.data_stream import DataStream
    from millstream.execution.job_client import JobClient

__all__ = ["add_collect_sink", "collect_stream"]

_FIRST_WAIT: Final = 0.02
_LONGEST_WAIT: Final = 1.0


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

    return CloseableIterator(_records(client, directory), close, stream.get_type())


def _records(client: JobClient, directory: str) -> Iterator[object]:
    """What the sink commits, as it commits it; raises what ended the job if it failed."""
    seen: set[Path] = set()
    wait = _FIRST_WAIT
    while True:
        # Asked before looking: what is committed before the end is then read for sure.
        over = client.job.get_job_status().is_terminal_state()
        new = [path for path in collected_files(directory) if path not in seen]
        for path in new:
            seen.add(path)
            yield from read_collected_file(path)
        if over:
            client.job.get_job_execution_result()
            return
        wait = _FIRST_WAIT if new else min(wait * 1.5, _LONGEST_WAIT)
        time.sleep(wait)
