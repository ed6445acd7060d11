"""The sink of ``connectors/embedded/duckdb.py`` under an import path like PyFlink's."""

from __future__ import annotations

from millstream.connectors.embedded.duckdb import DuckDbSink

__all__ = ["DuckDbSink"]
