"""The client of a running job under PyFlink's import path."""

from __future__ import annotations

from millstream.execution.job_client import JobClient

__all__ = ["JobClient"]
