"""The DuckDB sink under an import path like PyFlink's.

What it is: a name only.  What it is not: where it is written.

Read next: ``millstream/connectors/embedded/duckdb.py``.
"""

from __future__ import annotations

from millstream.connectors.embedded.duckdb import DuckDbSink

__all__ = ["DuckDbSink"]
