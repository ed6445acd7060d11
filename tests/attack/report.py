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

_BEGIN: Final = "<!-- recoveries: begin -->"
_END: Final = "<!-- recoveries: end -->"
_SPARK: Final = "Spark's session"


def write_page(page: Path, recoveries: Sequence[Recovery], seed: int, orders: int) -> None:
    """Put the tables of a run into a page."""
    text = page.read_text()
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    load = os.getloadavg()[2]
    run = (
        f"{len(recoveries)} faults (seed {seed}), {orders} orders, load {load:.1f} in the last"
        " quarter of an hour. Seconds from the fault to new output in all three sinks:"
    )
    lines = [
        run,
        "",
        *_kinds(recoveries),
        "",
        "Where a driver was started, median and worst of the parts:",
        "",
        *_parts(recoveries),
    ]
    page.write_text(f"{head}{_BEGIN}\n\n" + "\n".join(lines) + f"\n\n{_END}{tail}")


def _kinds(recoveries: Sequence[Recovery]) -> list[str]:
    kinds: dict[str, list[float]] = defaultdict(list)
    without: dict[str, list[float]] = defaultdict(list)
    for each in recoveries:
        kinds[each.fault].append(each.seconds)
        without[each.fault].append(each.seconds - each.parts.get(_SPARK, 0.0))
    return [
        "| fault | times | median | worst | worst, Spark's start taken out |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {kind} | {len(seconds)} | {statistics.median(seconds):.1f} | {max(seconds):.1f} |"
            f" {max(without[kind]):.1f} |"
            for kind, seconds in sorted(kinds.items())
        ),
    ]


def _parts(recoveries: Sequence[Recovery]) -> list[str]:
    parts: dict[str, list[float]] = defaultdict(list)
    for each in recoveries:
        for name, seconds in each.parts.items():
            parts[name].append(seconds)
    return [
        "| part | median | worst |",
        "|---|---:|---:|",
        *(
            f"| {name} | {statistics.median(seconds):.1f} | {max(seconds):.1f} |"
            for name, seconds in parts.items()
        ),
    ]
