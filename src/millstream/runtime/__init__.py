"""What runs inside tasks, and what plans their epochs; it knows nothing of Spark.

What it is: frames, the task loop, operators, event time, source planning.
What it is not: user-facing names, which are in ``millstream.datastream``.

Read next: ``contracts/operator.py``, ``runtime/stage.py``, ``runtime/task.py``.
"""

from __future__ import annotations

__all__: list[str] = []
