"""The status of a job under PyFlink's import path."""

from __future__ import annotations

from millstream.execution.job_client import JobStatus

__all__ = ["JobStatus"]
