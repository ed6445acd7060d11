"""What operators of tables are made with, beside the plan.

What it is: the session's options, as values.
What it is not: their names (``configuration/table_options.py``).

Read next: ``sql/lowering/lowering.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.expressions.context import AsyncCalls

__all__ = ["LoweringOptions"]


@dataclass(frozen=True)
class LoweringOptions:
    """Options of the session that operators are made with; times in milliseconds."""

    time_zone: str = "UTC"
    state_ttl: int = 0
    mini_batch: bool = False
    idle_timeout: int | None = None
    drop_nulls: bool = False
    #: Whether what is written is brought to the length of its column.
    trim_pad: bool = False
    query_start: int = 0
    job_parameters: dict[str, str] = field(default_factory=dict)
    async_calls: AsyncCalls = field(default_factory=AsyncCalls)
