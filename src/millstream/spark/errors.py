"""From Spark's exceptions back to Millstream's.

What it is: a task's error reaches the driver as the text of a Python traceback inside a Java
exception.  Where the task raised a Millstream error, that error is made again with its message.
What it is not: guesswork: anything else is passed on as it came.
"""

from __future__ import annotations

import re
from typing import Final

from millstream import errors

__all__ = ["original_error"]

_RAISED: Final = re.compile(
    r"^millstream\.errors\.(?P<name>\w+): (?P<message>.*?)(?=\n\n|\n\tat |\nTraceback |\Z)",
    re.MULTILINE | re.DOTALL,
)


def original_error(error: BaseException) -> BaseException:
    """The Millstream error that a task raised, if ``error`` tells of one; else ``error``."""
    if isinstance(error, errors.MillstreamError):
        return error
    found = list(_RAISED.finditer(str(error)))
    if not found:
        return error
    # The last one is what was raised; those before it are its causes.
    name, message = found[-1]["name"], found[-1]["message"].strip()
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.MillstreamError)):
        return error
    made: BaseException = kind(message)
    return made
