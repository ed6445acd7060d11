"""Quantities that shall not grow with what a job has: which, at which sizes, how much is allowed.

What it is: a ``Quantity`` is one module measured at growing sizes, each in a process of its own,
called with ``--size``, ``--scratch``, ``--report`` and the quantity's own arguments.  It leaves an
``Outcome`` (``bench/measure.py``) whose figures are ``seconds`` (median), ``longest_seconds`` and
``cpu_seconds`` (mean), or those of them that have a meaning.  To add one: a module and a line in
``quantities``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Point", "Quantity", "growing_arguments", "quantities", "render_growing", "verdicts"]

_HEADINGS = ("growing quantity", "size", "median", "longest", "CPU", "growth", "target", "")
#: In order of the columns, with their format.
_FIGURES = ("seconds", "longest_seconds", "cpu_seconds")


#: Wanted: a checkpoint pauses a subtask for less, on a machine that has nothing else to do.
_PAUSE = 0.03


@dataclass(frozen=True)
class Quantity:
    """One quantity at growing sizes."""

    name: str
    module: str
    arguments: tuple[str, ...]
    sizes: tuple[int, ...]
    #: ``cpu_seconds`` (else ``seconds``) at the largest size, divided by that at the first one, is
    #: to be at most this; None: for information.
    at_most: float | None = None
    #: What the figures are counted in.
    unit: str = "s"
    #: ``cpu_seconds`` is to be below this at each size; None: for information.
    below: float | None = None


@dataclass(frozen=True)
class Point:
    """What a quantity was at one size."""

    quantity: Quantity
    size: int
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """What is compared between sizes; 0 if it was not measured."""
        return self.figures.get("cpu_seconds", self.figures.get("seconds", 0.0))


def growing_arguments(workloads: Sequence[str]) -> argparse.Namespace:
    """What the module of a quantity is called with; it can measure these workloads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=workloads, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    return parser.parse_args()


def quantities(*, quick: bool) -> tuple[Quantity, ...]:
    """All of them, in the order in which they are printed; ``quick`` leaves out the largest."""

    def state(name: str, workload: str, *sizes: int, at_most: float | None = None) -> Quantity:
        some = sizes[:-1] if quick and len(sizes) > 1 else sizes
        unit = "s/GiB" if workload == "restored" else "s"
        arguments = ("--workload", workload)
        return Quantity(name, "growing_state", arguments, some, at_most, unit)

    def pause(name: str, workload: str, *sizes: int) -> Quantity:
        return Quantity(name, "pause", ("--workload", workload), sizes, below=_PAUSE)

    def sources(name: str, workload: str, *sizes: int, at_most: float) -> Quantity:
        unit = "files" if workload == "discovered" else "s/s"
        arguments = ("--workload", workload)
        return Quantity(name, "growing_sources", arguments, sizes, at_most, unit)

    def savepoint(name: str, workload: str, unit: str) -> Quantity:
        sizes = (1_000_000,) if quick else (1_000_000, 5_000_000)
        return Quantity(name, "savepoints", ("--workload", workload), sizes, unit=unit)

    def objects(name: str, workload: str, unit: str, *sizes: int) -> Quantity:
        return Quantity(name, "object_stores", ("--workload", workload), sizes, unit=unit)

    def larger(name: str, workload: str, unit: str = "s") -> Quantity:
        sizes = (192,) if quick else (48, 192)
        at_most = 1.5 if unit == "MiB" else None
        arguments = ("--workload", workload)
        return Quantity(name, "larger_than_memory", arguments, sizes, at_most, unit)

    return (
        state("epoch, 1,000 of so many keys", "touched", 50_000, 1_000_000, 20_000_000, at_most=5),
        state("epoch, 20,000 of so many keys", "churned", 1_000_000, 10_000_000, at_most=5),
        state("500,000 new keys, up to", "loaded", 1_000_000, 2_000_000, 4_000_000, at_most=3),
        state("restore of so many long values", "restored", 500_000, 2_000_000, at_most=2),
        pause("pause of a checkpoint, counted", "process", 100_000, 1_000_000),
        pause("pause of a checkpoint, reduced", "reduce", 100_000, 1_000_000),
        savepoint("savepoint of so many keys", "taken", "s"),
        savepoint("throughput by that beside a savepoint", "beside", "x"),
        savepoint("start from a savepoint", "started", "s/GiB"),
        objects("start from a savepoint on S3", "started", "s/GiB", 1_000_000),
        objects("S3 requests of a checkpoint, keys", "requests", "", 1_000, 100_000),
        objects("sent to S3 by a checkpoint, keys", "mebibytes", "MiB", 1_000, 100_000),
        larger("batch join of so many MiB, 64 MiB managed", "joined"),
        larger("memory of that", "joined-memory", "MiB"),
        larger("batch GROUP BY of so many MiB, 64 MiB managed", "grouped"),
        larger("memory of that aggregation", "grouped-memory", "MiB"),
        larger("batch ORDER BY of so many MiB, 64 MiB managed", "sorted"),
        larger("memory of that sort", "sorted-memory", "MiB"),
        sources("idle CPU, so many splits read", "polled", 1_000, 10_000, 50_000, at_most=2),
        sources("idle CPU, so many idle splits", "idle", 4, 64, at_most=4),
        sources("files of so many discoveries", "discovered", 1_000, 5_000, at_most=2),
    )


def _cells(point: Point, first: Point, last: Point) -> tuple[str, ...]:
    quantity = point.quantity
    figures = [
        f"{point.figures[name]:.3f} {quantity.unit}" if name in point.figures else "-"
        for name in _FIGURES
    ]
    growth = target = verdict = ""
    if quantity.below is not None:
        target = f"CPU < {quantity.below} {quantity.unit}"
        verdict = "failed" if not point.cost else "ok" if point.cost < quantity.below else "behind"
    if point is last and last is not first:
        ratio = last.cost / first.cost if first.cost and last.cost else 0.0
        growth = f"{ratio:.1f} x" if ratio else "-"
        if quantity.at_most is not None:
            target = f"<= {quantity.at_most:.1f} x"
            verdict = "failed" if not ratio else "ok" if ratio <= quantity.at_most else "behind"
    return (quantity.name, f"{point.size:,}", *figures, growth, target, verdict)


def verdicts(points: list[Point]) -> list[str]:
    """Of each quantity with a target: "ok", "behind" or "failed"."""
    return [row[-1] for row in _rows(points) if row[-1]]


def _rows(points: list[Point]) -> list[tuple[str, ...]]:
    rows = []
    for point in points:
        same = [other for other in points if other.quantity == point.quantity]
        rows.append(_cells(point, same[0], same[-1]))
    return rows


def render_growing(points: list[Point]) -> str:
    """The table as text."""
    rows = [_HEADINGS, *_rows(points)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    rows.insert(1, tuple("-" * width for width in widths))
    text = []
    for row in rows:
        cells = (
            cell.ljust(width) if column in {0, len(_HEADINGS) - 1} else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        text.append("  ".join(cells).rstrip())
    text.append("")
    text.append("Growth: CPU time (else the median) at the largest size by that at the first one.")
    return "\n" + "\n".join(text) + "\n"
