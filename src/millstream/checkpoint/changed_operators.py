"""What has changed of operators of SQL that a program does not find in a checkpoint any more.

What it is: for each such operator the new one that is most like it, and the parts in which they
differ (keys, aggregates, columns, ...), with what was and what is.
What it is not: the decision that a program does not fit (``checkpoint/program_changes.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.checkpoint.model import OperatorRecord

__all__ = ["SQL_ADVICE", "differences", "most_alike"]

SQL_ADVICE: Final = (
    "Operators of SQL are found by what they compute: put the query back as it was, or run the plan"
    " that COMPILE PLAN made of it. What other operators of the job keep does fit."
)
_LONGEST: Final = 200


def most_alike(
    gone: Iterable[OperatorRecord], fresh: Iterable[OperatorRecord]
) -> dict[str, OperatorRecord]:
    """For operators that are gone the new one of the same kind with the most parts in common.

    Args:
        gone: of the old program.
        fresh: of the new one; each is taken once.

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
    """What was (``-``) and what is (``+``), by the parts that differ."""
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
