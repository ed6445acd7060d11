"""The SQLite sink under an import path like PyFlink's.

What it is: a name only.  What it is not: where it is written.

Read next: ``millstream/connectors/sqlite_sink.py``.
"""

from __future__ import annotations

from millstream.connectors.sqlite_sink import SqliteSink

__all__ = ["SqliteSink"]
