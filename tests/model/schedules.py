"""How whole jobs are run, at random, and what they say about late records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.job_runs import Schedule

if TYPE_CHECKING:
    import random

    from millstream.checkpoint.model import Manifest

__all__ = ["dropped", "random_schedule"]


def random_schedule(chance: random.Random) -> Schedule:
    """Cuts, stops and rescales of a job at random."""
    return Schedule(
        limits=(*(chance.randrange(1, 25) for _ in range(chance.randrange(4))), 20),
        seed=chance.randrange(1000),
        backend=chance.choice(["hashmap"] * 5 + ["rocksdb"]),
        parallelisms=tuple(chance.choice([1, 2, 3]) for _ in range(chance.choice([1, 1, 2, 3]))),
        epochs_per_run=chance.choice([1, 2, 3]),
        forget_local=chance.random() < 0.5,
        live_on=tuple(chance.random() < 0.5 for _ in range(3)),
    )


def dropped(manifest: Manifest) -> int:
    """How many records were dropped because they came too late."""
    return sum(
        count for name, count in manifest.totals.items() if name.endswith("numLateRecordsDropped")
    )
