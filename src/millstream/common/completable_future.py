"""Futures under PyFlink's import path."""

from __future__ import annotations

from millstream.execution.completable_future import (
    CompletableFuture,
)

__all__ = [
    "CompletableFuture",
]
