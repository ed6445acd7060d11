"""The command line ``millstream``, a thin layer over the public API.

Read next: ``cli/main.py``.
"""

from __future__ import annotations

__all__: list[str] = []
