"""The targets of the Makefile: each is there once, and make knows how to reach it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_all_promised_targets_are_there() -> None:
    promised = {"install", "demo", "test", "lint", "soak", "attack", "bench", "docs"}
    assert promised <= set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_make_can_do(target: str) -> None:
    # Nothing is run.
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
