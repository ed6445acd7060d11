"""Futures under PyFlink's import path."""

from millstream.execution.job_client import CompletableFuture as CompletableFuture
