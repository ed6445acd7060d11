"""The sink of ``connectors/embedded/sqlite.py`` under an import path like PyFlink's."""

from __future__ import annotations

from millstream.connectors.embedded.sqlite import SqliteSink

__all__ = ["SqliteSink"]
