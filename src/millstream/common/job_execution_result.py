"""The result of a job under PyFlink's import path."""

from __future__ import annotations

from millstream.execution.job_client import JobExecutionResult

__all__ = ["JobExecutionResult"]
