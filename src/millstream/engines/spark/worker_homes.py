"""The same Python worker for a partition in each epoch, on Spark in this process's JVM.

What it is: a few lines of Java (``WorkerHomes.java``), compiled in the JVM as the split source is,
that answer Spark's question which idle worker a task gets.  Spark takes the one that has waited
longest, so that two partitions change workers whenever one is faster than the other.  What a worker
keeps is then of no use: a consumer that has fetched more than the epoch read, which another process
fetches anew; its producers; its instances of operators.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from millstream.engines.spark.java import compiled

if TYPE_CHECKING:
    from pyspark import SparkContext


_LOG: Final = logging.getLogger("millstream")
#: The local property that names the run whose partitions have workers of their own; as in the Java.
RUN_PROPERTY: Final = "millstream.run"
_CLASS: Final = "WorkerHomes"

#: Gateway -> the compiled object.  Once per JVM: py4j remembers methods by the name of their class.
_compiled: Final[weakref.WeakKeyDictionary[Any, Any]] = weakref.WeakKeyDictionary()
_lock: Final = threading.Lock()


def keep_workers_aside(context: SparkContext) -> threading.Thread | None:
    """Do so in a thread: compiling takes some hundredths of a second, and no epoch waits for it."""
    if not (context.master or "").startswith("local"):
        return None  # the workers are not those of this JVM
    thread = threading.Thread(
        target=keep_workers, args=(context,), name="worker homes", daemon=True
    )
    thread.start()
    return thread


def keep_workers(context: SparkContext) -> int:
    """Have tasks of a run get the worker that their partition had before.

    Only workers of daemons that have run a task: so call it once one has.

    Returns:
        Of how many daemons; 0 if this Spark is made otherwise, which costs time and nothing else.
    """
    gateway: Any = context._gateway  # noqa: SLF001 - as engine.py
    try:
        with _lock:
            if gateway not in _compiled:
                nothing = gateway.new_array(gateway.jvm.java.lang.Object, 0)
                _compiled[gateway] = compiled(gateway, _CLASS).newInstance(nothing)
            return int(_compiled[gateway].get())
    except (Py4JError, OSError) as error:  # the latter where the JVM ends meanwhile
        _LOG.debug("partitions change workers as Spark will have it: %s", error)
        return 0
