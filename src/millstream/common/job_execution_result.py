"""The result of a job under PyFlink's import path."""

from millstream.execution.job_client import JobExecutionResult as JobExecutionResult
