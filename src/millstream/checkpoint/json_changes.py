"""What has changed between two JSON values, as a JSON value, and back.

What it is: two functions, inverse to each other: ``apply(old, difference(old, new)) == new``.  They
know nothing of manifests, so whatever a manifest gets in future is taken care of.

What it is not: the shortest form there is.  Values that are neither objects nor lists are replaced.

The form: of an object ``{"+": {key: new value}, "~": {key: changes}, "-": [keys that are gone]}``;
of a list of objects that keeps its length ``{"at": {index: changes}}``; of any other list
``{"cut": [start, how many], "put": [values]}``, with what both have in common in front and behind
left alone.  ``{"to": value}`` replaces anything.  Nothing has changed: ``{}``.

Read next: ``checkpoint/manifest_log.py``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["apply", "difference"]

#: JSON.
Changes = dict[str, Any]


def difference(old: object, new: object) -> Changes:
    """What makes ``new`` of ``old``."""
    if old == new and type(old) is type(new):
        return {}
    if isinstance(old, dict) and isinstance(new, dict):
        return _of_objects(old, new)
    if isinstance(old, list) and isinstance(new, list):
        return _of_lists(old, new)
    return {"to": new}


def apply(old: Any, changes: Changes) -> Any:
    """What ``changes`` make of ``old``, which stays as it is.

    Raises:
        KeyError, IndexError, TypeError, ValueError, AttributeError: they are not changes of it.
    """
    if not changes:
        return old
    if "to" in changes:
        return changes["to"]
    if "at" in changes:
        made = list(old)
        for index, inner in changes["at"].items():
            made[int(index)] = apply(made[int(index)], inner)
        return made
    if "cut" in changes:
        start, count = changes["cut"]
        return [*old[:start], *changes["put"], *old[start + count :]]
    found = dict(old)
    for key in changes.get("-", ()):
        del found[key]
    for key, inner in changes.get("~", {}).items():
        found[key] = apply(found[key], inner)
    found.update(changes.get("+", {}))
    return found


def _of_objects(old: dict[str, Any], new: dict[str, Any]) -> Changes:
    added = {key: value for key, value in new.items() if key not in old}
    gone = [key for key in old if key not in new]
    inner: Changes = {}
    for key, value in new.items():
        if key in old:
            changes = difference(old[key], value)
            if "to" in changes:
                added[key] = value
            elif changes:
                inner[key] = changes
    parts = {"+": added, "~": inner, "-": gone}
    return {name: part for name, part in parts.items() if part}


def _of_lists(old: list[Any], new: list[Any]) -> Changes:
    if len(old) == len(new) and all(isinstance(each, dict) for each in (*old, *new)):
        pairs = enumerate(zip(old, new, strict=True))
        changes = {str(index): difference(one, other) for index, (one, other) in pairs}
        return {"at": {index: each for index, each in changes.items() if each}}
    shorter = min(len(old), len(new))
    front = next((i for i in range(shorter) if not _same(old[i], new[i])), shorter)
    behind = next(
        (i for i in range(shorter - front) if not _same(old[-1 - i], new[-1 - i])), shorter - front
    )
    return {"cut": [front, len(old) - front - behind], "put": new[front : len(new) - behind]}


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
