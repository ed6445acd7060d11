"""The split log: the same numbers for everybody, few files, nothing found again."""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.contracts.source import Split
from millstream.crash_points import arm
from millstream.errors import CorruptCheckpointError, UnknownFormatError
from millstream.execution.planned_source import MOST_FILES, NumberRanges, SplitLog

if TYPE_CHECKING:
    from pathlib import Path


def log_in(directory: Path) -> SplitLog:
    return SplitLog(LocalStorage(directory, fsync=False))


def files_of(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "sources" / "s").iterdir())


def fill(log: SplitLog, count: int, first: int = 0) -> None:
    table = log.load("s")
    for number in range(first, first + count):
        table = log.append("s", table, [Split(f"split-{number}", {"n": number})])
        log.compact("s", lambda n: n != 7)


def test_files_are_compacted_and_nothing_is_found_again(tmp_path: Path) -> None:
    count = 40 * MOST_FILES + 5
    fill(log_in(tmp_path), count)
    assert len(files_of(tmp_path)) < MOST_FILES + count.bit_length()
    table = log_in(tmp_path).load("s")
    assert table.count == len(table.seen) == count
    assert all(f"split-{number}" in table.seen for number in range(count))
    assert f"split-{count}" not in table.seen
    # Only what is not read to its end is kept whole, wherever it is.
    compacted = [number for number in table.splits if number < count - MOST_FILES]
    assert compacted == [7]
    assert table.splits[7] == Split("split-7", {"n": 7})
    size = sum(path.stat().st_size for path in (tmp_path / "sources" / "s").iterdir())
    assert size < 60 * count


@pytest.mark.parametrize("point", ["splits.compact.before", "splits.compact.after"])
def test_a_crash_while_compacting(tmp_path: Path, point: str) -> None:
    class Crashed(Exception):  # noqa: N818 - it stands for a kill
        pass

    def crash(name: str) -> None:
        raise Crashed(name)

    arm(point, crash)
    try:
        with pytest.raises(Crashed):
            fill(log_in(tmp_path), 2 * MOST_FILES)
    finally:
        arm("")
    table = log_in(tmp_path).load("s")
    assert table.count == MOST_FILES
    fill(log_in(tmp_path), 3 * MOST_FILES, first=table.count)
    after = log_in(tmp_path).load("s")
    assert after.count == len(after.seen) == 4 * MOST_FILES
    # What the crash has left over is gone too.
    assert len(files_of(tmp_path)) <= MOST_FILES + 3


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(20))
def test_a_fenced_driver_changes_no_number(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.execution.planned_source.MOST_FILES", 3)
    chance = random.Random(seed)
    logs = [log_in(tmp_path), log_in(tmp_path)]
    tables = [log.load("s") for log in logs]
    numbers: dict[int, str] = {}
    for step in range(200):
        # The older one falls asleep again and again, and wakes up with what it knew.
        who = chance.randrange(2) if step // 10 % 3 == 0 else 1
        found = [Split(f"{who}-{step}-{i}") for i in range(chance.randrange(1, 3))]
        tables[who] = logs[who].append("s", tables[who], found)
        if chance.random() < 0.8:
            logs[who].compact("s", lambda n: n % 5 == 0)
        for number, split in tables[who].splits.items():
            assert numbers.setdefault(number, split.id) == split.id
    table = log_in(tmp_path).load("s")
    assert table.count >= tables[1].count
    for number, name in numbers.items():
        assert name in table.seen
        assert number % 5 == 0 or table.splits[number].id == name
    assert len(table.seen) == table.count


def test_damaged_and_newer_parts(tmp_path: Path) -> None:
    fill(log_in(tmp_path), MOST_FILES)
    (name,) = files_of(tmp_path)
    path = tmp_path / "sources" / "s" / name
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "version": 2}))
    with pytest.raises(UnknownFormatError, match="format version 2, this release reads 1"):
        log_in(tmp_path).load("s")
    path.write_text(json.dumps({**value, "ids": "?"}))
    with pytest.raises(CorruptCheckpointError, match="is damaged"):
        log_in(tmp_path).load("s")


@pytest.mark.parametrize("seed", range(5))
def test_oracle_number_ranges(seed: int) -> None:
    chance = random.Random(seed)
    ranges, plain = NumberRanges(), set[int]()
    for number in chance.sample(range(200), 150):
        ranges.add(number)
        plain.add(number)
        assert NumberRanges([(a, b) for a, b in ranges.to_json()]).to_json() == ranges.to_json()
    assert {number for number in range(-5, 205) if number in ranges} == plain
    pairs = ranges.to_json()
    assert all(a[1] < b[0] for a, b in itertools.pairwise(pairs))
    assert sum(stop - first for first, stop in pairs) == len(plain)
    first = pairs[0][0]
    assert ranges.take_range_at(first - 1) == first - 1
    assert ranges.take_range_at(first) == pairs[0][1]
    assert ranges.to_json() == pairs[1:]
