"""Source and sinks of ``connectors/postgres/`` under an import path like PyFlink's."""

from millstream.connectors.postgres.sink import PostgresSink as PostgresSink
from millstream.connectors.postgres.source import PostgresSource as PostgresSource
