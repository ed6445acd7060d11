"""The client of a running job under PyFlink's import path."""

from millstream.checkpoint.savepoint import SavepointFormatType as SavepointFormatType
from millstream.execution.job_client import JobClient as JobClient
