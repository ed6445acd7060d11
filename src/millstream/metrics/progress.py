"""The progress display of a running job, and its event time.

Progress is one line that is rewritten after every checkpoint on a terminal, or a line in the log
about every ten seconds anywhere else.  Event time is read from the last manifest and the job graph,
once per checkpoint.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TextIO, cast

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.graph.model import by_chain
from millstream.logs import at_checkpoint
from millstream.runtime.stage import is_per_channel, time_origins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.live import Live

    from millstream.checkpoint.model import Manifest
    from millstream.graph.model import JobGraph, StreamNode
    from millstream.runtime.task_metrics import SubtaskTimes

    Times = Mapping[tuple[int, int], SubtaskTimes]


_LOG: Final = logging.getLogger("millstream.progress")
_EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Watermarks beyond these (milliseconds; the years 1 and 9999) have a meaning, not a date.
_FIRST_DATE: Final = -62_135_596_800_000
_LAST_DATE: Final = 253_402_300_799_999
_LOG_INTERVAL_SECONDS: Final = 10.0
_KIBI: Final = 1024


@dataclass(frozen=True, slots=True)
class Progress:
    """The figures of the last epoch."""

    #: The epoch, which is the checkpoint's id.
    epoch: int
    #: Records read from sources since the job began (all runs of it).
    records: int
    #: Records per second in this epoch.
    records_per_second: float
    #: The smallest watermark of any operator, in milliseconds since 1970.
    watermark: int
    #: What this epoch uploaded to the checkpoint storage.
    checkpoint_bytes: int
    #: From the start of the epoch until its sinks were committed.
    duration_seconds: float
    #: What holds event time back, idle splits, late records (``metrics/progress.py``).
    event_time: str = ""
    #: Which task is busiest, and which waits for it (``metrics/progress.py``).
    tasks: str = ""


class ProgressReporter:
    """Takes the figures of each epoch; this one does nothing with them."""

    def update(self, progress: Progress) -> None:
        """Report an epoch that is committed."""

    def note(self, text: str) -> None:
        """Report something else in a few words; forgotten at the next ``update``."""

    def update_running(self, records: int, age_seconds: float | None) -> None:
        """Report how far tasks are between two checkpoints.

        Args:
            records: read from sources since the job began.
            age_seconds: since the last checkpoint was published; None if there is none.
        """
        self.note(format_running(records, age_seconds))

    def update_pending(self, committables: int, age_seconds: float) -> None:
        """Report that a commit fails or takes long.

        Args:
            committables: what is published and not committed, over all sinks.
            age_seconds: since the oldest was published.
        """
        self.note(format_pending(committables, age_seconds))

    def update_failure(self, reason: str) -> None:
        """Report that the job waits to be started again."""
        self.note(format_failure(reason))

    def close(self, *, clear: bool = False) -> None:
        """The run is over.  May be called twice.

        Args:
            clear: remove a line that is kept up to date; else the last figures stay visible.
        """


class SilentProgressReporter(ProgressReporter):
    """Reports nothing (``millstream.progress: off``)."""


class LineProgressReporter(ProgressReporter):
    """Logs a line now and then: at the first epoch, every ``interval_seconds``, and at the end."""

    def __init__(
        self,
        job_name: str,
        write: Callable[[str], None] = _LOG.info,
        interval_seconds: float = _LOG_INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job_name = job_name
        self._write = write
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._next = -float("inf")
        self._unwritten: Progress | None = None

    def update(self, progress: Progress) -> None:
        self._unwritten = progress
        if self._is_due():
            self._flush()

    def update_running(self, records: int, age_seconds: float | None) -> None:
        if self._next == -float("inf"):  # the figures of the first epoch come before it
            self._next = self._clock() + self._interval_seconds
        else:
            super().update_running(records, age_seconds)

    def note(self, text: str) -> None:
        if self._is_due():
            self._flush()
            self._write(f"{self._job_name}: {text}")

    def _is_due(self) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._interval_seconds
        return True

    def close(self, *, clear: bool = False) -> None:
        """Write the figures of the last epoch if they were not written yet."""
        del clear  # what is written is written
        self._flush()

    def _flush(self) -> None:
        if self._unwritten is not None:
            with at_checkpoint(self._unwritten.epoch):
                self._write(f"{self._job_name}: {format_progress(self._unwritten)}")
            self._unwritten = None


class LiveProgressReporter(ProgressReporter):
    """Keeps one line at the bottom of a terminal, above which other output scrolls."""

    def __init__(self, job_name: str, stream: TextIO | None = None) -> None:
        from rich.console import Console

        self._job_name = job_name
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._live: Live | None = None
        #: The figures of the last epoch, beside which is shown what is pending.
        self._figures = ""
        #: Two threads report: the run, and one that reports between checkpoints.
        self._showing = threading.Lock()
        self._is_closed = False

    def update(self, progress: Progress) -> None:
        self._figures = format_progress(progress)
        self._show(self._figures)

    def note(self, text: str) -> None:
        self._show(f"{text} | {self._figures}" if self._figures else text)

    def _show(self, text: str) -> None:
        from rich.live import Live
        from rich.text import Text

        line = Text(f"{self._job_name}: {text}", overflow="ellipsis")
        line.no_wrap = True
        with self._showing:
            if self._is_closed:
                return
            if self._live is None:
                # Refreshed by hand: a refresh thread would compete with Spark's own output, and the
                # cursor must not stay hidden if the process is killed.
                self._live = Live(line, console=self._console, auto_refresh=False)
                self._live.start()
                self._console.show_cursor()
            self._live.update(line, refresh=True)

    def close(self, *, clear: bool = False) -> None:
        """Leave the last line where it is, or remove it."""
        with self._showing:
            self._is_closed = True
            if self._live is not None:
                self._live.transient = clear
                self._live.stop()
                self._live = None


def is_reported(mode: str, *, shows_records: bool) -> bool:
    """Return whether a job reports its guarantees and its progress.

    A job whose records the program shows does so only if it is asked to: by the option, or by a
    level of the logger ``millstream`` or ``millstream.progress``.  A level of the root logger is no
    such wish: programs that log to standard output would have lines of progress between rows.

    Args:
        mode: the value of ``millstream.progress``.
        shows_records: whether a sink of the job prints or collects.
    """
    if mode == "off" or not shows_records:
        return mode != "off"
    levels = (logging.getLogger("millstream").level, _LOG.level)
    return mode == "on" or (any(levels) and _LOG.isEnabledFor(logging.INFO))


def create_progress_reporter(
    job_name: str,
    mode: str = "auto",
    stream: TextIO | None = None,
    *,
    shows_records: bool = False,
) -> ProgressReporter:
    """The reporter for a run.

    Args:
        job_name: shown at the start of every line.
        mode: the value of ``millstream.progress``: "auto" (a live line on a terminal, else log
            lines), "on" (lines on ``stream`` where that is no terminal) or "off".
        stream: where a live line goes; standard error by default.
        shows_records: whether a sink of the job prints or collects; then "auto" is "off" unless
            the logger is asked for it.
    """
    if not is_reported(mode, shows_records=shows_records):
        return SilentProgressReporter()
    target = stream or sys.stderr
    if target.isatty():
        return LiveProgressReporter(job_name, target)
    if mode == "on" or not _LOG.isEnabledFor(logging.INFO):
        # A program that set up no logging at all shall see its job move nevertheless.
        return LineProgressReporter(job_name, lambda line: print(line, file=target, flush=True))
    return LineProgressReporter(job_name)


def format_progress(progress: Progress) -> str:
    """The figures in one line."""
    line = (
        f"checkpoint {progress.epoch} | {progress.records:,} records | "
        f"{progress.records_per_second:,.0f}/s | "
        f"watermark {format_watermark(progress.watermark)} | "
        f"{format_bytes(progress.checkpoint_bytes)} written | {progress.duration_seconds:.2f} s"
    )
    return " | ".join(filter(None, (line, progress.tasks, progress.event_time)))


def format_running(records: int, age_seconds: float | None) -> str:
    """Return how far tasks are between two checkpoints, in a few words."""
    if age_seconds is None:
        return f"{records:,} records | no checkpoint yet"
    return f"{records:,} records | last checkpoint {age_seconds:.0f} s ago"


def format_pending(committables: int, age_seconds: float) -> str:
    """Return what is published and not committed, in a few words."""
    noun = "committable" if committables == 1 else "committables"
    return f"{committables:,} {noun} pending, the oldest for {age_seconds:.1f} s"


def format_failure(reason: str) -> str:
    """Return what a job waits for to be started again, in one line."""
    first, _, more = reason.partition("\n")
    return f"waiting to start again: {first}{' ...' if more else ''}"


def format_watermark(watermark: int) -> str:
    """A watermark in milliseconds as a date in UTC, "none" or "end of input"."""
    if watermark > _LAST_DATE:
        return "end of input"
    if watermark < _FIRST_DATE:
        return "none"
    moment = _EPOCH_START + timedelta(milliseconds=watermark)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def format_moment(milliseconds: int) -> str:
    """A time in milliseconds since 1970 as date and time of this machine's zone."""
    local = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S")


def format_bytes(count: int) -> str:
    """A number of bytes with a unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIBI:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIBI
    return f"{size:.1f} TiB"


#: Milliseconds per second from which backpressure is worth a word.
_NOTABLE: Final = 100.0
_METRICS: Final[dict[str, Callable[[SubtaskTimes], float]]] = {
    "busyTimeMsPerSecond": attrgetter("busy"),
    "idleTimeMsPerSecond": attrgetter("idle"),
    "backPressuredTimeMsPerSecond": attrgetter("backpressured"),
    "inputQueueSize": attrgetter("waiting"),
}


def gauges(graph: JobGraph, labels: Mapping[str, str], times: Times) -> dict[str, object]:
    """The times as gauges of each operator; those of one chain share theirs.

    Returns:
        "operator.metric" -> subtask -> milliseconds of the last second, or bytes that wait for
        it, as those of functions; subtasks of which nothing is known are not in it.
    """
    found: dict[str, object] = {}
    for stage in by_chain(graph).stages:
        subtasks = {
            str(n): each for (number, n), each in sorted(times.items()) if number == stage.number
        }
        for node in stage.nodes if subtasks else ():
            uid = graph.nodes[node].uid
            for name, of in _METRICS.items():
                values = {number: round(of(each), 1) for number, each in subtasks.items()}
                found[f"{labels.get(uid, uid)}.{name}"] = values
    return found


def describe_times(graph: JobGraph, labels: Mapping[str, str], times: Times) -> str:
    """Return what is busiest, and what waits most for others; empty if nothing is known.

    A chain counts as its subtask that has most of it, and is called by its first operator.
    """
    stages = list(_stages(graph, labels, times))
    if not stages:
        return ""
    busy, name = max((busy, name) for name, busy, _ in stages)
    words = f"busy {name} {busy / 10:.0f} %"
    stuck, name = max((stuck, name) for name, _, stuck in stages)
    return f"{words}, backpressured {name} {stuck / 10:.0f} %" if stuck >= _NOTABLE else words


def _stages(
    graph: JobGraph, labels: Mapping[str, str], times: Times
) -> Iterator[tuple[str, float, float]]:
    """Name, busy, backpressured."""
    for stage in by_chain(graph).stages:
        subtasks = [each for (number, _), each in times.items() if number == stage.number]
        if subtasks:
            uid = graph.nodes[stage.nodes[0]].uid
            busy = max(each.busy for each in subtasks)
            yield labels.get(uid, uid), busy, max(each.backpressured for each in subtasks)


_LATE: Final = "numLateRecordsDropped"
_SHOWN_IDLE: Final = 3
#: Milliseconds: 40 years.  A longer one is that of a program with timestamps such as 1000, which
#: is behind nothing.
_LONGEST_LAG: Final = 40 * 365 * 86_400_000
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The event time of one operator, at the last checkpoint."""

    uid: str
    name: str
    #: Milliseconds; the lowest of its subtasks.
    watermark: int
    #: Milliseconds from the watermark to the processing time of the epoch; None if there is no
    #: watermark yet, or the input is over.
    lag: int | None
    #: (source uid, split id) of the slowest split that is not idle; (operator uid, "subtask 2")
    #: where watermarks are made in mid-stream; None if nothing holds it back.
    held_back_by: tuple[str, str] | None = None
    #: (source uid, split id) of the splits before it that are idle.
    idle_splits: list[tuple[str, str]] = field(default_factory=list)
    #: Records that came too late and were dropped, since the job began.
    late_records_dropped: int = 0


class EventTimeReader:
    """Reads the event time of all operators off a manifest."""

    def __init__(self, graph: JobGraph) -> None:
        """Find out, once, where each operator has its watermarks from."""
        self._graph = graph
        self._nodes = list(graph.nodes.values())
        self._origins = {node.id: self._origins_of(node) for node in self._nodes}
        sources = {node.uid for node in self._nodes if node.kind == "source"}
        made = list(time_origins(graph).values())
        #: Stage-0 nodes whose time is that of the source splits.  Their acks know only the splits
        #: that their subtask has read.
        self._of_splits = {number for reached in made for number in reached} - {
            number for reached in made for number, uids in reached.items() if uids - sources
        }

    def _origins_of(self, node: StreamNode) -> set[str]:
        """Uids of the sources and mid-stream assigners that a node's time comes from."""
        if self._makes_time(node):
            return {node.uid}
        upstream = self._graph.upstream(self._graph.inputs(node.id), self._makes_time)
        return {each.uid for each in upstream if self._makes_time(each)}

    def _makes_time(self, node: StreamNode) -> bool:
        """Return whether a node is a source, or an assigner of watermarks in mid-stream."""
        is_assigner = is_per_channel(node) and self._graph.level(node.id) > 0
        return node.kind == "source" or is_assigner

    def read(self, manifest: Manifest) -> list[OperatorTime]:
        """The event time of every operator, in the order of the graph."""
        now = cast("int", manifest.offsets.get("time", 0))
        slowest: dict[str, tuple[int, str]] = {}
        idle: dict[str, list[tuple[str, str]]] = {}
        for uid in set().union(*self._origins.values()):
            if uid in manifest.splits:
                states = manifest.splits[uid].values()
                active = [(s.watermark, s.split_id) for s in states if not s.idle]
                idle[uid] = [(uid, s.split_id) for s in states if s.idle]
            else:
                acks = manifest.operators.get(uid, [])
                active = [(a.watermark, f"subtask {a.subtask}") for a in acks if not a.idle]
            if active:
                slowest[uid] = min(active)
        return [self._of(node, manifest, now, slowest, idle) for node in self._nodes]

    def _of(
        self,
        node: StreamNode,
        manifest: Manifest,
        now: int,
        slowest: dict[str, tuple[int, str]],
        idle: dict[str, list[tuple[str, str]]],
    ) -> OperatorTime:
        acks = manifest.operators.get(node.uid, [])
        watermark = min((ack.watermark for ack in acks), default=MIN_TIMESTAMP)
        origins = self._origins[node.id]
        holding = min(((*slowest[uid], uid) for uid in origins if uid in slowest), default=None)
        if holding is not None and node.id in self._of_splits:
            watermark = max(watermark, holding[0])
        known = MIN_TIMESTAMP < watermark < MAX_TIMESTAMP
        over = watermark == MAX_TIMESTAMP or holding is None or holding[0] == MAX_TIMESTAMP
        return OperatorTime(
            uid=node.uid,
            name=node.name,
            watermark=watermark,
            lag=now - watermark if known else None,
            held_back_by=None if over or holding is None else (holding[2], holding[1]),
            idle_splits=[split for uid in sorted(origins) for split in idle.get(uid, [])],
            late_records_dropped=manifest.totals.get(f"{node.uid}.{_LATE}", 0),
        )


def describe(times: list[OperatorTime], labels: Mapping[str, str]) -> str:
    """The slowest operator's lag and who holds it back, idle splits and late records, in a line."""

    def called(split: tuple[str, str]) -> str:
        return f"{labels.get(split[0], split[0])}/{split[1]}"

    parts = []
    late = sum(time.late_records_dropped for time in times)
    known = [time for time in times if time.lag is not None]
    behind = min(known, key=lambda time: time.watermark, default=None)
    if behind is not None and behind.lag is not None and behind.lag < _LONGEST_LAG:
        text = f"lag {format_lag(behind.lag)}"
        if behind.held_back_by is not None:
            text += f" by {called(behind.held_back_by)}"
        parts.append(text)
    idle = sorted({called(split) for time in times for split in time.idle_splits})
    if idle:
        more = f" and {len(idle) - _SHOWN_IDLE} more" if len(idle) > _SHOWN_IDLE else ""
        parts.append(f"idle {', '.join(idle[:_SHOWN_IDLE])}{more}")
    if late:
        parts.append(f"{late:,} late")
    return " | ".join(parts)


def format_lag(milliseconds: int) -> str:
    """A length of time in its largest unit: "3.2 s", "12.0 d"."""
    for size, unit in _UNITS:
        if abs(milliseconds) >= size:
            return f"{milliseconds / size:.1f} {unit}"
    return f"{milliseconds} ms"
