"""Settings of a program under PyFlink's import path."""

from millstream.configuration.execution_config import ExecutionConfig as ExecutionConfig
