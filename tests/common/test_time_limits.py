"""The time limit of tests: what a busy or slow machine adds is not theirs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import time_limits
from tests.support.examples import FULL, QUICK
from tests.support.time_limits import LIMIT, Moment, check, pace

START = Moment(wall=100.0, own=50.0, children=70.0, idle=(20.0, 30.0))


def item(*marks: str) -> Any:
    """A test with marks."""
    return SimpleNamespace(get_closest_marker=lambda name: name in marks)


def use_profile(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    current = SimpleNamespace(get_current_profile_name=lambda: name)
    monkeypatch.setattr(time_limits, "settings", current)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the examples be those of ``make test``, whatever this run tries."""
    use_profile(monkeypatch, QUICK)


def after(wall: float, own: float, children: float, *idle: float) -> Moment:
    """What the clocks show so much later than at the start."""
    cores = tuple(then + more for then, more in zip(START.idle, idle, strict=True))
    return Moment(START.wall + wall, START.own + own, START.children + children, cores)


@pytest.mark.parametrize(
    ("later", "seconds"),
    [
        (after(60.0, 4.0, 3.0, 1.0, 0.5), 4.0),  # others had the cores
        (after(12.0, 0.1, 0.0, 11.0, 11.9), 11.9),  # it slept on a calm machine
        (after(12.0, 11.5, 0.0, 0.3, 11.8), 11.8),  # it computed on a calm machine
        (after(60.0, 11.5, 0.0, 0.0, 0.0), 11.5),  # and on a busy one
        (after(60.0, 0.1, 24.0, 0.0, 0.0), 12.0),  # its processes did
        (after(5.0, 0.1, 0.0, 9.0, 9.0), 5.0),  # ticks of the system are coarse
    ],
)
def test_what_a_test_is_to_blame_for(
    later: Moment, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert later.since(START) == pytest.approx(seconds)


def test_where_the_system_does_not_tell_when_it_was_idle() -> None:
    before, later = Moment(0.0, 0.0, 0.0, ()), Moment(60.0, 7.0, 0.0, ())
    assert later.since(before) == 7.0


def test_clocks_are_those_of_this_process() -> None:
    before = Moment.now()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert 0.1 <= Moment.now().since(before) <= Moment.now().wall - before.wall


def test_a_test_over_the_limit_is_told_what_to_do() -> None:
    check(item(), LIMIT, pace=lambda: 1.0)
    with pytest.raises(pytest.fail.Exception, match=r"took 10\.1 s .* has 10 s.*mark it `slow`"):
        check(item(), LIMIT + 0.1, pace=lambda: 1.0)


def test_a_slow_machine_has_more_time() -> None:
    check(item(), 2 * LIMIT, pace=lambda: 2.5)
    with pytest.raises(pytest.fail.Exception, match="has 25 s"):
        check(item(), 3 * LIMIT, pace=lambda: 2.5)
    assert pace() >= 1.0


@pytest.mark.parametrize("mark", ["slow", "extended", "soak", "spark"])
def test_marked_tests_take_as_long_as_they_like(mark: str) -> None:
    check(item(mark), 1000 * LIMIT, pace=lambda: 1.0)


def test_runs_of_all_examples_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    use_profile(monkeypatch, FULL)
    check(item(), 1000 * LIMIT, pace=lambda: 1.0)
