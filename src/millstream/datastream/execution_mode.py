"""Execution modes under PyFlink's import path."""

from millstream.configuration.execution_config import RuntimeExecutionMode as RuntimeExecutionMode
