"""Sources and sinks, one package per system; their contracts are in ``contracts/``.

Nothing here knows an engine.  What users import is in ``datastream/connectors/``.

Read next: ``contracts/source.py``, ``contracts/sink.py``, ``connectors/files/sink.py``.
"""

from __future__ import annotations

__all__: list[str] = []
