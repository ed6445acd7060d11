"""The targets of the Makefile: each is there once, and make knows how to reach it."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z-]+):.*## ", TEXT, re.MULTILINE)
#: Which decide where a test runs.
MARKS = ["slow", "extended", "spark", "smoke", "soak"]


def test_all_promised_targets_are_there() -> None:
    promised = {"install", "demo", "test", "test-all", "lint", "soak", "attack", "bench", "docs"}
    assert promised <= set(TARGETS)


def test_two_halves_are_all_tests_but_the_soak() -> None:
    halves = {
        name: compile(found, name, "eval")
        for name, found in re.findall(r"^(QUICK|REST) := (.*)$", TEXT, re.MULTILINE)
    }
    for values in itertools.product([False, True], repeat=len(MARKS)):
        marks = dict(zip(MARKS, values, strict=True))
        runs = [bool(eval(halves[name], {}, marks)) for name in ("QUICK", "REST")]
        assert sum(runs) == (not marks["soak"]), marks


@pytest.mark.parametrize("target", TARGETS)
def test_make_can_do(target: str) -> None:
    # Nothing is run.
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
