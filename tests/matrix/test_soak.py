"""All cases of the crash matrix, seed after seed, for as long as asked: ``make soak``.

First those of tasks that end with each epoch, then those of tasks that live on.

``MILLSTREAM_SOAK_SECONDS`` says how long, ``MILLSTREAM_MATRIX_SEED`` the first seed (default: the
time), ``MILLSTREAM_MATRIX_PAGE`` a page whose table is replaced.
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.matrix.matrix_case import (
    Case,
    CaseFailedError,
    all_cases,
    all_slot_cases,
    two_regions,
)
from tests.matrix.matrix_table import make_table, write_into

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.matrix.conftest import Matrix


class Soak:
    """Runs cases side by side until the time is over."""

    def __init__(
        self, matrix: Matrix, cases: Callable[[int], list[Case]], seconds: float, seed: int
    ) -> None:
        self.passed: list[Case] = []
        self.failed: list[Case] = []
        self.seeds = 0
        self._matrix = matrix
        self._cases = cases
        self._end = time.monotonic() + seconds
        self._seed = seed
        self._left: list[Case] = []
        self._lock = threading.Lock()

    def run(self) -> None:
        """Run one thread per processor; each waits for its drivers most of the time."""
        threads = os.cpu_count() or 1
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(self._run_cases) for _ in range(threads)]:
                done.result()

    def _run_cases(self) -> None:
        while (case := self._next()) is not None:
            try:
                self._matrix.run(case)
            except CaseFailedError as error:
                self.failed.append(case)
                print(f"FAILED, replay with MILLSTREAM_MATRIX_CASES={case}: {error}")
            else:
                self.passed.append(case)

    def _next(self) -> Case | None:
        with self._lock:
            if time.monotonic() > self._end:
                return None
            if not self._left:
                seed = self._seed + self.seeds
                self.seeds += 1
                print(f"seed {seed}; so far {len(self.passed)} passed, {len(self.failed)} failed")
                self._left = self._cases(seed)
                random.Random(seed).shuffle(self._left)
            return self._left.pop()


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "cases",
    [all_cases, all_slot_cases, two_regions],
    ids=["epochs", "slots", "slots with two regions"],
)
def test_soak(matrix: Matrix, cases: Callable[[int], list[Case]]) -> None:
    seconds = float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    seed = int(os.environ.get("MILLSTREAM_MATRIX_SEED", time.time()))
    soak = Soak(matrix, cases, seconds, seed)
    soak.run()
    table = make_table(soak.passed, soak.failed, soak.seeds)
    print(table)
    page = os.environ.get("MILLSTREAM_MATRIX_PAGE")
    if page and cases is not two_regions:
        write_into(Path(page), table, on_slots=cases is all_slot_cases)
    assert not soak.failed
    assert soak.passed
