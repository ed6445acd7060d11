"""Futures under PyFlink's import path."""

from __future__ import annotations

from millstream.execution.job_client import CompletableFuture

__all__ = ["CompletableFuture"]
