"""Built-in aggregates for ``WindowedStream.aggregate``: Count, Sum, Min, Max, Avg.

What it is: re-exports.  What it is not: where they are written: ``runtime/aggregates.py``.

Read next: ``runtime/aggregates.py``.
"""

from __future__ import annotations

from millstream.runtime.aggregates import Avg, Count, Max, Min, Sum

__all__ = ["Avg", "Count", "Max", "Min", "Sum"]
