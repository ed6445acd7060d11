"""``execute_and_collect``: run a job and iterate over its records.

The stream ends in a collect sink; the iterator reads what the sink has committed so far, so each
record comes once, also after restarts.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from typing import TYPE_CHECKING, Self

from millstream.connectors.basic.collect import CollectSink
from millstream.datastream.running_jobs import note_reader
from millstream.directories import run_directory
from millstream.errors import ProgramError
from millstream.execution.job_client import collected_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    import pandas as pd

    from millstream.datastream.data_stream import DataStream
    from millstream.types.types import TypeInformation


def _data_frame(records: Sequence[object], type_info: TypeInformation | None) -> pd.DataFrame:
    """The records as a DataFrame.

    Args:
        records: in order.
        type_info: their type; None or one without columns: the fields are found in the records.

    Raises:
        ProgramError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        message = "to_pandas() needs pandas: pip install pandas"
        raise ProgramError(message) from error
    if type_info is None or type_info.arrow_schema is None:
        # Lazy, as pandas: most programs make no data frame.
        from millstream.connectors.formats.row_format import named_values

        return pd.DataFrame.from_records([named_values(record) for record in records])
    frame: pd.DataFrame = type_info.to_arrow(records).to_pandas()
    return frame


class CloseableIterator:
    """Gives records one by one; ``close`` ends the job behind it if it still runs."""

    def __init__(
        self,
        records: Iterator[object],
        on_close: Callable[[], None],
        type_info: TypeInformation | None = None,
    ) -> None:
        """Take the records, what to do at the end, and the type of the records if it is known."""
        self._type = type_info
        self._records = records
        self._on_close = on_close
        self._closed = False

    def __iter__(self) -> Self:
        """The iterator itself."""
        return self

    def __next__(self) -> object:
        """The next record; waits for it.  An interrupt closes: nobody else could end the job."""
        if self._closed:
            raise StopIteration
        try:
            return next(self._records)
        except KeyboardInterrupt:
            self.close()
            raise

    def next(self) -> object:
        """The next record; waits for it."""
        return next(self)

    def to_pandas(self, limit: int | None = None) -> pd.DataFrame:
        """The records that are left as a DataFrame, one column per field; then close.

        Args:
            limit: take so many records at most, and end the job.

        Raises:
            ProgramError: pandas is not installed.
        """
        with self:
            # Not zip(): it would wait for one record more than wanted.
            return _data_frame(list(itertools.islice(self, limit)), self._type)

    def close(self) -> None:
        """End the job and remove what it collected.  Nothing happens the second time."""
        if not self._closed:
            self._closed = True
            self._on_close()

    def __enter__(self) -> Self:
        """The iterator itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


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
