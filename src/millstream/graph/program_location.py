"""Where in the user's program a call was made, as "job.py:12"; asked while the program is built."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["caller_location"]

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"


def caller_location() -> str:
    """File name and line of the innermost frame that is not in Millstream itself."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the stack without its cost
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
