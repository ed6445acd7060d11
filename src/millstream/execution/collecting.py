"""Reading what a running job collects: records, as their epochs are committed.

What it is: what ``execute_and_collect`` and results of queries share: files of a collect sink, each
record once, also after restarts.
What it is not: the sink (``connectors/basic/collect.py``).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from millstream.connectors.basic.collect import collected_files, read_collected_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.execution.job_client import JobClient

__all__ = ["collected_records"]

_FIRST_WAIT: Final = 0.02
_LONGEST_WAIT: Final = 1.0


def collected_records(client: JobClient, directory: str) -> Iterator[object]:
    """What the sink commits, as it commits it; raises what ended the job if it failed.

    Args:
        client: the job.
        directory: of its collect sink.
    """
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
