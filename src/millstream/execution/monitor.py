"""Figures and reports of a running job: how it started, totals, event time, progress."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from millstream.checkpoint.program import (
    accumulators,
    holdings,
    labelled,
    stored_max_parallelism,
)
from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.metrics import added, shown
from millstream.contracts.operator import FUNCTION_STATES
from millstream.metrics.progress import (
    EventTimeReader,
    Progress,
    describe,
    describe_times,
    format_moment,
    gauges,
    is_reported,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from millstream.checkpoint.commit import PendingCommits
    from millstream.checkpoint.model import Manifest, OperatorRecord, TaskAck
    from millstream.contracts.key_value_store import StateHandle
    from millstream.contracts.metrics import Measure
    from millstream.graph.model import JobGraph
    from millstream.metrics.progress import OperatorTime, ProgressReporter, Times
    from millstream.runtime.task_metrics import RunningMetrics

    Records = Mapping[str, OperatorRecord]


_LOG: Final = logging.getLogger("millstream")
Outcome = Literal["restored", "new", "dropped"]


@dataclass(frozen=True, slots=True)
class StartedOperator:
    """An operator at the start of a run, and what becomes of its states."""

    uid: str
    #: ``operator 'count' (job.py:14)``.
    title: str
    #: "restored", "new" or "dropped".
    outcome: Outcome
    #: State that comes from the checkpoint: states of functions by name, else what it is.
    restored: tuple[str, ...] = ()
    #: State that begins empty.
    new: tuple[str, ...] = ()
    #: State that the checkpoint has and the run leaves behind.
    dropped: tuple[str, ...] = ()
    #: State that the checkpoint has and keeps, and that the program did not ask for.
    unused: tuple[str, ...] = ()
    #: The max parallelism of the checkpoint and of the run, if they differ.
    key_groups: tuple[int, int] | None = None

    def __str__(self) -> str:
        """Outcome, operator and states in one line."""
        parts = []
        if self.restored:
            parts.append(", ".join(self.restored))
        if self.new:
            head = "begins empty: " if self.outcome == "new" else "new: "
            parts.append(head + ", ".join(self.new))
        if self.dropped:
            head = "" if self.outcome == "dropped" else "dropped: "
            parts.append(head + ", ".join(self.dropped))
        if self.unused:
            parts.append("kept unused: " + ", ".join(self.unused))
        if self.key_groups is not None:
            before, now = self.key_groups
            parts.append(f"max parallelism {before} -> {now}: keys are hashed again")
        return f"{self.outcome}: {self.title}" + "".join(f"; {each}" for each in parts)


@dataclass(frozen=True, slots=True)
class JobStart:
    """How a run starts."""

    job_name: str
    #: The checkpoint directory; empty if it is a temporary one, deleted at the end of the job.
    directory: str
    #: The checkpoint that the run continues from; None: it starts from scratch.
    checkpoint_id: int | None = None
    #: The run that wrote the checkpoint, from 1.
    run: int | None = None
    #: When the checkpoint was published, in milliseconds since 1970.
    published: int | None = None
    #: The checkpoint is of the end of the input: the job has finished before.
    final: bool = False
    #: Those that keep something, or are new or gone; empty if the run starts from scratch.
    operators: tuple[StartedOperator, ...] = ()
    #: The savepoint that the job starts from, or has started from in an earlier run; empty: none.
    savepoint: str = ""
    #: Whether the run continues from the savepoint, and not from a later checkpoint of its own.
    starts_from_savepoint: bool = False
    #: Function states in the checkpoint, by uid; new ones are known when functions have opened.
    known_states: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)

    @property
    def continues(self) -> bool:
        """Return whether the run continues from a checkpoint."""
        return self.checkpoint_id is not None

    @property
    def dropped(self) -> list[StartedOperator]:
        """Operators of the checkpoint whose state, or a part of it, is left behind."""
        return [each for each in self.operators if each.dropped]

    def __str__(self) -> str:
        """One line: from which checkpoint the run continues, or why from none."""
        if self.published is None:
            if not self.directory:
                why = "execution.checkpointing.dir is not set, so its checkpoints are temporary"
            else:
                why = f"there is no checkpoint in {self.directory}"
            return f"job {self.job_name!r} starts from scratch: {why}"
        where = f"in {self.directory}" if self.directory else "in a temporary directory"
        if self.starts_from_savepoint:
            return (
                f"job {self.job_name!r} starts from savepoint {self.savepoint}, of"
                f" {format_moment(self.published)}; its own checkpoints are {where}"
            )
        verb = "has finished before with" if self.final else "continues from"
        line = (
            f"job {self.job_name!r} {verb} checkpoint {self.checkpoint_id} of run {self.run},"
            f" published {format_moment(self.published)}, {where}"
        )
        if self.savepoint:
            line = (
                f"{line}; it has started from savepoint {self.savepoint}, which is not read again"
            )
        return line

    def lines(self) -> list[str]:
        """The line about the run, and one for each operator."""
        return [str(self), *(f"  {each}" for each in self.operators)]

    def with_function_states(self, acks: Iterable[TaskAck]) -> JobStart:
        """Return the start with what functions showed of their states when they had opened.

        A state of the checkpoint that no subtask asked for is not restored: it is kept unused.
        """
        asked: dict[str, set[str]] = {}
        unused: dict[str, set[str]] = {}
        fresh: dict[str, set[str]] = {}
        for ack in (each for task in acks for each in task.operators):
            known = self.known_states.get(ack.uid, frozenset())
            keyed, own = set(ack.states), set(ack.operator_states)
            asked.setdefault(ack.uid, set()).update(
                _titles(keyed - ack.unused_states, own - ack.unused_operator_states)
            )
            unused.setdefault(ack.uid, set()).update(
                _titles(ack.unused_states, ack.unused_operator_states)
            )
            fresh.setdefault(ack.uid, set()).update(_titles(keyed - known))
        operators = []
        for each in self.operators:
            if each.outcome == "restored" and each.uid in asked:
                left = unused[each.uid] - asked[each.uid]
                each = replace(  # noqa: PLW2901
                    each,
                    restored=tuple(name for name in each.restored if name not in left),
                    new=(*each.new, *sorted(fresh[each.uid] - left)),
                    unused=tuple(sorted(left)),
                )
            operators.append(each)
        return replace(self, operators=tuple(operators))

    def function_states(self, before: JobStart) -> list[str]:
        """Describe states that begin empty, or are not used, a line for each operator."""
        lines = []
        for old, each in zip(before.operators, self.operators, strict=True):
            fresh = [name for name in each.new if name not in old.new]
            has = _has(self.known_states.get(each.uid, frozenset()))
            if fresh:
                lines.append(f"new: {', '.join(fresh)} of {each.title} began empty; {has}")
            if each.unused:
                lines.append(
                    f"kept unused: {', '.join(each.unused)} of {each.title}, which the program did"
                    " not ask for"
                )
        return lines


def _titles(keyed: Iterable[str], own: Iterable[str] = ()) -> list[str]:
    return [
        *(f"state {name!r}" for name in keyed),
        *(f"operator state {name!r}" for name in own),
    ]


def _has(names: frozenset[str]) -> str:
    stored = ", ".join(map(repr, sorted(names)))
    return f"the checkpoint has {stored} of it" if names else "the checkpoint has none of it"


def start_of(
    job_name: str, directory: str, last: Manifest | None, stored: Records, program: Records
) -> JobStart:
    """Describe how a run starts.

    Args:
        job_name: the name given to ``execute``.
        directory: the checkpoint directory; empty if it is a temporary one.
        last: the checkpoint that it continues from, None if there is none; the program fits it.
        stored: the operators of the program that wrote it, by uid.
        program: those of the program that starts.
    """
    if last is None:
        return JobStart(job_name, directory)
    return JobStart(
        job_name,
        directory,
        checkpoint_id=last.epoch,
        run=last.generation,
        published=last.published,
        final=last.final,
        operators=tuple(_operators(last, stored, program)),
        known_states={uid: frozenset(record.states) for uid, record in stored.items()},
    )


def _operators(last: Manifest, stored: Records, program: Records) -> Iterator[StartedOperator]:
    held = holdings(last, stored)
    for uid, new in program.items():
        wanted = tuple(section.name for section in new.sections)
        old = stored.get(uid)
        if old is None:
            yield StartedOperator(uid, new.title, "new", new=wanted)
            continue
        if uid not in held:
            continue
        names = {section.name for section in old.sections}
        fresh = tuple(name for name in wanted if name not in names)
        left = tuple(name for name in _sections(old) if name not in wanted)
        kept = tuple(name for name in _contents(last, old) if name not in left)
        if old.kind == "source" and not kept:
            kept = (held[uid],)
        if kept or fresh or left:  # else it is a sink, of which all is committed
            groups = stored_max_parallelism(last, uid)
            hashed = None
            if groups is not None and groups != new.max_parallelism:
                hashed = (groups, new.max_parallelism)
            title = new.title
            yield StartedOperator(uid, title, "restored", kept, fresh, left, key_groups=hashed)
    for uid, old in stored.items():
        if uid not in program and uid in held:
            states = tuple(_contents(last, old)) or (held[uid],)
            yield StartedOperator(uid, old.title, "dropped", dropped=states)


def _sections(record: OperatorRecord) -> list[str]:
    """Return what the operator itself keeps by key; states of its function have names."""
    return [each.name for each in record.sections if each.name != FUNCTION_STATES.name]


def _contents(last: Manifest, old: OperatorRecord) -> Iterator[str]:
    """State of an operator in a checkpoint: by key, by subtask, and the positions of splits."""
    yield from _titles(sorted(old.states))
    yield from _sections(old)
    names = {name for ack in last.operators.get(old.uid, []) for name in ack.operator_states}
    yield from _titles((), sorted(names))
    count = len(last.splits.get(old.uid, {}))
    if count:
        yield f"the position{'s' if count > 1 else ''} of {count} split{'s' if count > 1 else ''}"


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
    """Figures of a job at its last checkpoint, and since then."""

    def __init__(
        self, graph: JobGraph, labels: Mapping[str, str], progress: ProgressReporter
    ) -> None:
        self.progress = progress
        self._graph = graph
        self._labels = labels
        self._event_time = EventTimeReader(graph)
        self._last: Manifest | None = None
        #: Totals so far, by "operator.metric".
        self.totals: dict[str, object] = {}
        self._records = 0
        #: Counts of operators that were shown last in this run, by "uid.metric".
        self._shown: dict[str, int] = {}
        #: Measures of functions that were shown last in this run, by "uid.metric".
        self._measured: dict[str, Measure] = {}
        self._runs = 0
        mode = graph.configuration.get(options.PROGRESS)
        self._reports = is_reported(mode, shows_records=graph.shows_records)

    @property
    def of_functions(self) -> frozenset[str]:
        """Names of those totals that functions of the program have counted and measured."""
        measures = {} if self._last is None else self._last.measures
        return frozenset(labelled(measures, self._labels))

    def metrics(self, running: Sequence[RunningMetrics]) -> dict[str, object]:
        """Return totals with what tasks have counted since the last checkpoint.

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
        return {**self.totals, **labelled({**self._shown, **measured}, self._labels)}

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
                _LOG.warning("job %r leaves state unclaimed: %s", start.job_name, each)
        self._shown, self._measured = {}, {}
        self._runs += 1

    def functions_opened(self, before: JobStart, start: JobStart) -> None:
        """Log what functions of the first run have shown of their states."""
        if self._reports and self._runs == 1:
            for line in start.function_states(before):
                _LOG.info("%s", line)

    def recovered(self, manifest: Manifest) -> None:
        """A run resumes from this manifest."""
        # Made whole before others see it: they read in other threads.
        self.totals = accumulators(manifest, self._labels)
        self._records = sum(
            manifest.totals.get(f"{node.uid}.numRecordsIn", 0)
            for node in self._graph.nodes.values()
            if node.kind == "source"
        )
        self._last = manifest

    def time_gauges(self, times: Times) -> dict[str, object]:
        """Return how the subtasks of each operator spend their time, by "operator.metric"."""
        return gauges(self._graph, self._labels, times)

    def epoch_done(
        self, manifest: Manifest, acks: list[TaskAck], seconds: float, times: Times | None = None
    ) -> Progress:
        """Report an epoch that is committed, and return its figures."""
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
        return figures

    def on_pending(self, pending: PendingCommits) -> None:
        """A commit fails, or takes its time."""
        seconds = pending.age(time.time_ns() // 1_000_000) / 1000
        self.progress.update_pending(pending.committables, seconds)

    def _watermark(self, manifest: Manifest) -> int:
        """The smallest watermark after the first exchange, or of the splits if there is none."""
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
