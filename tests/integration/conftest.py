"""Whole jobs in this process: see ``job_runs.py``."""

from __future__ import annotations

import sys
from pathlib import Path

# So that ``tests.integration.job_runs`` is found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))
