"""The independent answer to ``session_job.py``."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tests.model import evictor_model
from tests.model import trigger_model as triggers
from tests.model import window_model as model

if TYPE_CHECKING:
    from pathlib import Path

    from tests.recovery.recovery_data import Event

GAP, EARLY_COUNT, KEPT = 150, 3, 5


class Result(NamedTuple):
    """A row of the job's output."""

    kind: str
    key: str
    number: int
    start: int
    end: int
    n: int
    total: int


class _EarlyAndAtTheEnd(triggers.CountTrigger):
    """With every n-th record and at the end of the session."""

    def on_element(self, pane: triggers.Pane, value: object, timestamp: int) -> triggers.Result:
        pane.at_event_time(pane.end)
        return super().on_element(pane, value, timestamp)

    def on_event_time(self, pane: triggers.Pane, time: int) -> triggers.Result:
        return triggers.FIRE if time == pane.end else triggers.CONTINUE

    def on_merge(self, pane: triggers.Pane, merged: list[triggers.Window]) -> None:
        super().on_merge(pane, merged)
        pane.at_event_time(pane.end)


def expected_counted(events: list[Event]) -> Counter[Result]:
    """Every result of the sessions with a count trigger; nothing is late, so time may wait."""
    windows = model.WindowModel(
        model.Session(lambda _: GAP),
        _EarlyAndAtTheEnd(EARLY_COUNT),
        evictor_model.CountEvictor(KEPT),
    )
    for event in events:
        windows.record(str(event["key"]), event, int(event["ts"]))
    windows.advance_watermark(model.MAX_TIME)
    return Counter(
        Result(
            "counted", each.key, int(each.elements[-1]["id"]), *each.window,
            len(each.elements), sum(int(element["value"]) for element in each.elements),
        )
        for each in windows.emissions
    )  # fmt: skip


def expected_sessions(events: list[Event]) -> set[tuple[str, int, int, int, int]]:
    """(key, start, end, n, total) of every whole session."""
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        by_key[str(event["key"])].append((int(event["ts"]), int(event["value"])))
    found = set()
    for key, records in by_key.items():
        records.sort()
        first = 0
        for number in range(1, len(records) + 1):
            if number < len(records) and records[number][0] - records[number - 1][0] <= GAP:
                continue
            part = records[first:number]
            total = sum(value for _, value in part)
            found.add((key, part[0][0], part[-1][0] + GAP, len(part), total))
            first = number
    return found


def expected_sorted(events: list[Event]) -> list[Result]:
    """The records of each key in order of time, numbered."""
    by_key: dict[str, int] = defaultdict(int)
    rows = []
    for event in sorted(events, key=lambda event: int(event["ts"])):  # stable
        key = str(event["key"])
        by_key[key] += 1
        stamp, value = int(event["ts"]), int(event["value"])
        rows.append(Result("sorted", key, int(event["id"]), stamp, 0, by_key[key], value))
    return rows


def visible(output: Path) -> list[Result]:
    """What a reader sees, file by file in the order of their names."""
    return [
        Result(**json.loads(line))
        for path in sorted((output / "sessions").glob("[!._]*"))
        for line in path.read_text().splitlines()
    ]
