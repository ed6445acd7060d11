"""Figures and reports of a running job: how it started, totals, event time, progress."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.program import accumulators, labelled
from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.metrics import added, shown
from millstream.metrics.event_time import EventTimeReader, describe
from millstream.metrics.progress import Progress, describe_times, gauges, is_reported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.checkpoint.commit import PendingCommits
    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.contracts.key_value_store import StateHandle
    from millstream.contracts.metrics import Measure
    from millstream.execution.job_start import JobStart
    from millstream.graph.model import JobGraph
    from millstream.metrics.event_time import OperatorTime
    from millstream.metrics.progress import ProgressReporter, Times
    from millstream.runtime.live_counts import RunningMetrics

__all__ = ["CompletedCheckpoint", "JobMonitor"]

_LOG: Final = logging.getLogger("millstream")


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """The last complete checkpoint of a job."""

    checkpoint_id: int
    #: The run that wrote it, from 1.
    run: int
    #: Milliseconds since 1970.
    published: int

    def age(self, now: int | None = None) -> int:
        """Milliseconds since it was published; from 0.

        Args:
            now: milliseconds since 1970; the time now if it is left out.
        """
        return max(0, (time.time_ns() // 1_000_000 if now is None else now) - self.published)


class JobMonitor:
    """Figures of a job at its last checkpoint, and since then.

    Args:
        graph: the job.
        labels: what people are shown of operators, by uid.
        progress: told of each epoch.
    """

    def __init__(
        self, graph: JobGraph, labels: Mapping[str, str], progress: ProgressReporter
    ) -> None:
        self.progress = progress
        self._graph = graph
        self._labels = labels
        self._event_time = EventTimeReader(graph)
        self._last: Manifest | None = None
        self._totals: dict[str, object] = {}
        self._records = 0
        #: Counts of operators that were shown last in this run, by "uid.metric".
        self._shown: dict[str, int] = {}
        #: Measures of functions that were shown last in this run, by "uid.metric".
        self._measured: dict[str, Measure] = {}
        self._runs = 0
        mode = graph.configuration.get(options.PROGRESS)
        self._reports = is_reported(mode, shows_records=graph.shows_records)

    @property
    def totals(self) -> dict[str, object]:
        """Totals so far, by "operator.metric"."""
        return self._totals

    @property
    def of_functions(self) -> frozenset[str]:
        """Names of those totals that functions of the program have counted and measured."""
        measures = {} if self._last is None else self._last.measures
        return frozenset(labelled(measures, self._labels))

    def metrics(self, running: Sequence[RunningMetrics]) -> dict[str, object]:
        """Return totals with what tasks have counted since the last checkpoint.

        Args:
            running: what tasks have counted and measured.

        Returns:
            By "operator.metric".
        """
        last = self._last
        totals = {f"{node.uid}.numRecordsIn": 0 for node in self._graph.nodes.values()}
        totals.update({} if last is None else last.totals)
        measures = {} if last is None else dict(last.measures)
        epoch = -1 if last is None else last.epoch
        now = time.time_ns() // 1_000_000
        fresh = [each for each in running if each.after >= epoch]  # else the checkpoint has some
        for each in fresh:
            for name, value in each.metrics.items():
                if isinstance(value, int):
                    totals[name] = totals.get(name, 0) + value
                else:
                    measures[name] = added(measures.get(name), value, each.subtask, now)
        # A report may be older than the last checkpoint: nothing seems to be lost meanwhile.
        before = self._shown
        self._shown = {name: max(count, before.get(name, 0)) for name, count in totals.items()}
        if len(fresh) == len(running) or not self._measured:
            self._measured = measures
        measured = {name: shown(each, now) for name, each in self._measured.items()}
        return {**self._totals, **labelled({**self._shown, **measured}, self._labels)}

    @property
    def last_checkpoint(self) -> CompletedCheckpoint | None:
        """The last checkpoint that is complete, or that the run continues from."""
        last = self._last
        if last is None:
            return None
        return CompletedCheckpoint(last.epoch, last.generation, last.published)

    def tick(self, running: Sequence[RunningMetrics]) -> None:
        """Report how far tasks are between two checkpoints."""
        self.metrics(running)
        counts = self._shown
        sources = [node.uid for node in self._graph.nodes.values() if node.kind == "source"]
        last = self.last_checkpoint
        records = sum(counts.get(f"{uid}.numRecordsIn", 0) for uid in sources)
        self.progress.update_running(records, None if last is None else last.age() / 1000)

    def watermarks(self) -> dict[str, OperatorTime]:
        """The event time of each operator, by uid; empty before the first checkpoint."""
        last = self._last
        return {} if last is None else {time.uid: time for time in self._event_time.read(last)}

    def started(self, start: JobStart) -> None:
        """Log how a run has started: in full at the first one, in a line after a restart."""
        if start.final:
            _LOG.warning(
                "%s: nothing is left to do. To run the job again from scratch, use another"
                " execution.checkpointing.dir",
                start,
            )
            return
        for line in start.lines() if self._runs == 0 else [str(start)]:
            if self._reports:
                _LOG.info("%s", line)
        for each in start.dropped if self._runs == 0 else []:
            if not self._reports or not _LOG.isEnabledFor(logging.INFO):
                _LOG.warning("job %r leaves state behind: %s", start.job_name, each)
        self._shown, self._measured = {}, {}
        self._runs += 1

    def functions_opened(self, before: JobStart, start: JobStart) -> None:
        """Log what functions of the first run have shown of their states.

        Args:
            before: the start as it was known before.
            start: as it is known now.
        """
        if self._reports and self._runs == 1:
            for line in start.function_states(before):
                _LOG.info("%s", line)

    def recovered(self, manifest: Manifest) -> None:
        """A run goes on from this manifest."""
        # Made whole before others see it: they read in other threads.
        self._totals = accumulators(manifest, self._labels)
        self._records = sum(
            manifest.totals.get(f"{node.uid}.numRecordsIn", 0)
            for node in self._graph.nodes.values()
            if node.kind == "source"
        )
        self._last = manifest

    def time_gauges(self, times: Times) -> dict[str, object]:
        """How the subtasks of each operator spend their time, by "operator.metric"."""
        return gauges(self._graph, self._labels, times)

    def epoch_done(
        self, manifest: Manifest, acks: list[TaskAck], seconds: float, times: Times | None = None
    ) -> None:
        """An epoch is committed.

        Args:
            manifest: its manifest.
            acks: what its tasks acknowledged.
            seconds: how long it took.
            times: what each task has done in the last second, if that is known.
        """
        before = _state_files(self._last)
        self.recovered(manifest)
        records = sum(split.records for ack in acks for split in ack.splits)
        figures = Progress(
            epoch=manifest.epoch,
            records=self._records,
            records_per_second=records / seconds if seconds else 0.0,
            watermark=self._watermark(manifest),
            checkpoint_bytes=sum(_uploaded(ack.state) for task in acks for ack in task.operators)
            + sum(size for name, size in _state_files(manifest).items() if name not in before),
            duration_seconds=seconds,
            event_time=describe(self._event_time.read(manifest), self._labels),
            tasks=describe_times(self._graph, self._labels, times or {}),
        )
        self.progress.update(figures)

    def on_pending(self, pending: PendingCommits) -> None:
        """A commit fails, or takes its time."""
        seconds = pending.age(time.time_ns() // 1_000_000) / 1000
        self.progress.update_pending(pending.committables, seconds)

    def _watermark(self, manifest: Manifest) -> int:
        """The smallest watermark behind the first exchange, or of the splits if there is none."""
        graph = self._graph
        later = [graph.nodes[node].uid for stage in graph.stages[1:] for node in stage.nodes]
        found = [ack.watermark for uid in later for ack in manifest.operators.get(uid, [])]
        if not found:
            splits = [state for many in manifest.splits.values() for state in many.values()]
            found = [state.watermark for state in splits if not state.finished]
        return min(found, default=MAX_TIMESTAMP if manifest.final else MIN_TIMESTAMP)


def _state_files(manifest: Manifest | None) -> dict[str, int]:
    """The files of operator state and their sizes, in bytes."""
    acks = [] if manifest is None else [ack for many in manifest.operators.values() for ack in many]
    files = [state.file for ack in acks for state in ack.operator_states.values()]
    return {file["remote"]: file["size"] for file in files if file is not None}


def _uploaded(handle: StateHandle | None) -> int:
    """Bytes of a snapshot that its epoch uploaded; the other files are those of older ones."""
    if handle is None:
        return 0
    return sum(file["size"] for file in handle["files"] if handle["id"] in file["remote"])
