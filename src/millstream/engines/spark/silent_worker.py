"""Workers of PySpark that end without a word when nobody listens any more.

What it is: Spark closes the connection of a Python worker to give up its task, and after a minute
without work.  PySpark's daemon then has the worker tell Spark of the closed connection over the
closed connection, fails, and prints a traceback.  Here that is the worker's quiet end.
What it is not: a change of what is said of errors while Spark listens.

Every job has four kinds of workers.  Those of the tasks come from Millstream's own daemon
(``engines/spark/worker_daemon.py``).  The others are of PySpark's, and no other can be named; they
run code of Millstream in their first call, and that calls ``silence_daemon``:
``pyspark_millstream``, which PySpark imports to look for data sources, and
``engines/spark/split_source.py``.

Read next: ``engines/spark/worker_daemon.py``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

__all__ = ["quiet", "silence_daemon"]


def quiet(worker: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """The body of a worker, as PySpark's daemon calls it for each task, ending in silence."""

    def run(connection: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - as PySpark's
        try:
            return worker(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1  # the daemon ends the worker

    return run


def silence_daemon() -> None:
    """If this process is a worker of PySpark's own daemon: end in silence after this call."""
    main: Any = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", "") == "pyspark.daemon":
        main.worker = quiet(main.worker)
