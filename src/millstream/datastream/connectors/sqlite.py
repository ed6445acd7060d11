"""The sink of ``connectors/embedded/source.py`` under an import path like PyFlink's."""

from __future__ import annotations

from millstream.connectors.embedded.source import SqliteSink

__all__ = ["SqliteSink"]
