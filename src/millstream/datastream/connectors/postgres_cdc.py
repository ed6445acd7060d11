"""Changes of a PostgreSQL table, with the names of Flink CDC's builder."""

from millstream.connectors.postgres.cdc import PostgresCdcSource as PostgresCdcSource
from millstream.connectors.postgres.cdc import PostgresCdcSourceBuilder as PostgresCdcSourceBuilder
from millstream.connectors.postgres.cdc import StartupMode as StartupMode
