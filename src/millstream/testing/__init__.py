"""The test kit, for programs and connectors as well as for Millstream itself.

What it is: one module per tool; import what you need from its module.

What it is not: needed at run time.

Read next: ``testing/harness.py`` (operators without Spark), ``testing/crash.py`` (kill and
restart).
"""

from __future__ import annotations

__all__: list[str] = []
