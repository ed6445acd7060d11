"""Sinks and sources of databases: see ``targets.py`` and ``server.py``."""

from __future__ import annotations

import sys
from pathlib import Path

# So that ``tests.databases`` is found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))
