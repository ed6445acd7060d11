"""What an expression may ask of the world around it: time zone, clock, parameters of the job.

What it is: a record that operators make once per batch, so that all expressions of a batch agree
on what time it is.

What it is not: state; functions that keep some (RAND with a seed) keep it in their evaluator.

Read next: ``expressions/evaluator.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.functions.functions import RuntimeContext

__all__ = ["AsyncCalls", "EvaluationContext"]


@dataclass(frozen=True)
class AsyncCalls:
    """How asynchronous scalar functions of users are called: ``table.exec.async-scalar.*``."""

    concurrency: int = 10
    #: Milliseconds for a row, with all attempts.
    timeout: int = 180_000
    #: How often a call that raises is repeated, and milliseconds before each repetition.
    retries: int = 3
    retry_delay: int = 100


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What expressions of one batch are evaluated with.

    Args:
        time_zone: the session's time zone (``table.local-time-zone``), a name or an offset such
            as ``GMT+02:00``.
        processing_time: milliseconds since 1970: PROCTIME(), and CURRENT_TIMESTAMP of a stream.
        query_start_time: milliseconds since 1970 at which the query began: CURRENT_TIMESTAMP in
            batch mode; None: as ``processing_time``.
        current_watermark: milliseconds since 1970, None as long as there is none.
        job_parameters: ``pipeline.global-job-parameters``.
        async_calls: how asynchronous functions of users are called.
        runtime: of the task, for functions of users; None where expressions do not know it.
    """

    time_zone: str = "UTC"
    processing_time: int = 0
    query_start_time: int | None = None
    current_watermark: int | None = None
    job_parameters: Mapping[str, str] = field(default_factory=dict)
    async_calls: AsyncCalls = field(default_factory=AsyncCalls)
    runtime: RuntimeContext | None = None

    def at(self, processing_time: int, current_watermark: int | None = None) -> EvaluationContext:
        """The same for a batch that is processed at that time, milliseconds since 1970."""
        return replace(self, processing_time=processing_time, current_watermark=current_watermark)

    @property
    def now(self) -> int:
        """Milliseconds since 1970 as CURRENT_TIMESTAMP gives it."""
        start = self.query_start_time
        return self.processing_time if start is None else start
