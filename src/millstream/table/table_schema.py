"""TableSchema under PyFlink's path."""

from millstream.sql.catalog.schema import TableSchema as TableSchema
