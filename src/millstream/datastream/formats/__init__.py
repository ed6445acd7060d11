"""Formats of files under PyFlink's import paths (``pyflink.datastream.formats``).

What it is: a package of names and of PyFlink's ways to describe a format.
What it is not: readers and writers; these are in ``millstream/connectors/``.

Read next: ``formats/csv.py``.
"""

from __future__ import annotations

__all__: list[str] = []
