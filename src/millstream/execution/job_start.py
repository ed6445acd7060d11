"""How a run starts: from scratch or from a checkpoint, and what it takes over from that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from millstream.checkpoint.program import holdings
from millstream.contracts.operator import FUNCTION_STATES
from millstream.metrics.progress import format_moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from millstream.checkpoint.model import Manifest, OperatorRecord, TaskAck

    Records = Mapping[str, OperatorRecord]

__all__ = ["JobStart", "StartedOperator", "start_of"]

Outcome = Literal["restored", "new", "dropped"]


@dataclass(frozen=True, slots=True)
class StartedOperator:
    """What becomes of an operator, and of the states that it keeps, at the start of a run."""

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
    #: Function states in the checkpoint, by uid; new ones are known when functions have opened.
    known_states: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)

    @property
    def continues(self) -> bool:
        """Whether the run continues from a checkpoint."""
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
        verb = "has finished before with" if self.final else "continues from"
        where = f"in {self.directory}" if self.directory else "in a temporary directory"
        return (
            f"job {self.job_name!r} {verb} checkpoint {self.checkpoint_id} of run {self.run},"
            f" published {format_moment(self.published)}, {where}"
        )

    def lines(self) -> list[str]:
        """The line about the run, and one for each operator."""
        return [str(self), *(f"  {each}" for each in self.operators)]

    def with_function_states(self, acks: Iterable[TaskAck]) -> JobStart:
        """Return the start with what functions showed of their states when they had opened.

        A state of the checkpoint that no subtask asked for is not restored: it is kept unused.

        Args:
            acks: of the first checkpoint of the run.
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
        """Describe states of functions that begin empty, or are not used, a line for each operator.

        Args:
            before: what this was made of.
        """
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
            yield StartedOperator(uid, new.title, "restored", kept, fresh, left)
    for uid, old in stored.items():
        if uid not in program and uid in held:
            states = tuple(_contents(last, old)) or (held[uid],)
            yield StartedOperator(uid, old.title, "dropped", dropped=states)


def _sections(record: OperatorRecord) -> list[str]:
    """What the operator itself keeps by key; states of its function have names."""
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
