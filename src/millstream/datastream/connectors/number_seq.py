"""``NumberSequenceSource`` under PyFlink's import path.

What it is: a name only.  What it is not: where it is written.

Read next: ``millstream/connectors/basic/number_sequence.py``.
"""

from __future__ import annotations

from millstream.connectors.basic.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
