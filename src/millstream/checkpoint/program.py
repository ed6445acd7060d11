"""The program as a checkpoint records it, and its comparison with another program.

Every manifest has a record per operator; ``compare`` lists what a program would lose of a
checkpoint, or what it has to take over from it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.contracts.metrics import shown
from millstream.contracts.operator import FUNCTION_STATES
from millstream.errors import IncompatibleProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.checkpoint.model import Manifest, OperatorAck, OperatorRecord
    from millstream.contracts.operator import StateSection

    Records = Mapping[str, OperatorRecord]
    #: (uid, a section of the checkpoint) -> None if it is converted, else why it cannot be; empty
    #: if there is nothing to say.
    Refusal = Callable[[str, StateSection], str | None]


T = TypeVar("T")
#: Characters of a generated uid that tell operators of one name apart.
_SHORT: Final = 8


def holdings(manifest: Manifest, stored: Mapping[str, OperatorRecord]) -> dict[str, str]:
    """What would be lost with each operator of a checkpoint, by uid; "keyed state, 3 committables".

    Left out are operators that keep nothing.
    """
    found: dict[str, list[str]] = {}
    for uid, acks in manifest.operators.items():
        if any(ack.state is not None for ack in acks):
            found.setdefault(uid, []).append("keyed state")
        if any(ack.operator_states for ack in acks):
            found.setdefault(uid, []).append("state of its own")
    for uid, splits in manifest.splits.items():
        if splits:
            found.setdefault(uid, []).append(f"the positions of {len(splits)} splits")
    for uid, count in manifest.committable_counts().items():
        found.setdefault(uid, []).append(f"{count} committables")
    for uid, record in stored.items():
        if record.kind == "source" and uid not in found:
            found[uid] = ["how far it was read"]
        elif record.commits and uid not in found:
            found[uid] = ["output that may wait for its commit"]
    return {uid: ", ".join(what) for uid, what in found.items()}


def has_declared_states(manifest: Manifest, program: Mapping[str, OperatorRecord]) -> bool:
    """Whether a checkpoint has states that functions declare, of operators of ``program``."""
    return any(
        record.states or any(ack.operator_states for ack in manifest.operators.get(uid, ()))
        for uid, record in manifest.program.items()
        if uid in program and record.kind not in ("source", "sink")
    )


def stored_max_parallelism(manifest: Manifest, uid: str) -> int | None:
    """How many key groups the keyed state of an operator has; None if it has no such state."""
    acks = manifest.operators.get(uid, [])
    # The key groups of all subtasks together are all there are.
    return max((ack.state["key_groups"][1] for ack in acks if ack.state is not None), default=None)


def labels(program: Mapping[str, OperatorRecord]) -> dict[str, str]:
    """Return what to call each operator by where one word must do: by uid.

    A uid that the program gives is a name already; for others their name, with the beginning of
    the uid where operators share it.
    """
    names = Counter(record.name for record in program.values())
    found = {}
    for uid, record in program.items():
        if record.has_own_uid or not record.name:
            found[uid] = uid
        elif names[record.name] == 1:
            found[uid] = record.name
        else:
            found[uid] = f"{record.name} ({uid[:_SHORT]})"
    return found


def accumulators(manifest: Manifest, names: Mapping[str, str]) -> dict[str, object]:
    """Return all that a job has counted and measured, by operator's label and metric's name."""
    measures = {name: shown(each, manifest.started) for name, each in manifest.measures.items()}
    return labelled({**manifest.totals, **measures}, names)


def labelled(totals: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    """Totals of a manifest, "uid.metric", with the operator's label in the place of its uid."""
    found = {}
    for total, value in totals.items():
        parts = total.split(".")
        for length in range(len(parts) - 1, 0, -1):  # a uid, or a metric, may have dots
            uid = ".".join(parts[:length])
            if uid in names:
                found[".".join([names[uid], *parts[length:]])] = value
                break
        else:
            found[total] = value
    return found


SQL_ADVICE: Final = (
    "Operators of SQL are found by what they compute: put the query back as it was, or run the plan"
    " that COMPILE PLAN made of it. What other operators of the job keep does fit."
)
_LONGEST: Final = 200


def most_alike(
    gone: Iterable[OperatorRecord], fresh: Iterable[OperatorRecord]
) -> dict[str, OperatorRecord]:
    """For operators that are gone the new one of the same kind with the most parts in common.

    Returns:
        By the old uid.
    """
    left = [each for each in fresh if each.details]
    pairs = sorted(
        (
            (-_in_common(old, new), number, place, old, new)
            for number, old in enumerate(gone)
            for place, new in enumerate(left)
            if old.details and (old.kind, old.name) == (new.kind, new.name)
        ),
        key=lambda pair: pair[:3],
    )
    found: dict[str, OperatorRecord] = {}
    taken: set[str] = set()
    for *_, old, new in pairs:
        if old.uid not in found and new.uid not in taken:
            found[old.uid] = new
            taken.add(new.uid)
    return found


def _in_common(old: OperatorRecord, new: OperatorRecord) -> int:
    names = old.details.keys() & new.details.keys()
    return sum(len({*old.details[name]} & {*new.details[name]}) for name in names)


def differences(old: OperatorRecord, new: OperatorRecord) -> list[str]:
    """Return what was (``-``) and what is (``+``), by the parts that differ."""
    lines: list[str] = []
    for part in dict.fromkeys([*old.details, *new.details]):
        name, before, after = part, old.details.get(part, ()), new.details.get(part, ())
        if before == after:
            continue
        gone, come = _without(before, after), _without(after, before)
        if not gone and not come:
            name, gone, come = f"{name}, in another order", list(before), list(after)
        lines.append(f"        {name}:")
        lines += [f"          - {_cut(each)}" for each in gone]
        lines += [f"          + {_cut(each)}" for each in come]
    if not lines:
        return ["        what lies before it, or what reads it"]
    return lines


def _without(texts: Sequence[str], others: Sequence[str]) -> list[str]:
    left = list(others)
    found = []
    for each in texts:
        if each in left:
            left.remove(each)
        else:
            found.append(each)
    return found


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_IGNORE: Final = "execution.state-recovery.ignore-unclaimed-state"
_START_FROM_SCRATCH: Final = (
    f"give it a new uid and set {_IGNORE} to true, and it begins without what is stored"
)


def _not_as_it_was(uid: str, stored: StateSection) -> str | None:
    """Nothing is converted."""
    del uid, stored
    return ""


def require_fit(
    where: str,
    manifest: Manifest,
    stored: Records,
    program: Records,
    *,
    ignore_unclaimed: bool = False,
    refusal: Refusal = _not_as_it_was,
) -> None:
    """Check that ``program`` finds everything that the checkpoint holds.

    Args:
        where: the checkpoint directory, for messages.
        manifest: the checkpoint.
        stored: the operators of the program that wrote it, by uid.
        program: those of the one that is to continue.
        ignore_unclaimed: what belongs to operators that are gone may be dropped.
        refusal: what an operator says to a section of the checkpoint that is not as it would write
            it: None if it can convert that, else why it cannot.

    Raises:
        IncompatibleProgramError: it does not.
    """
    held = holdings(manifest, stored)
    lost = [uid for uid in held if uid not in program] if not ignore_unclaimed else []
    changes = _Changes(stored, program)
    lines: list[str] = []
    if lost:
        lines += changes.describe(held)
    for uid in sorted(stored.keys() & program.keys()):
        lines += _changed(stored[uid], program[uid], held.get(uid), refusal)
    lines += _foreign_frames(stored, program)
    if not lines:
        return
    head = f"the program does not fit checkpoint {manifest.epoch} in {where}:"
    of_sql = [uid for uid in lost if uid in stored and stored[uid].details]
    advice = [SQL_ADVICE] if of_sql else []
    advice += [_UID_ADVICE] if len(of_sql) < len(lost) else []
    advice += [_DROP_ADVICE] if lost else []
    raise IncompatibleProgramError("\n".join([head, *lines, *advice, _UNTOUCHED]))


_UID_ADVICE: Final = (
    "State, positions of sources and output of sinks are found by uid. Without a uid of its own,"
    " that of an operator is made of its place in the program and changes with what it reads: give"
    " every source, sink and operator with state a uid, with .uid('a-name')."
)
_DROP_ADVICE: Final = (
    f"To drop what belongs to operators that are gone, set {_IGNORE} to true; to keep nothing, use"
    " an empty directory."
)
_UNTOUCHED: Final = "Nothing in the directory was changed."


def require_same_keys(
    where: str,
    manifest: Manifest,
    program: Records,
    acks: Iterable[OperatorAck],
    checked: set[str],
) -> None:
    """Check, by the first keys that a run has met, that they are of the types of what is stored.

    State under keys of another type is not found.  Types cannot be known before records come, so
    this is asked of every epoch before it is published, until each operator has met a key.

    Args:
        where: the checkpoint directory, for messages.
        manifest: the checkpoint that the run resumes from.
        program: the operators of the program, by uid.
        acks: of the epoch.
        checked: uids of operators that were found right in this run; gets more.

    Raises:
        IncompatibleProgramError: all keys of an operator are of types that its state has none of.
    """
    found: dict[str, set[str]] = {}
    for ack in acks:
        if ack.key_types and ack.uid not in checked:
            found.setdefault(ack.uid, set()).update(ack.key_types)
    checked |= found.keys()
    lines: list[str] = []
    for uid in sorted(found.keys() & manifest.program.keys() & program.keys()):
        old, new = set(manifest.program[uid].key_types), program[uid]
        if old and old.isdisjoint(found[uid]) and not new.ignores_unclaimed:
            before, now = " or ".join(sorted(old)), " or ".join(sorted(found[uid]))
            head = f"  ~ {new.title} gets keys of type {now}, but its state in the checkpoint lies"
            lines.append(f"{head} under keys of type {before}, and would not be found")
            advice = f"      let the key selector give {before} again, or set {_IGNORE} to true:"
            lines.append(f"{advice} what is stored under the old keys is then left behind")
    if lines:
        head = f"the program does not fit checkpoint {manifest.epoch} in {where}:"
        raise IncompatibleProgramError("\n".join([head, *lines, _UNPUBLISHED]))


_UNPUBLISHED: Final = "Nothing of the new program's run was published."


# -- operators that are in both ------------------------------------------------------------------


def _changed(
    old: OperatorRecord,
    new: OperatorRecord,
    held: str | None,
    refusal: Refusal,
) -> list[str]:
    """Return what an operator that is still there would not find."""
    if held is None:
        return []
    if old.kind != new.kind:
        line = (
            f"  ~ {new.title} was {_article(old.kind)} when the checkpoint was made, which has"
            f" {held} of it; give it another uid, or put the {old.kind} back"
        )
        return [line]
    lines = []
    if old.connector and old.connector != new.connector:
        lines.append(
            f"  ~ {new.title} is {_article(new.connector)} and was {_article(old.connector)} when"
            f" the checkpoint was made, which holds {held} of it, for that connector to understand;"
            f" put it back, or {_START_FROM_SCRATCH}"
        )
    for section in old.sections:
        lines += _section(old, new, section, refusal)
    return lines


def _section(
    old: OperatorRecord, new: OperatorRecord, stored: StateSection, refusal: Refusal
) -> list[str]:
    """Return whether the program looks where ``stored`` is; if not, what is to be said of it."""
    if stored == FUNCTION_STATES and not old.states:
        return []
    wanted = next((each for each in new.sections if each.name == stored.name), None)
    if wanted == stored:
        return []
    why = "" if wanted is None else refusal(new.uid, stored)
    if why is None:
        return []
    names = f" {', '.join(map(repr, sorted(old.states)))}" if stored == FUNCTION_STATES else ""
    head = f"  ~ {new.title} would not find its {stored.name}{names}"
    if wanted is None:
        looked_for = "; ".join(each.name for each in new.sections) or "no state at all"
    else:
        looked_for = str(wanted)
    return [
        head,
        f"      stored:      {stored}",
        f"      looked for:  {looked_for}",
        *([f"      {why}"] if why else []),
        f"      put it back as it was (it was made at {old.location}), or {_START_FROM_SCRATCH}",
    ]


def _foreign_frames(stored: Records, program: Records) -> list[str]:
    """DataFrames of Spark that are new: Spark's own log has a fixed number of sources."""
    return [
        f"  + {new.title} is new, but Spark's log in the checkpoint is of a query without it; use"
        " an empty directory"
        for uid, new in program.items()
        if new.connector == "DataFrame"
        and uid not in stored
        and any(r.name for r in stored.values())
    ]


# -- operators that are in one of them -------------------------------------------------------------


@dataclass(slots=True)
class _Changes:
    """Which operators of two programs are the same, though their generated uids differ."""

    stored: Records
    program: Records
    #: Uid there -> uid here.
    moved: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gone = [old for uid, old in self.stored.items() if uid not in self.program]
        fresh = [new for uid, new in self.program.items() if uid not in self.stored]
        # The nearest of the same name: operators keep their order in a program that is edited.
        for old in gone:
            for new in fresh:
                if _alike(old, new) and new.uid not in self.moved.values():
                    self.moved[old.uid] = new.uid
                    break

    def describe(self, held: Mapping[str, str]) -> list[str]:
        """A line or two per operator that is gone, new, or known by another uid."""
        lines: list[str] = []
        gone = [old for uid, old in self.stored.items() if uid not in self.program]
        alike = most_alike(
            gone, [new for uid, new in self.program.items() if uid not in self.stored]
        )
        for uid, old in self.stored.items():
            if uid in self.moved:
                lines += self._moved(old, self.program[self.moved[uid]], held.get(uid))
            elif uid not in self.program:
                lines.append(f"  - {old.title} is gone{_with(held.get(uid))}")
                if uid in alike:
                    lines.append(f"      in its place is {alike[uid].title}, which differs in")
                    lines += differences(old, alike[uid])
        known = {*self.stored, *self.moved.values()}
        lines += [
            f"  + {new.title} is new" for uid, new in self.program.items() if uid not in known
        ]
        return lines

    def _moved(self, old: OperatorRecord, new: OperatorRecord, held: str | None) -> list[str]:
        if old.has_own_uid or new.has_own_uid:
            why = f"had the uid {old.uid!r}{'' if old.has_own_uid else ', a generated one'}"
        else:
            why = f"{self._reads(old, new)}, so its generated uid is another"
        line = f"  ~ {new.title}, made at {old.location} then, {why}"
        if held is None:
            return [line]
        return [
            f"{line}; the checkpoint has {held} of it",
            f"      to keep that, give it its old uid: .uid({old.uid!r})",
        ]

    def _reads(self, old: OperatorRecord, new: OperatorRecord) -> str:
        before = [self._names(self.stored, uid) for uid in old.inputs]
        after = [self._names(self.program, uid) for uid in new.inputs]
        if before == after or not before:
            return "stands behind a change"
        return f"reads {', '.join(after)} and not {', '.join(before)} any more"

    @staticmethod
    def _names(records: Records, uid: str) -> str:
        return repr(records[uid].name if uid in records else uid)


def _alike(old: OperatorRecord, new: OperatorRecord) -> bool:
    return (
        bool(old.name)
        and (old.kind, old.name, old.connector) == (new.kind, new.name, new.connector)
        and not (old.has_own_uid and new.has_own_uid)
    )


def _with(held: str | None) -> str:
    return f"; the checkpoint has {held} of it" if held else ""


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
