"""ExplainDetail: what a plan shows beside its nodes."""

from __future__ import annotations

from enum import Enum


class ExplainDetail(Enum):
    """What a plan shows beside its nodes."""

    ESTIMATED_COST = 0
    CHANGELOG_MODE = 1
    JSON_EXECUTION_PLAN = 2
    PLAN_ADVICE = 3
