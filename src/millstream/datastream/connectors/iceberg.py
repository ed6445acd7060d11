"""Sink and source of ``connectors/lakehouse/iceberg.py`` under an import path like PyFlink's."""

from millstream.connectors.lakehouse.iceberg import IcebergSink as IcebergSink
from millstream.connectors.lakehouse.iceberg import IcebergSource as IcebergSource
