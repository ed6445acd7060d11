"""The sink of ``connectors/lakehouse/iceberg.py`` under an import path like PyFlink's."""

from millstream.connectors.lakehouse.iceberg import IcebergSink as IcebergSink
