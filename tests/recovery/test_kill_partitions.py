"""kill -9 of a SQL job that commits partitions and replaces tables; it goes on elsewhere.

What it is: one statement set whose rows go to partitions that are committed by the watermark, and
in the place of a partitioned and of a whole table.  Each start has another engine and another
parallelism than the one before.  After each kill nothing is there twice, no partition was committed
before all its rows were there, and new rows of a replaced table are there only if the old ones are
gone; in the end all are right.

A chain is replayed with ``MILLSTREAM_KILL_SEEDS=<seed> pytest
tests/recovery/test_kill_partitions.py``.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import pytest
from tests.recovery.partition_job import ZONE
from tests.recovery.test_kill_driver import FIRST, POINTS, SEEDS
from tests.recovery.test_kill_sql import STARTS, SqlChain, kill_at

from millstream.crash_points import points_of

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.slow

RECORDS: Final = 150
OF_PARTITIONS: Final = points_of("partition commit", "file sink")
#: In the order in which a run passes them: the next goes on where the one before was killed.
OF_TABLES: Final = ["overwrite.delete.before", "overwrite.delete.after", "overwrite.move.after"]
_START: Final = dt.datetime(2024, 1, 1, 18, 29, 57, tzinfo=dt.UTC)  # 3 s before the day ends there


class PartitionChain(SqlChain):
    """The job of partitions that is started again and again, each time on another engine."""

    job = Path(__file__).parent / "partition_job.py"

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.seed, self.starts = directory, seed, 0
        self.master, self.parallelism = STARTS[seed % len(STARTS)]
        chance = random.Random(seed)
        # One file: what a second one holds is late.
        given: list[dict[str, object]] = []
        self.hours: dict[tuple[str, str], set[int]] = {}
        self.parts: dict[str, set[int]] = {"c": {-3}}
        for number in range(RECORDS):
            late = dt.timedelta(milliseconds=30 * number + chance.randrange(1500))
            moment, key = _START + late, chance.choice("abd")
            text = moment.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds") + "Z"
            given.append({"id": number, "k": key, "ts": text})
            local = moment.astimezone(ZoneInfo(ZONE))
            place = (local.strftime("%Y-%m-%d"), local.strftime("%H:%M:%S"))
            self.hours.setdefault(place, set()).add(number)
            self.parts.setdefault(key, set()).add(number)
        self._write(directory / "input", [given])
        output = directory / "output"
        for number, old in enumerate(("parts/k=a", "parts/k=b", "parts/k=c", "whole"), 1):
            (output / old).mkdir(parents=True)
            (output / old / "old.jsonl").write_text(json.dumps({"id": -number}) + "\n")

    def check(self, *, whole: bool) -> None:
        output = self.directory / "output"
        self._check_hours(output / "hours", whole=whole)
        parts = {key: ids(output / "parts" / f"k={key}") for key in "abcd"}
        assert parts["c"] == [-3], f"{self}: a partition without new rows has changed"
        for table, found in {"parts": parts, "whole": {"": ids(output / "whole")}}.items():
            seen = [each for rows in found.values() for each in rows if each >= 0]
            assert len(seen) == len(set(seen)), f"{self}: {table}: a row is there twice"
            replaced = [each for key, rows in found.items() if key != "c" for each in rows]
            old = [each for each in replaced if each < 0]
            assert not (seen and old), f"{self}: {table}: {old} are there beside new rows"
        for key, rows in parts.items():
            new = {each for each in rows if each >= 0}
            assert new <= self.parts[key], f"{self}: rows in a wrong partition"
            done = (output / "parts" / f"k={key}" / "_SUCCESS").exists()
            assert not done or set(rows) == self.parts[key], f"{self}: {key} was committed early"
        if whole:
            assert {key: set(found) for key, found in parts.items()} == self.parts, str(self)
            assert sorted(ids(output / "whole")) == list(range(RECORDS)), str(self)
            names = {each.name for each in output.rglob("*")}
            assert not [each for each in names if "pending" in each or each == "aside"], str(self)

    def _check_hours(self, path: Path, *, whole: bool) -> None:
        seen = {}
        for place in path.glob("[!.]*/*"):
            day, second = (each.partition("=")[2].replace("%3A", ":") for each in place.parts[-2:])
            found = seen[(day, second)] = ids(place)
            assert len(found) == len(set(found)), f"{self}: a row of {place} is there twice"
            assert set(found) <= self.hours[(day, second)], f"{self}: {place} has wrong rows"
            if (place / "_SUCCESS").exists():
                assert set(found) == self.hours[(day, second)], f"{self}: {place} is not complete"
        noted = self.directory / "output" / "noted"
        lines = noted.read_text().splitlines() if noted.exists() else []
        told = [json.loads(line) for line in lines]
        for day, second, rows in told:
            wanted = sorted(self.hours[(day, second)])
            assert sorted(rows) == wanted, f"{self}: {day} {second} was committed early"
        times = Counter((day, second) for day, second, _ in told)
        assert all(count <= self.starts for count in times.values()), f"{self}: {times}"
        if whole:
            assert {place: set(found) for place, found in seen.items()} == self.hours, str(self)
            assert times.keys() == self.hours.keys(), f"{self}: some are not committed"
            assert all((each / "_SUCCESS").exists() for each in path.glob("d=*/*")), str(self)


def ids(directory: Path) -> list[int]:
    """The rows that a reader of a directory sees."""
    files = directory.glob("[!._]*.jsonl")
    return [json.loads(line)["id"] for each in files for line in each.read_text().splitlines()]


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_partitions_are_killed_and_go_on_with_another_engine(seed: int, tmp_path: Path) -> None:
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed}")
    chance = random.Random(seed)
    chain = PartitionChain(tmp_path, seed)
    assert _kill_at(chain, [chance.choice(OF_PARTITIONS), chance.choice(OF_TABLES)], chance) == 2
    chain.turn()
    assert chain.start(slow=False).exit_code == 0


def _kill_at(chain: PartitionChain, points: Iterable[str], chance: random.Random) -> int:
    """How often it was killed: one that was killed near its end passes no more points."""
    kills = 0
    for point in points:
        chain.turn()
        passing = 1 if point.startswith("overwrite.delete.") else chance.choice([1, 2])
        kills += chain.start(f"{point}:{passing}").killed
    return kills


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("forks")
def test_soak_of_partitions(tmp_path: Path) -> None:
    """All points of both, points of every job, and random moments."""
    end = time.monotonic() + float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    seed = int(os.environ.get("MILLSTREAM_KILL_SEEDS", str(int(time.time()))).split(",")[0])
    kills = 0
    while time.monotonic() < end:
        chance = random.Random(seed)
        chain = PartitionChain(tmp_path / str(seed), seed)
        points = sorted({*POINTS, *points_of("pipelined task")} - set(FIRST))
        kill_at(chain, [chance.choice(FIRST), *chance.sample(points, 2)], chance)
        kills += 3
        kills += _kill_at(chain, [*chance.sample(OF_PARTITIONS, 2), *OF_TABLES], chance)
        for _ in range(2):
            chain.master = chance.choice(("local", "pipelined"))
            kills += chain.start(kill_after=chance.uniform(1.0, 4.0)).killed
        chain.turn()
        assert chain.start(slow=False).exit_code == 0
        print(f"seed {seed}: {kills} kills so far, nothing lost, nothing twice")
        seed += 1
    print(f"{kills} kills of jobs of partitions")
