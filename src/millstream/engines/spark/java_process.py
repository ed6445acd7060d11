"""The JVM of a Spark session: whether it answers, and how it ended.

What it is: the difference between a failure that another run may mend and the end of the process
that every run needs.  A JVM that is gone (killed by the system when memory ran out, say) takes the
session with it, and Python cannot get another; so a job ends with it, and a run asks for an answer
before it takes the job over from anybody.

What it is not: the start of a session, which is in ``engines/spark/session.py``.

Read next: ``engines/spark/engine.py``.
"""

from __future__ import annotations

import logging
import signal
import subprocess
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from millstream.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JavaProcess"]

_LOG: Final = logging.getLogger("millstream")

#: Seconds that a process may need to end after its connections are closed.
_LAST_BREATH: Final = 5.0
#: Spark's exit code for an OutOfMemoryError, and Java's own for ``ExitOnOutOfMemoryError``.
_OUT_OF_MEMORY: Final = (52, 3)
_GO_ON: Final = (
    "What was committed stays; a new start of the program on the same checkpoint directory goes on"
    " from there."
)


class JavaProcess:
    """The JVM behind a session.

    Args:
        session: whose JVM it is; made here or by the user.

    Raises:
        EngineError: the session was stopped, or its JVM does not answer.
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        gateway = self._context._gateway  # noqa: SLF001 - PySpark offers no other way to it
        #: None if Python is the child, as under spark-submit.
        self._process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
        self.pid: int | None = None if self._process is None else self._process.pid
        self.require()
        if self.pid is None:
            handle = self._context._jvm.java.lang.ProcessHandle  # type: ignore[union-attr] # noqa: SLF001
            self.pid = int(handle.current().pid())

    def require(self) -> None:
        """Have an answer from it.

        Raises:
            EngineError: it has ended, or its session was stopped; both are final.
        """
        error = self.lost()
        if error is not None:
            raise error

    def lost(self) -> EngineError | None:
        """The error to end with if nothing can run any more; None if the session works."""
        for _ in range(2):
            # Twice: the first call may find a connection that was broken while the JVM lives.
            try:
                java = self._context._jsc  # noqa: SLF001
                if java is None or java.sc().isStopped():
                    return EngineError(
                        "the Spark session was stopped, by the program or by Spark's master, while"
                        f" a job needed it. {_GO_ON}"
                    )
            except (Py4JError, OSError):
                _LOG.debug("Spark's JVM gives no answer", exc_info=True)
            else:
                return None
        return EngineError(f"Spark's JVM (process {self.pid}) {self._end()} {_GO_ON}")

    def _end(self) -> str:
        """How the process ended, and what to do about it."""
        if self._process is None:
            return "does not answer any more; it was killed or has crashed."
        try:
            code = self._process.wait(_LAST_BREATH)
        except subprocess.TimeoutExpired:
            return "does not answer any more, but has not ended."
        if code == -signal.SIGKILL:
            return (
                "was killed with SIGKILL, as the system does when memory runs out (`dmesg` would"
                " tell). Give the machine more memory, or let the job use less: a lower"
                " parallelism has fewer Python workers, spark.driver.memory bounds the JVM."
            )
        if code in _OUT_OF_MEMORY:
            return (
                f"ended with exit code {code}: its heap is full. Raise spark.driver.memory, or"
                " lower the parallelism."
            )
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}."
        return f"ended with exit code {code}."
