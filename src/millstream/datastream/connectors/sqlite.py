"""The sink of ``connectors/embedded/databases.py`` under an import path like PyFlink's."""

from millstream.connectors.embedded.databases import SqliteSink as SqliteSink
