"""The id of a job under PyFlink's import path."""

from millstream.execution.job_client import JobID as JobID
