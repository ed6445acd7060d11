"""Sources and sinks: the contracts, and one module per system.

What it is: ``source.py`` and ``sink.py`` say what a connector implements; every other module is a
connector or a part of one.  Nothing here knows Spark.

What it is not: what users import; ``datastream/connectors/`` has PyFlink's paths.

Read next: ``source.py``, ``sink.py``, then ``files.py`` and ``file_sink.py``.
"""

from __future__ import annotations

__all__: list[str] = []
