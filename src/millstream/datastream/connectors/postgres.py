"""PostgreSQL sinks under an import path like PyFlink's.

What it is: names only.  What it is not: where they are written.

Read next: ``millstream/connectors/postgres_sink.py``.
"""

from __future__ import annotations

from millstream.connectors.postgres_sink import PostgresSink

__all__ = ["PostgresSink"]
