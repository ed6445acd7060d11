"""Millstream: stateful stream processing with exactly-once results, with PyFlink's names, on Spark.

Programs import from ``millstream.common`` and ``millstream.datastream``, as PyFlink's do.

Read next: ``docs/tutorials/getting-started.md``; to work on the code,
``docs/development/architecture.md``.
"""

from __future__ import annotations

from millstream import fork_safety, not_offered

__all__ = ["__version__"]

__version__ = "0.1.0"

not_offered.install()
fork_safety.install()
