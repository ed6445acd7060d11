"""Formats of files and messages under PyFlink's import paths.

Read next: ``connectors/formats/``, which reads and writes them.
"""

from __future__ import annotations

__all__: list[str] = []
