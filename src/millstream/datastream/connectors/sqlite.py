"""The sink of ``connectors/embedded/databases.py`` under an import path like PyFlink's."""

from __future__ import annotations

from millstream.connectors.embedded.databases import SqliteSink

__all__ = ["SqliteSink"]
