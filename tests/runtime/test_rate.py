"""The epoch sizer on simulated machines: seconds = fixed + units x per_unit."""

from __future__ import annotations

import random

import pytest

from millstream.execution.planned_source import EpochSizer


def _run(sizer: EpochSizer, fixed: float, per_unit: float, noise: float, seed: int) -> float:
    """Eighty epochs of a backlog; returns the mean duration of the last twenty."""
    chance = random.Random(seed)
    durations = []
    for _ in range(80):
        units = sizer.limit
        sizer.planned(units, backlog=True)
        seconds = (fixed + units * per_unit) * chance.uniform(1 - noise, 1 + noise)
        durations.append(seconds)
        sizer.finished(seconds)
    return sum(durations[-20:]) / 20


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("initial", [1_000, 100_000, 10_000_000])
def test_a_backlog_is_read_in_epochs_of_a_few_seconds(initial: int, seed: int) -> None:
    sizer = EpochSizer(initial, 1.0)
    mean = _run(sizer, fixed=0.4, per_unit=1 / 300_000, noise=0.1, seed=seed)
    assert 2.0 < mean < 9.0, f"seed {seed}: {mean} s"


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_machine_does_not_make_epochs_of_single_records(seed: int) -> None:
    sizer = EpochSizer(4_096, 0.2)
    _run(sizer, fixed=4.0, per_unit=1 / 10_000, noise=0.3, seed=seed)
    assert sizer.limit >= 4_096 // 64


def test_no_backlog_and_short_epochs_change_nothing() -> None:
    sizer = EpochSizer(1_000, 1.0)
    for _ in range(5):
        sizer.planned(10, backlog=False)
        sizer.finished(0.2)
    assert sizer.limit == 1_000


def test_a_short_first_epoch_of_a_backlog_makes_the_second_larger() -> None:
    sizer = EpochSizer(1_000, 1.0)
    sizer.planned(1_000, backlog=True)
    sizer.finished(0.5)
    assert sizer.limit == 4_000


def test_a_long_first_epoch_does_not_make_the_second_smaller() -> None:
    sizer = EpochSizer(1_000, 1.0)
    sizer.planned(1_000, backlog=True)
    sizer.finished(20.0)
    assert sizer.limit == 1_000
