"""From the program to the job: transformations, the StreamGraph, its stages, and their plan.

Read next: ``graph/model.py``, ``graph/translate.py``.
"""

from __future__ import annotations

__all__: list[str] = []
