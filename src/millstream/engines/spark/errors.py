"""From Spark's exceptions back to Millstream's.

What it is: a task's error reaches the driver as the text of a Python traceback inside a Java
exception.  Where the task raised a Millstream error, that error is made again with its message.
What it is not: guesswork: anything else is passed on as it came, or told in a line.
"""

from __future__ import annotations

import re
from typing import Final

from millstream import errors

_RAISED: Final = re.compile(
    r"^millstream\.errors\.(?P<name>\w+): (?P<message>.*?)"
    r"(?=\n\n|\n\tat |\nTraceback |\n ?SQLSTATE: |\Z)",
    re.MULTILINE | re.DOTALL,
)


#: Of a worker that cannot even unpickle what it is to do; again and again, however often it is
#: tried.
_NOT_FOUND: Final = "ModuleNotFoundError: No module named 'millstream'"
_NO_MILLSTREAM: Final = (
    "the Python of Spark's workers has no module millstream. Workers of a session run what the"
    " variable PYSPARK_PYTHON names, else the python3 of their machine, whatever runs the program:"
    " set it before the session starts, on all machines to a Python that has Millstream; or leave"
    " the session to Millstream (millstream.spark.master, python.executable)"
)


def _lacks_millstream(error: BaseException) -> bool:
    return raised_in_python(error) == _NOT_FOUND


def original_error(error: BaseException) -> BaseException:
    """The Millstream error that a task raised, if ``error`` tells of one; else ``error``.

    That workers have no Millstream is one, though they cannot say so themselves.
    """
    if isinstance(error, errors.MillstreamError):
        return error
    found = list(_RAISED.finditer(str(error)))
    if not found:
        return errors.EngineError(_NO_MILLSTREAM) if _lacks_millstream(error) else error
    # The last one is what was raised; those before it are its causes.
    name, message = found[-1]["name"], found[-1]["message"].strip()
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.MillstreamError)):
        return error
    made: BaseException = kind(message)
    return made


#: Of a worker process that has ended in the middle of a task.
_WORKER_LOST: Final = "Python worker exited unexpectedly"


def has_lost_worker(error: BaseException) -> bool:
    """Return whether Spark reports that the process of a Python worker has ended."""
    return _WORKER_LOST in str(error)


#: Where the text of an error goes on with what only helps those who know Spark.
_DETAILS: Final = re.compile(
    r"\n\s*at |\nDriver stacktrace|\nTraceback |\n=== Streaming Query|\n\nJVM stacktrace"
)
_CALL: Final = re.compile(r"^An error occurred while calling \S+\n: ")
_LONGEST: Final = 500


def in_a_line(error: BaseException) -> str:
    """What an error says, for a line in a log: of Spark's, which have hundreds, the first."""
    text = str(error)
    if not isinstance(error, errors.MillstreamError):
        text = " ".join(_DETAILS.split(_CALL.sub("", text), maxsplit=1)[0].split())[:_LONGEST]
    return text or type(error).__name__


#: The end of a traceback: the first line behind the places, which are indented.
_PYTHON: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<said>\S.*)")


def raised_in_python(error: BaseException) -> str | None:
    """What a Python worker raised, in a line, if an error of Spark's tells of that."""
    found = [match["said"] for match in _PYTHON.finditer(str(error))]
    # The last one is what was raised; those before it are its causes.
    return found[-1].strip()[:_LONGEST] if found else None
