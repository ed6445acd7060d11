"""Errors of a task on their way to the driver.

What it is: an exception, pickled so that the driver can always unpickle it.
What it is not: the words of an error about the user's code (``runtime/user_code.py``).
"""

from __future__ import annotations

import os
import pickle
import traceback

from millstream.errors import MillstreamError
from millstream.types.pickling import dumps_by_value

__all__ = ["portable_error"]


def portable_error(error: Exception) -> bytes:
    """The error, pickled, or its text if it cannot be unpickled."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, MillstreamError):
        error.add_note(f"in worker process {os.getpid()}:\n{text}")
    try:
        content = dumps_by_value(error)
        pickle.loads(content)
    except Exception:  # noqa: BLE001 - whatever its constructor raises
        content = dumps_by_value(MillstreamError(text))
    return content
