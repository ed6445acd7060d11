"""``millstream checkpoints DIR``: list, inspect, state, verify, export, restore, confirm and sign.

All but "restore", "confirm" and "sign" only read the directory, and may be used while the job runs.
"""

from __future__ import annotations

import ast
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.commit import confirm_committed
from millstream.checkpoint.inspect import (
    inspect_checkpoint,
    list_checkpoints,
    sign_directory,
    verify_checkpoints,
)
from millstream.checkpoint.local_storage import seal_of
from millstream.checkpoint.program import accumulators, labels
from millstream.checkpoint.restore import restore_checkpoint
from millstream.checkpoint.savepoint import (
    SavepointFormatType,
    SavepointSettings,
    export_checkpoint,
)
from millstream.checkpoint.storages import open_storage
from millstream.cli.tables import Table
from millstream.errors import CheckpointError
from millstream.execution.savepoints import savepoint_format
from millstream.metrics.progress import format_bytes, format_moment, format_watermark
from millstream.object_stores import RECEIVED_BYTES, REQUEST_KINDS, SENT_BYTES, is_object_store
from millstream.state.canonical.restore import native_state
from millstream.state.reader import open_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.checkpoint.commit import PendingCommits
    from millstream.checkpoint.inspect import CheckpointDetails, CheckpointSummary, OperatorDetails
    from millstream.checkpoint.model import SplitState
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.state.reader import OperatorState, StateEntry, StoredSection


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of the state to show."""

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
    with native_state(storage, details.manifest) as (native, manifest):
        for operator in chosen:
            with open_state(native, manifest, operator.uid) as state:
                found = _show_operator(state, operator, selection) or found
    if not found:
        what = f"section {selection.section!r}" if selection.section else "state"
        where = f"operator {selection.operator!r}" if selection.operator else "the checkpoint"
        message = f"{where} has no {what}"
        raise CheckpointError(message)


def _show_operator(state: OperatorState, operator: OperatorDetails, selection: Selection) -> bool:
    """Print what is selected of an operator; False if it has nothing of it."""
    sections = _of_name(state.sections(), selection.section)
    if not sections:
        return False
    print(f"\n{operator.name or operator.uid} (uid {operator.uid!r})")
    _print_sections(sections)
    if selection.operator:
        for section in sections:
            _print_entries(state, section, selection)
    return True


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


_SPLITS_SHOWN: Final = 20


def show_checkpoints(
    directory: str,
    action: str,
    epoch: int | None = None,
    *,
    key_file: str = "",
    selection: Selection | None = None,
    target: str = "",
    repeats_output: bool = False,
    form: str = "canonical",
) -> int:
    """Print what is in a checkpoint directory, or change from what its job continues.

    Args:
        directory: the checkpoint directory.
        action: "list", "inspect", "state", "verify", "export", "restore", "confirm" or "sign".
        epoch: for "inspect" and "state": which checkpoint, None for the newest; for "export":
            and "restore": which; for "confirm": the newest.
        key_file: the key with which the directory is signed, or is to be.
        selection: for "state": what of it.
        target: for "export": below which the savepoint is written.
        repeats_output: for "restore": output of later checkpoints may be written again.
        form: for "export": "canonical" or "native".

    Returns:
        The exit code: 1 if "verify" found damage.

    Raises:
        CheckpointError: there is no such directory or checkpoint.
        OSError: "restore" or "confirm" could not write.
    """
    storage = open_storage(directory, seal=seal_of(key_file))
    if not storage.is_there():
        message = f"there is no directory {directory!r}"
        raise CheckpointError(message)
    if action == "sign":
        count = sign_directory(directory, key_file)
        print(f"{directory}: {count} files are signed with the key in {key_file}")
        return 0
    if action == "verify":
        return _verify(storage)
    if action == "confirm" and epoch is not None:
        _confirm(storage, epoch)
    elif action == "restore" and epoch is not None:
        _restore(storage, epoch, repeats_output=repeats_output)
    elif action == "export" and epoch is not None:
        print(_export(storage, epoch, target, key_file, SavepointFormatType(form)))
    elif action == "inspect":
        _inspect(storage, epoch)
    elif action == "state":
        show_state(storage, epoch, selection or Selection())
    else:
        _list(storage)
    return 0


def _list(storage: CheckpointStorage) -> None:
    content = list_checkpoints(storage)
    if content.identity is None:
        print(f"{content.location}: no job has used this directory")
        return
    identity = content.identity
    print(f"Job '{identity.job_name}' ({identity.job_id}) in {content.location}")
    print(f"Runs so far: {content.runs}; the newest is {content.owner or 'unknown'}")
    _pending(content.pending)
    table = Table(
        ("epoch", True),
        ("run", True),
        ("published", False),
        ("took", True),
        ("state", True),
        ("new", True),
        ("in flight", True),
        ("files", True),
        ("committables", True),
        ("", False),
    )
    for summary in content.checkpoints:
        table.add(
            str(summary.epoch),
            str(summary.generation),
            format_moment(summary.published),
            f"{summary.duration / 1000:.2f} s",
            format_bytes(summary.state_size),
            format_bytes(summary.new_state_size),
            format_bytes(summary.in_flight_size) if summary.in_flight_size else "",
            str(summary.state_files),
            str(summary.committables),
            "end of job" if summary.final else "",
        )
    table.print()
    if content.checkpoints and is_object_store(content.location):
        written = content.checkpoints[-1].written
        print(f"Objects written by the newest checkpoint: {written}, its manifest included")
    if any(summary.requests for summary in content.checkpoints):
        _requests(content.checkpoints)


def _requests(checkpoints: list[CheckpointSummary]) -> None:
    """Print the requests to object stores of each checkpoint, by kind."""
    print("Requests to object stores since the checkpoint before:")
    columns = ("epoch", *REQUEST_KINDS, "sent", "received")
    table = Table(*((name, True) for name in columns))
    for summary in checkpoints:
        counts = summary.requests
        table.add(
            str(summary.epoch),
            *(f"{counts.get(kind, 0):,}" for kind in REQUEST_KINDS),
            format_bytes(counts.get(SENT_BYTES, 0)),
            format_bytes(counts.get(RECEIVED_BYTES, 0)),
        )
    table.print()


def _pending(pending: PendingCommits | None) -> None:
    """List what is not committed, or may not be."""
    if pending is None:
        return
    seconds = pending.age(time.time_ns() // 1_000_000) / 1000
    what = (
        f"{pending.committables} committables of checkpoint {pending.epoch} ({pending}),"
        f" the oldest published {seconds:.1f} s ago"
    )
    if pending.error:
        print(f"Not committed: {what}; the last error: {pending.error}")
    else:
        print(
            f"Not known to be committed: {what}. A run is at it, or died in it; the next run"
            " commits what is left before anything else"
        )


def _inspect(storage: CheckpointStorage, epoch: int | None) -> None:
    details = inspect_checkpoint(storage, epoch)
    summary, manifest = details.summary, details.manifest
    print(
        f"Checkpoint {summary.epoch} of run {summary.generation}, "
        f"published {format_moment(summary.published)}, {format_bytes(summary.state_size)} of state"
        + _in_flight(summary)
        + (", the end of the job" if summary.final else "")
    )
    table = Table(
        ("operator", False),
        ("made at", False),
        ("uid", False),
        ("kind", False),
        ("subtasks", True),
        ("watermark", False),
        ("held back by", False),
        ("late", True),
        ("backend", False),
        ("state", True),
        ("files", True),
        ("committables", True),
    )
    for operator in details.operators:
        table.add(
            operator.name or operator.uid,
            operator.location,
            operator.uid,
            operator.kind,
            str(operator.subtasks),
            format_watermark(operator.watermark),
            operator.held_back_by,
            str(operator.late_records_dropped),
            ", ".join(operator.backends),
            format_bytes(operator.state_size + operator.operator_state_size),
            str(operator.state_files),
            str(operator.committables),
        )
    table.print()
    _print_state(details.operators)
    names = labels(manifest.program)
    _print_splits(manifest.splits, names)
    for name, value in sorted(accumulators(manifest, names).items()):
        print(f"{name}: {_number(value)}")


def _in_flight(summary: CheckpointSummary) -> str:
    if not summary.in_flight_size:
        return ""
    return f", {format_bytes(summary.in_flight_size)} of it in flight between tasks"


def _number(value: object) -> str:
    """A count, or the numbers of a gauge, meter or distribution."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_number(each)}" for name, each in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _confirm(storage: CheckpointStorage, epoch: int) -> None:
    manifest = confirm_committed(storage, epoch)
    committables = sum(manifest.committable_counts().values())
    print(
        f"Marked: the {committables} committables of checkpoint {epoch} have been committed. The"
        " next"
        " run commits what it still finds pending, and takes what is neither pending nor there"
        " for taken away"
    )


def _restore(storage: CheckpointStorage, epoch: int, *, repeats_output: bool) -> None:
    restored = restore_checkpoint(storage, epoch, repeats_output=repeats_output)
    print(
        f"The next run of the job continues from checkpoint {restored.copy}, a copy of checkpoint"
        f" {epoch}"
    )
    for name, count in sorted(restored.repeated.items()):
        print(
            f"Output of later checkpoints is written again: {count} committables of sink {name!r}"
        )
    for name in restored.uncommitted:
        print(f"Sink {name!r} commits nothing: what it wrote after checkpoint {epoch} comes again")


def _export(
    storage: CheckpointStorage, epoch: int, target: str, key_file: str, kind: SavepointFormatType
) -> str:
    settings = SavepointSettings(key_file)
    try:
        return export_checkpoint(storage, epoch, target, settings, savepoint_format(kind))
    except FileNotFoundError as error:
        message = f"the job has deleted checkpoint {epoch} meanwhile, or a file is missing: {error}"
        raise CheckpointError(message) from error


def _print_state(operators: list[OperatorDetails]) -> None:
    for operator in operators:
        if operator.keeps:
            print(f"State of {operator.name or operator.uid}:")
            print(*(f"  {line}" for line in operator.keeps), sep="\n")


def _print_splits(splits: Mapping[str, Mapping[str, SplitState]], names: dict[str, str]) -> None:
    if not any(splits.values()):
        return
    table = Table(
        ("source", False), ("split", False), ("position", True), ("watermark", False), ("", False)
    )
    rows = [
        (
            names.get(uid, uid),
            split.split_id,
            str(split.position),
            format_watermark(split.watermark),
            "idle" if split.idle else "",
        )
        for uid, states in splits.items()
        for split in states.values()
    ]
    for row in rows[:_SPLITS_SHOWN]:
        table.add(*row)
    table.print()
    if len(rows) > _SPLITS_SHOWN:
        print(f"and {len(rows) - _SPLITS_SHOWN} splits more")


def _verify(storage: CheckpointStorage) -> int:
    result = verify_checkpoints(storage)
    for problem in result.problems:
        where = "directory" if problem.epoch is None else f"checkpoint {problem.epoch}"
        print(f"{where}: {problem.name}: {problem.reason}")
    print(
        f"{result.checkpoints} checkpoints, {result.files} state files, "
        f"{format_bytes(result.size)} read: {'all well' if result.ok else 'DAMAGED'}"
    )
    return 0 if result.ok else 1
