"""The sink of ``connectors/lakehouse/delta.py`` under an import path like PyFlink's."""

from millstream.connectors.lakehouse.delta import DeltaSink as DeltaSink
