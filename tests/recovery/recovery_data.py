"""Input and independent answer of the kill tests."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

FILES = 3
KEYS_PER_FILE = 5
TIMEOUT = 700

Event = dict[str, int | str]


def write_input(directory: Path, seed: int, records: int) -> list[Event]:
    """Write ``records`` events into files in which time is out of order by up to 1.5 s."""
    directory.mkdir(parents=True)
    chance = random.Random(seed)
    events: list[Event] = []
    for file in range(FILES):
        lines = []
        for number in range(records // FILES):
            event: Event = {
                "id": file * 1_000_000 + number,
                "key": f"k{file}-{chance.randrange(KEYS_PER_FILE)}",
                "ts": 1_000_000 + number * 40 + chance.randrange(-750, 750),
                "value": chance.randrange(-100, 100),
            }
            events.append(event)
            lines.append(json.dumps(event) + "\n")
        (directory / f"events-{file}.jsonl").write_text("".join(lines))
    return events


def expected_running(events: list[Event]) -> list[tuple[str, int, int, int]]:
    """(key, id, n, total) of every record and timer, in no particular order."""
    state: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    rows = []
    timers = set()
    for event in events:
        key = str(event["key"])
        count, total = state[key]
        count, total = count + 1, total + int(event["value"])
        state[key] = count, total
        rows.append((key, int(event["id"]), count, total))
        timers.add((key, int(event["ts"]) + TIMEOUT))
    rows.extend((key, -stamp, -1, 0) for key, stamp in timers if stamp % 10 == 0)
    return sorted(rows)


def expected_windows(events: list[Event]) -> list[tuple[str, str, int, int, int]]:
    """(kind, key, start, n, total) of every window."""
    result: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for event in events:
        key, stamp, value = str(event["key"]), int(event["ts"]), int(event["value"])
        starts = [("tumbling", stamp - stamp % 1_000)]
        last = stamp - stamp % 300
        starts += [("sliding", start) for start in (last, last - 300, last - 600)]
        for kind, start in starts:
            entry = result[kind, key, start]
            entry[0] += 1
            entry[1] += value
    return sorted((*window, entry[0], entry[1]) for window, entry in result.items())


def visible_running(output: Path) -> list[tuple[str, int, int, int]]:
    """What a reader sees, file by file in the order of their epochs, which end their names."""
    rows = []
    files = (output / "running").glob("[!._]*")
    for path in sorted(files, key=lambda path: (path.stem.rpartition("-")[2], path.name)):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows.append((row["key"], row["id"], row["n"], row["total"]))
    return rows


def visible_windows(output: Path) -> list[tuple[str, str, int, int, int]]:
    """What a reader sees."""
    rows: list[tuple[str, str, int, int, int]] = []
    for path in sorted((output / "windows").glob("[!._]*")):
        rows.extend(
            (row["kind"], row["key"], row["start"], row["n"], row["total"])
            for row in pq.read_table(path).to_pylist()
        )
    return rows
