"""Some of many like cases for ``make test``, the others for ``make test-all``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["sampled"]


def sampled(cases: Iterable[object], count: int) -> list[object]:
    """Mark all cases but the first ``count`` as ``extended``.

    Args:
        cases: values for one argument of a test.
        count: how many of them ``make test`` runs.
    """
    return [
        case if number < count else pytest.param(case, marks=pytest.mark.extended)
        for number, case in enumerate(cases)
    ]
