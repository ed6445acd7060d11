"""The program as a checkpoint records it, and how one is compared with another.

What it is: a record per operator, in every manifest; ``compare`` says what a program would lose of
a checkpoint, as lines for people, or what it has to take over from it.

What it is not: a check of the states of user functions within an operator.  The operator makes it
when it opens them (``state/keyed.py``): their names are not known before.  A state that the
function no longer names is kept, as in Flink.

Read next: ``checkpoint/program_changes.py``, ``execution/restored_program.py``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.checkpoint.model import OperatorRecord
from millstream.contracts.metrics import shown
from millstream.contracts.state_sections import section_from_json, section_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.checkpoint.model import Manifest

__all__ = [
    "accumulators",
    "has_declared_states",
    "holdings",
    "labelled",
    "labels",
    "record_from_json",
    "record_to_json",
    "stored_max_parallelism",
]

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
    """What to call each operator by where one word must do: by uid.

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


def record_to_json(record: OperatorRecord) -> dict[str, object]:
    """What a manifest or ``job.json`` says of an operator; what is not said is left out."""
    value: dict[str, object] = {"kind": record.kind, "name": record.name}
    if record.location:
        value["location"] = record.location
    if not record.has_own_uid:
        value["generated"] = True
    if record.connector:
        value["connector"] = record.connector
    if record.commits:
        value["commits"] = True
    if record.inputs:
        value["inputs"] = list(record.inputs)
    if record.sections:
        value["sections"] = [section_to_json(section) for section in record.sections]
    if record.states:
        value["states"] = record.states
    if record.key_types:
        value["keys"] = list(record.key_types)
    if record.details:
        value["details"] = {name: list(texts) for name, texts in record.details.items()}
    return value


def record_from_json(uid: str, value: Mapping[str, Any]) -> OperatorRecord:
    """The record that ``value`` says.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it does not have the form of one.
    """
    return OperatorRecord(
        uid=uid,
        kind=str(value["kind"]),
        name=str(value["name"]),
        location=str(value.get("location", "")),
        has_own_uid=not value.get("generated", False),
        connector=str(value.get("connector", "")),
        commits=bool(value.get("commits", False)),
        inputs=tuple(map(str, value.get("inputs", ()))),
        sections=tuple(map(section_from_json, value.get("sections", ()))),
        states={str(name): str(kind) for name, kind in value.get("states", {}).items()},
        key_types=tuple(map(str, value.get("keys", ()))),
        details={
            str(name): tuple(map(str, texts)) for name, texts in value.get("details", {}).items()
        },
    )
