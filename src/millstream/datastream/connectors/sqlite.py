"""The sink of ``connectors/embedded/sqlite.py`` under an import path like PyFlink's."""

from millstream.connectors.embedded.sqlite import SqliteSink as SqliteSink
