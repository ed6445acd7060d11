"""The model of time and windows, and the tests against it: see ``window_model.py``."""

from __future__ import annotations

import sys
from pathlib import Path

# So that ``tests.model.window_model`` is found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))
