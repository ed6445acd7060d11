"""The table that ``make bench`` prints.

What it is: one line per comparison, in fixed columns.
What it is not: the place where targets are set; see ``bench/workloads.py``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.workloads import (
    EMPTY_EPOCH_SECONDS,
    LATENCY_SECONDS,
    PIPELINED_LATENCY_SECONDS,
    RECORD_LATENCY_SECONDS,
    RECOVERY_SECONDS,
    SESSION_ROWS_PER_SECOND,
    STATE_MEMORY_BYTES,
)

if TYPE_CHECKING:
    from bench.workloads import Comparison, Measurement

__all__ = [
    "Line",
    "buffered_line",
    "checkpoint_line",
    "cpu_words",
    "idle_line",
    "latency_line",
    "ratio_line",
    "record_line",
    "recovery_line",
    "render",
    "session_line",
    "state_line",
]

_MEBIBYTE = 2**20
_LATENCY = "Kafka, visible latency"
_HEADINGS = (
    "workload",
    "keys",
    "Millstream",
    "peer",
    "peer's",
    "ratio",
    "target",
    "",
    "memory",
    "peer's memory",
    "CPU per row",
    "peer's CPU",
)


@dataclass(frozen=True)
class Line:
    """One line of the table; figures with their unit."""

    workload: str
    keys: str
    millstream: str
    peer: str
    peer_rate: str
    ratio: str
    target: str
    #: "ok", "behind", "failed", or empty where there is no target.
    verdict: str
    memory: str
    peer_memory: str
    #: CPU time per row, with start and warm-up.
    cpu: str = ""
    peer_cpu: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """In order of ``_HEADINGS``."""
        return (
            self.workload,
            self.keys,
            self.millstream,
            self.peer,
            self.peer_rate,
            self.ratio,
            self.target,
            self.verdict,
            self.memory,
            self.peer_memory,
            self.cpu,
            self.peer_cpu,
        )


def _memory(size: int) -> str:
    return f"{size / _MEBIBYTE:,.0f} MiB"


def _rate(rows_per_second: float) -> str:
    return f"{rows_per_second:,.0f}" if rows_per_second else "-"


def cpu_words(seconds: float) -> str:
    """CPU time of a row."""
    return f"{1e6 * seconds:,.1f} us" if seconds else ""


def ratio_line(
    comparison: Comparison,
    rates: tuple[float, float],
    memory: tuple[int, int],
    cpu: tuple[float, float] = (0.0, 0.0),
) -> Line:
    """A comparison; rates, memory and CPU seconds per row of Millstream and of the peer."""
    own, others = rates
    ratio = own / others if own and others else 0.0
    target = comparison.at_least
    wanted = comparison.rows_per_second
    verdict = ""
    if target is not None:
        verdict = "ok" if ratio >= target and own >= (wanted or 0) else "behind"
    words = [] if target is None else [f"{target:.2f}".removesuffix("0") + " x"]
    words += [] if wanted is None else [f"{wanted:,}"]
    return Line(
        workload=comparison.workload,
        keys=f"{comparison.millstream.dataset.keys:,}",
        millstream=_rate(own),
        peer=comparison.peer.system,
        peer_rate=_rate(others),
        ratio=f"{ratio:.2f} x" if ratio else "-",
        target=", ".join(words),
        verdict=verdict if ratio else "failed",
        memory=_memory(memory[0]),
        peer_memory=_memory(memory[1]),
        cpu=cpu_words(cpu[0]),
        peer_cpu=cpu_words(cpu[1]),
    )


def idle_line(
    measurement: Measurement, rate: float, figures: dict[str, float], memory: int
) -> Line:
    """How long an epoch without data takes."""
    del rate
    seconds = figures.get("seconds_per_empty_epoch")
    verdict = "failed"
    if seconds is not None:
        verdict = "ok" if seconds < EMPTY_EPOCH_SECONDS else "behind"
    figure = "-" if seconds is None else f"{seconds:.2f} s"
    target = f"< {EMPTY_EPOCH_SECONDS} s"
    return _own_line("epoch without data", measurement, figure, target, verdict, memory)


def session_line(
    measurement: Measurement, rate: float, figures: dict[str, float], memory: int
) -> Line:
    """How fast sessions are."""
    del figures
    verdict = "failed"
    if rate:
        verdict = "ok" if rate >= SESSION_ROWS_PER_SECOND else "behind"
    target = f">= {SESSION_ROWS_PER_SECOND:,}"
    return _own_line("sessions, built in", measurement, _rate(rate), target, verdict, memory)


def state_line(
    measurement: Measurement, rate: float, figures: dict[str, float], memory: int
) -> Line:
    """Memory with large state."""
    del figures
    return _memory_line("memory with large state", measurement, rate, memory)


def buffered_line(
    measurement: Measurement, rate: float, figures: dict[str, float], memory: int
) -> Line:
    """Memory with windows that keep every element."""
    del figures
    workload = f"memory with {measurement.dataset.events:,} elements"
    return _memory_line(workload, measurement, rate, memory)


def latency_line(
    measurement: Measurement, rate: float, figures: dict[str, float], memory: int
) -> Line:
    """From the writing of an event to Kafka until its result is readable there."""
    del rate
    pipelined = "pipelined" in measurement.arguments
    most = PIPELINED_LATENCY_SECONDS if pipelined else LATENCY_SECONDS
    seconds = figures.get("p99_seconds")
    verdict, figure = "failed", "-"
    if seconds is not None:
        verdict = "ok" if seconds < most else "behind"
        figure = f"p50 {figures['p50_seconds']:.3f} s, p99 {seconds:.3f} s"
    workload = f"{_LATENCY}, pipelined{_rate_of(measurement)}" if pipelined else _LATENCY
    return _own_line(workload, measurement, figure, f"p99 < {most} s", verdict, memory)


def record_line(
    measurement: Measurement, rate: float, figures: dict[str, float], memory: int
) -> Line:
    """From the writing of an event to Kafka until the keyed operator has it."""
    del rate
    seconds = figures.get("record_p99_seconds")
    verdict, figure = "failed", "-"
    if seconds is not None:
        verdict = "ok" if seconds < RECORD_LATENCY_SECONDS else "behind"
        figure = f"p50 {figures['record_p50_seconds']:.3f} s, p99 {seconds:.3f} s"
    workload = f"Kafka, record latency, pipelined{_rate_of(measurement)}"
    target = f"p99 < {RECORD_LATENCY_SECONDS} s"
    return _own_line(workload, measurement, figure, target, verdict, memory)


def _rate_of(measurement: Measurement) -> str:
    """Events per second, if they are not 1,000."""
    arguments = measurement.arguments
    if "--rate" not in arguments:
        return ""
    return f", {int(arguments[arguments.index('--rate') + 1]):,}/s"


def checkpoint_line(
    measurement: Measurement, rate: float, figures: dict[str, float], memory: int
) -> Line:
    """How long checkpoints take, and what is new in them; for information."""
    del rate
    figure = "-"
    if "checkpoint_p50_seconds" in figures:
        figure = (
            f"p50 {figures['checkpoint_p50_seconds']:.3f} s, longest"
            f" {figures['checkpoint_longest_seconds']:.3f} s,"
            f" {_memory(int(figures['checkpoint_bytes']))}"
        )
    of = "the count, pipelined"
    if measurement.module == "slow_channel":
        of = f"one slow channel, {measurement.system}"
    return _own_line(f"checkpoint of {of}", measurement, figure, "", "", memory)


def recovery_line(
    measurement: Measurement, rate: float, figures: dict[str, float], memory: int
) -> Line:
    """From the kill of a slot to the first record of the next run."""
    del rate
    longest = figures.get("longest_seconds")
    verdict, figure = "failed", "-"
    if longest is not None:
        verdict = "ok" if longest < RECOVERY_SECONDS else "behind"
        figure = f"p50 {figures['p50_seconds']:.3f} s, longest {longest:.3f} s"
    target = f"< {RECOVERY_SECONDS} s"
    return _own_line("slot killed, pipelined", measurement, figure, target, verdict, memory)


def _memory_line(workload: str, measurement: Measurement, rate: float, memory: int) -> Line:
    verdict = "failed"
    if rate:
        verdict = "ok" if memory < STATE_MEMORY_BYTES else "behind"
    target = f"< {_memory(STATE_MEMORY_BYTES)}"
    return _own_line(workload, measurement, _rate(rate), target, verdict, memory)


def _own_line(
    workload: str, measurement: Measurement, figure: str, target: str, verdict: str, memory: int
) -> Line:
    """What has no peer."""
    return Line(
        workload=workload,
        keys=f"{measurement.dataset.keys:,}",
        millstream=figure,
        peer="",
        peer_rate="",
        ratio="",
        target=target,
        verdict=verdict,
        memory=_memory(memory),
        peer_memory="",
    )


def render(lines: list[Line], sink: str, load: float) -> str:
    """The table as text, with what a reader must know of it."""
    rows = [_HEADINGS, *(line.cells for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    text = []
    for row in rows:
        cells = (
            # Words to the left, figures to the right.
            cell.ljust(width) if column in {0, 3, 7} else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        text.append("  ".join(cells).rstrip())
        if len(text) == 1:
            text.append("  ".join("-" * width for width in widths))
    what = "written as Parquet and equal to DuckDB's" if sink == "parquet" else "dropped unchecked"
    text.append("")
    text.append(f"Rows per second of the steady state, first epoch left out; results {what}.")
    if any(line.cpu for line in lines):
        text.append(
            "CPU per row: of all processes of a system, with their start and warm-up, so that"
            " streams of the same length compare."
        )
    if any(line.workload.startswith("Kafka, ") and "latency" in line.workload for line in lines):
        text.append("Latency: from write to read_committed; the first 10 s of the job left out.")
    if any(line.workload.startswith("Kafka") for line in lines):
        text.append(
            "A process in front of the broker of jobs (not of plain clients) has fetches wait for"
            " records, as Kafka does; see bench/broker_front.py."
        )
        text.append(
            "The broker is kept from saving all that it holds each second, which would take a core;"
            " see bench/broker_saving.py."
        )
    cores = os.cpu_count() or 1
    if load > cores + 1:
        text.append(f"The load average reached {load:.1f} on {cores} cores: figures are too low.")
    return "\n" + "\n".join(text) + "\n"
