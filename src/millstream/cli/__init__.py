"""The command line ``millstream``: run, plan, checkpoints.

What it is: a thin layer over the public API and ``millstream.checkpoint.inspect``.
What it is not: needed.  A program runs as well with plain ``python job.py``.

Read next: ``cli/main.py``.
"""

from __future__ import annotations

__all__: list[str] = []
