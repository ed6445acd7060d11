"""Source and sinks of ``connectors/postgres/`` under an import path like PyFlink's."""

from __future__ import annotations

from millstream.connectors.postgres.sink import PostgresSink
from millstream.connectors.postgres.source import PostgresSource

__all__ = ["PostgresSink", "PostgresSource"]
