"""The SQLite sink under an import path like PyFlink's.

What it is: a name only.  What it is not: where it is written.

Read next: ``millstream/connectors/embedded/sqlite.py``.
"""

from __future__ import annotations

from millstream.connectors.embedded.sqlite import SqliteSink

__all__ = ["SqliteSink"]
