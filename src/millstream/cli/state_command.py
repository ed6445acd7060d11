"""``millstream checkpoints DIR state``: the state of a checkpoint, section by section.

What it is: ``state/reader.py`` as tables.  It needs none of the job's code and runs none.

Read next: ``state/reader.py``.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.cli.tables import Table
from millstream.errors import CheckpointError
from millstream.metrics.progress import format_bytes
from millstream.state.reader import open_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.checkpoint.inspect import CheckpointDetails, OperatorDetails
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.state.reader import OperatorState, StateEntry, StoredSection

__all__ = ["Selection", "show_state"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What of the state is to be shown."""

    #: Uid or name; empty: the sections of all operators, and no entries.
    operator: str = ""
    #: As it is shown; empty: all.
    section: str = ""
    #: A key as Python writes it, or the text that it is; None: all keys.
    key: str | None = None
    #: Entries per section.
    limit: int = 20


def show_state(storage: CheckpointStorage, epoch: int | None, selection: Selection) -> None:
    """Print sections of state and, of one operator, their entries.

    Args:
        storage: the checkpoint directory.
        epoch: which checkpoint; None for the newest.
        selection: what of it.

    Raises:
        CheckpointError: there is no such checkpoint, operator or section, or it cannot be read.
        StateError: an entry cannot be read.
    """
    details = inspect_checkpoint(storage, epoch)
    chosen = _chosen(details, selection.operator)
    print(f"Checkpoint {details.summary.epoch} in {storage.location}")
    found = False
    for operator in chosen:
        with open_state(storage, details.manifest, operator.uid) as state:
            sections = _of_name(state.sections(), selection.section)
            if not sections:
                continue
            found = True
            print(f"\n{operator.name or operator.uid} (uid {operator.uid!r})")
            _print_sections(sections)
            if selection.operator:
                for section in sections:
                    _print_entries(state, section, selection)
    if not found:
        what = f"section {selection.section!r}" if selection.section else "state"
        where = f"operator {selection.operator!r}" if selection.operator else "the checkpoint"
        message = f"{where} has no {what}"
        raise CheckpointError(message)


def _chosen(details: CheckpointDetails, wanted: str) -> list[OperatorDetails]:
    """The operators of a uid or name; all if none is given.

    Raises:
        CheckpointError: there is none.
    """
    if not wanted:
        return details.operators
    found = [each for each in details.operators if wanted == each.uid]
    found = found or [each for each in details.operators if wanted == each.name]
    if not found:
        known = ", ".join(repr(each.name or each.uid) for each in details.operators)
        message = f"the checkpoint has no operator of uid or name {wanted!r}; there are: {known}"
        raise CheckpointError(message)
    return found


def _of_name(sections: list[StoredSection], wanted: str) -> list[StoredSection]:
    return [each for each in sections if wanted in ("", shown_name(each.section.name))]


def shown_name(name: str) -> str:
    """The name of a section; what operators keep for themselves begins with a null byte."""
    return f"({name[1:]})" if name.startswith("\0") else name


def _print_sections(sections: list[StoredSection]) -> None:
    table = Table(
        ("section", False),
        ("kind", False),
        ("per", False),
        ("values", False),
        ("entries", True),
        ("size", True),
    )
    for each in sections:
        section = each.section
        by = {"K": "key", "T": "time, key", "C": "chunk", "S": "subtask"}[section.letter]
        values = ", ".join(filter(None, (section.value_type, section.format)))
        table.add(
            shown_name(section.name),
            section.kind + (", expires" if section.expires else ""),
            f"{by}, {section.namespace}" if section.namespace else by,
            values,
            str(each.entries),
            format_bytes(each.size),
        )
    table.print()


def _print_entries(state: OperatorState, stored: StoredSection, selection: Selection) -> None:
    section = stored.section
    print(f"{shown_name(section.name)}:")
    entries = _wanted(state.entries(section.name), selection.key)
    for entry in islice(entries, selection.limit):
        if section.letter == "S" and entry.namespace is not None:
            print(f"  subtask {entry.namespace}: {entry.value!r}")
            continue
        place = [f"key {entry.key!r}"]
        if entry.namespace is not None:
            place.append(f"{section.namespace.partition(',')[0] or 'window'} {entry.namespace!r}")
        if entry.time is not None:
            place.append(f"time {entry.time}")
        value = "" if section.format == "" else f": {entry.value!r}"
        print(f"  {', '.join(place)}{value}")
    if next(entries, None) is not None:
        print(f"  and more; --limit shows more than {selection.limit}")


def _wanted(entries: Iterator[StateEntry], key: str | None) -> Iterator[StateEntry]:
    if key is None:
        return entries
    literal: object = key
    with suppress(ValueError, SyntaxError):
        literal = ast.literal_eval(key)
    forms = {key, repr(literal)}
    return (each for each in entries if str(each.key) == key or repr(each.key) in forms)
