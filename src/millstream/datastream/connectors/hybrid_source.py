"""The source of ``connectors/basic/hybrid_source.py`` under PyFlink's import path."""

from millstream.connectors.basic.hybrid_source import HybridSource as HybridSource
from millstream.connectors.basic.hybrid_source import HybridSourceBuilder as HybridSourceBuilder
