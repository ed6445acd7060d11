"""The split source: what Structured Streaming sees of Millstream's sources.

What it is: a streaming source whose offsets come from the driver's planner.  Spark logs each offset
before the epoch that reads up to it.

Spark takes the classes of a source from its class path, or runs a source of Python's in processes
of its own: five per query, one after the other, each of which imports PySpark, and it asks one of
them for each offset.  So the source is some lines of Java (``SplitSource.java``), compiled in the
JVM by the compiler that Spark has for its queries, that call this process as ``foreachBatch`` does.

What it is not: a reader of records.  It has no rows: tasks read the splits themselves.

Read next: ``execution/planner.py``, ``engines/spark/query.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame

from millstream.engines.spark.java_classes import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from millstream.execution.offsets import Offset

__all__ = ["OffsetServer", "split_rows"]

_CLASS: Final = "SplitSource"


class OffsetServer:
    """Answers the split source from within the driver.

    Args:
        initial: the offset before the first epoch.
        latest: called for the offset up to which the next epoch should read.
    """

    def __init__(self, initial: Offset, latest: Callable[[], Offset]) -> None:
        self._initial = initial
        self._latest = latest
        #: The error that planning raised; the driver prefers it to what Spark makes of it.
        self.error: Exception | None = None

    def apply(self, request: str) -> str:
        """Answer "initial" or "latest" with an offset as JSON; with nothing after an error.

        It is not raised here: py4j would log it, with its traceback, beside what the job says.
        """
        if request == "initial":
            return json.dumps(self._initial)
        try:
            return json.dumps(self._latest())
        except Exception as error:  # noqa: BLE001 - raised again by the driver
            self.error = error  # raised in the driver's loop
            return ""

    class Java:
        """What py4j makes of it."""

        implements: Final = ["java.util.function.Function"]


def split_rows(session: SparkSession, server: OffsetServer) -> DataFrame:
    """A stream without rows, whose offsets the server gives.

    Args:
        session: that runs the query.
        server: it must answer for as long as the query runs.
    """
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - as foreachBatch does
    start: Any = ensure_callback_server_started  # which has no annotations
    start(gateway)
    jvm = gateway.jvm
    # The relation is taken from a source of Spark's: how one is made is different in each version.
    rate: Any = session.readStream.format("rate").load()._jdf.queryExecution().analyzed()  # noqa: SLF001
    arguments = gateway.new_array(jvm.java.lang.Object, rate.productArity())
    for index in range(rate.productArity()):
        arguments[index] = rate.productElement(index)
        if rate.productElementName(index) == "table":
            arguments[index] = _compiled(gateway, rate.table().schema(), server)
    relation = rate.makeCopy(arguments)
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(session._jsparkSession, relation), session)  # noqa: SLF001


def _compiled(gateway: Any, schema: Any, server: OffsetServer) -> Any:
    """The source as an object of the JVM."""
    # No method of it may be called from here: py4j remembers methods by the name of their class,
    # and each run has another class of this name.
    arguments = gateway.jvm.java.util.ArrayList()
    arguments.add(schema)
    arguments.add(server)
    return compiled(gateway, _CLASS).newInstance(arguments.toArray())
