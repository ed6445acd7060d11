"""PostgreSQL source and sinks under an import path like PyFlink's.

What it is: names only.  What it is not: where they are written.

Read next: ``millstream/connectors/postgres/sink.py``, ``postgres_source.py``.
"""

from __future__ import annotations

from millstream.connectors.postgres.sink import PostgresSink
from millstream.connectors.postgres.source import PostgresSource

__all__ = ["PostgresSink", "PostgresSource"]
