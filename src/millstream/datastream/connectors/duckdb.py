"""The sink of ``connectors/embedded/duckdb.py`` under an import path like PyFlink's."""

from millstream.connectors.embedded.duckdb import DuckDbSink as DuckDbSink
