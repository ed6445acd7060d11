"""From the program to the job: transformations, the StreamGraph, its stages, and their plan.

What it is: everything between the user's calls and what is shipped to the workers.
What it is not: the running of it (``millstream.runtime``).

Read next: ``graph/model.py``, ``graph/translate.py``.
"""

from __future__ import annotations

__all__: list[str] = []
