"""Samples of parametrised cases: ``make test`` runs some, ``make soak`` all.

What it is not: a choice by chance: which cases are in the sample is the same in all processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["every"]


def every(step: int, cases: Iterable[object]) -> list[Any]:
    """The first of each ``step`` cases; the rest is for a soak."""
    return [
        each if number % step == 0 else pytest.param(each, marks=pytest.mark.soak)
        for number, each in enumerate(cases)
    ]
