"""What a running job tells about itself.

Read next: ``metrics/progress.py``.
"""

from __future__ import annotations

from millstream.metrics.progress import ProgressReporter, create_progress_reporter

__all__ = ["ProgressReporter", "create_progress_reporter"]
