"""Sink and source of ``connectors/lakehouse/delta.py`` under an import path like PyFlink's."""

from millstream.connectors.lakehouse.delta import DeltaSink as DeltaSink
from millstream.connectors.lakehouse.delta import DeltaSource as DeltaSource
