"""The source of ``connectors/basic/number_sequence.py`` under PyFlink's import path."""

from __future__ import annotations

from millstream.connectors.basic.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
