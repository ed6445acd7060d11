"""The split source: what Structured Streaming sees of Millstream's sources.

What it is: a Python data source whose offsets come from the driver's planner over a socket in a
private directory.  Spark runs the reader in a process of its own beside the driver; it logs each
offset before the epoch that reads up to it.
What it is not: a reader of records.  It has no rows: tasks read the splits themselves.

Read next: ``execution/planner.py``, ``engines/spark/query.py``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import uuid
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millstream.directories.run_directory import socket_directory
from millstream.engines.spark.silent_worker import silence_daemon
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from millstream.execution.offsets import Offset

__all__ = ["OffsetServer", "SplitSource"]

_SOCKET_OPTION: Final = "socket"

# Workers that create the source, or plan its reading, import this module in their first call.
silence_daemon()


class OffsetServer:
    """Answers the split source from within the driver.

    Args:
        initial: the offset before the first epoch.
        latest: called for the offset up to which the next epoch should read.
    """

    def __init__(self, initial: Offset, latest: Callable[[], Offset]) -> None:
        self._initial = initial
        self._latest = latest
        # Only this user can enter the directory, so whoever connects may.
        name = f"offsets-{uuid.uuid4().hex[:8]}"
        self.address = str(socket_directory(len(name)) / name)
        self._listener = Listener(self.address, family="AF_UNIX")
        self._stopped = threading.Event()
        #: The error that planning raised; the driver prefers it to what Spark makes of it.
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="millstream-offsets", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                connection = self._listener.accept()
            except OSError:
                return  # closed
            with contextlib.suppress(EOFError, OSError), connection:
                while True:
                    connection.send(self._answer(connection.recv()))

    def _answer(self, request: str) -> tuple[str, object]:
        if request == "initial":
            return "offset", self._initial
        try:
            return "offset", self._latest()
        except Exception as error:  # noqa: BLE001 - raised again in the driver's loop
            self.error = error
            return "error", f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Stop answering."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.close()
        Path(self.address).unlink(missing_ok=True)


class _SplitReader(DataSourceStreamReader):
    """Asks the driver."""

    def __init__(self, address: str) -> None:
        self._address = address

    def _ask(self, request: str) -> dict[str, object]:
        with Client(self._address, family="AF_UNIX") as connection:
            connection.send(request)
            kind, answer = connection.recv()
        if kind == "error":
            raise SourceError(answer)
        offset: dict[str, object] = answer
        return offset

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        return self._ask("initial")

    def latestOffset(self) -> dict[str, object]:  # type: ignore[override] # noqa: N802 - as in 4.1
        return self._ask("latest")

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        del start, end
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        del partition
        return iter(())

    def commit(self, end: dict[str, object]) -> None:
        """Nothing to let go of: manifests decide what is needed."""

    def stop(self) -> None:
        """End the process if Spark has closed the connection, as it does when the query stops.

        PySpark would tell Spark of that over the same connection, fail, and print a traceback.
        """
        if isinstance(sys.exception(), EOFError | BrokenPipeError | ConnectionResetError):
            os._exit(0)


class SplitSource(DataSource):
    """The data source ``millstream``; its one option is the planner's socket."""

    @classmethod
    def name(cls) -> str:
        """The name under which it is registered."""
        return "millstream"

    def schema(self) -> str:
        """One column that is never filled."""
        return "nothing int"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader of offsets."""
        del schema
        return _SplitReader(self.options[_SOCKET_OPTION])
