"""The client of a running job under PyFlink's import path."""

from millstream.execution.job_client import JobClient as JobClient
