"""The source of ``connectors/basic/data_generator.py`` under PyFlink's import path."""

from __future__ import annotations

from millstream.connectors.basic.data_generator import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
