"""The table of recoveries, printed and written into a page between two marks."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.attack.attack import Recovery

__all__ = ["write_page"]

#: Around the tables of an engine; ``{}`` is which, and which end.
_MARK: Final = "<!-- recoveries{}: {} -->"
_SPARK: Final = "Spark's session"


def write_page(
    page: Path, recoveries: Sequence[Recovery], seed: int, orders: int, *, on_slots: bool = False
) -> None:
    """Put the tables of a run into a page."""
    which = " on slots" if on_slots else ""
    opening, closing = _MARK.format(which, "begin"), _MARK.format(which, "end")
    text = page.read_text()
    head, begin, rest = text.partition(opening)
    _, end, tail = rest.partition(closing)
    assert begin
    assert end, f"{page} lacks {opening} or {closing}"
    load = os.getloadavg()[2]
    run = (
        f"{len(recoveries)} faults (seed {seed}), {orders} orders, load {load:.1f} in the last"
        " quarter of an hour. Seconds from the fault to new output in all three sinks:"
    )
    lines = [
        run,
        "",
        *_kinds(recoveries, on_slots=on_slots),
        "",
        "Where a driver was started, median and worst of the parts:",
        "",
        *_parts(recoveries),
    ]
    page.write_text(f"{head}{opening}\n\n" + "\n".join(lines) + f"\n\n{closing}{tail}")


def _kinds(recoveries: Sequence[Recovery], *, on_slots: bool) -> list[str]:
    kinds: dict[str, list[float]] = defaultdict(list)
    without: dict[str, list[float]] = defaultdict(list)
    for each in recoveries:
        kinds[each.fault].append(each.seconds)
        without[each.fault].append(each.seconds - each.parts.get(_SPARK, 0.0))
    rows = {
        kind: f"| {kind} | {len(seconds)} | {statistics.median(seconds):.1f} | {max(seconds):.1f} |"
        for kind, seconds in sorted(kinds.items())
    }
    if on_slots:
        return ["| fault | times | median | worst |", "|---|---:|---:|---:|", *rows.values()]
    return [
        "| fault | times | median | worst | worst, Spark's start taken out |",
        "|---|---:|---:|---:|---:|",
        *(f"{row} {max(without[kind]):.1f} |" for kind, row in rows.items()),
    ]


def _parts(recoveries: Sequence[Recovery]) -> list[str]:
    parts: dict[str, list[float]] = defaultdict(list)
    for each in recoveries:
        for name, seconds in each.parts.items():
            parts[name].append(seconds)
    if not any(parts[_SPARK]):
        parts.pop(_SPARK, None)  # on slots
    return [
        "| part | median | worst |",
        "|---|---:|---:|",
        *(
            f"| {name} | {statistics.median(seconds):.1f} | {max(seconds):.1f} |"
            for name, seconds in parts.items()
        ),
    ]
