"""What PySpark imports of Millstream when it looks for data sources, by the prefix of the name.

What it is: a way into the process that looks (``millstream/engines/spark/silent_worker.py``).
What it is not: a data source; Millstream registers its own with each job.

Read next: ``millstream/engines/spark/silent_worker.py``.
"""

from __future__ import annotations

from millstream.engines.spark.silent_worker import silence_daemon

__all__: list[str] = []

silence_daemon()
