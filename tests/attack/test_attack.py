"""Fifty faults at random, of every kind, on one job with three exactly-once sinks.

On Spark, an epoch at a time; and on slots, where tasks live on.

``make attack`` runs it (``ATTACK_FAULTS``, ``ATTACK_SEED``), prints each recovery and writes the
table of ``docs/development/fault-injection.md``; a few faults are among the ordinary tests.
"""

from __future__ import annotations

import logging
import os
import random
import time
from pathlib import Path
from typing import Final

import pytest
from tests.attack.attack import attacked
from tests.attack.faults import FAULTS, ON_SLOTS
from tests.attack.report import write_page

pytestmark = pytest.mark.extended

SEED: Final = int(os.environ.get("MILLSTREAM_ATTACK_SEED", "0"))
FAULT_COUNT: Final = int(os.environ.get("MILLSTREAM_ATTACK_FAULTS", "50"))
ONLY: Final = [name for name in os.environ.get("MILLSTREAM_ATTACK_ONLY", "").split(",") if name]
#: Whether the disk can be made full.
CAN_MOUNT: Final = os.geteuid() == 0


def _choose(count: int, chance: random.Random, *, on_slots: bool = False) -> list[str]:
    """Each kind as often as the others, in random order."""
    known = ON_SLOTS if on_slots else FAULTS
    kinds = ONLY or [name for name in known if CAN_MOUNT or name != "disk full"]
    chosen: list[str] = []
    while len(chosen) < count:
        chosen += chance.sample(kinds, len(kinds))
    return chosen[:count]


def _attack(directory: Path, seed: int, faults: list[str], *, on_slots: bool = False) -> None:
    print(f"\nreplay with MILLSTREAM_ATTACK_SEED={seed} MILLSTREAM_ATTACK_FAULTS={len(faults)}")
    # It tells of each connection that a crashed server has closed.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with attacked(directory, seed, on_slots=on_slots) as attack:
        for name in faults:
            attack.rest(attack.chance.uniform(0.5, 4.0))
            attack.run_fault(name)
        attack.finish()
        orders = len(attack.feeder.answer)
        print(f"{len(faults)} faults, {orders} orders, nothing lost, doubled or out of order")
        page = os.environ.get("MILLSTREAM_ATTACK_PAGE")
        if page:
            write_page(Path(page), attack.recoveries, seed, orders, on_slots=on_slots)


@pytest.mark.timeout(1200)
@pytest.mark.spark
def test_some_faults(tmp_path: Path) -> None:
    _attack(tmp_path, SEED or 1, ["everything killed"])


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_fifty_faults(tmp_path: Path) -> None:
    seed = SEED or int(time.time())
    _attack(tmp_path, seed, _choose(FAULT_COUNT, random.Random(seed)))


@pytest.mark.timeout(600)
def test_some_faults_on_slots(tmp_path: Path) -> None:
    _attack(tmp_path, SEED or 1, ["link cut"], on_slots=True)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_fifty_faults_on_slots(tmp_path: Path) -> None:
    seed = SEED or int(time.time())
    chosen = _choose(FAULT_COUNT, random.Random(seed), on_slots=True)
    _attack(tmp_path, seed, chosen, on_slots=True)
