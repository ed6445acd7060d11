"""``millstream state PATH``: the state of savepoints and checkpoints as rows.

Nothing is changed, and the program is neither needed nor run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.canonical import new_writer
from millstream.cli.tables import Table
from millstream.errors import CheckpointError, StateError
from millstream.metrics.progress import format_bytes
from millstream.state.local_copies import directory_name
from millstream.state_processor.reader import SavepointReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.state_processor.reader import StateInfo


#: Columns that are no part of what a row is found by.
_CONTENT: Final = ("value", "last_access")


@dataclass(frozen=True, slots=True)
class StateOptions:
    """The arguments of the command line."""

    path: str
    #: "list", "show", "diff" or "export".
    action: str = "list"
    checkpoint_id: int | None = None
    key_file: str = ""
    uid: str = ""
    state: str = ""
    #: A key as Python writes it, or the text that it is; None: all keys.
    key: str | None = None
    limit: int = 20
    #: For "diff": the other savepoint; for "export": the directory to write to.
    other: str = ""


def show_state(options: StateOptions) -> int:
    """Print what is asked for.

    Returns:
        The exit code: 1 if "diff" found differences.

    Raises:
        CheckpointError: there is no savepoint or checkpoint, or it cannot be read.
        StateError: there is no such operator or state.
    """
    with SavepointReader.read(
        options.path, checkpoint_id=options.checkpoint_id, key_file=options.key_file
    ) as reader:
        if options.action == "show":
            _show(reader, options)
        elif options.action == "diff":
            with SavepointReader.read(options.other, key_file=options.key_file) as other:
                return _diff(reader, other, options.limit)
        elif options.action == "export":
            _export(reader, Path(options.other))
        else:
            _list(reader, options.path)
    return 0


def shown_name(name: str) -> str:
    """The name of a state; those that operators keep for themselves begin with a null character."""
    return f"({name[1:]})" if name.startswith("\0") else name


def _list(reader: SavepointReader, path: str) -> None:
    print(f"Checkpoint {reader.checkpoint_id} of job {reader.job_name!r} in {path}")
    table = Table(
        ("operator", False),
        ("state", False),
        ("kind", False),
        ("type", False),
        ("entries", True),
        ("size", True),
    )
    for info in reader.states():
        table.add(
            info.operator,
            shown_name(info.name),
            info.kind,
            info.type,
            str(info.entries),
            format_bytes(info.size),
        )
    table.print()


def _found(reader: SavepointReader, uid: str, state: str) -> StateInfo:
    infos = reader.states(uid)
    for info in infos:
        if state in (info.name, shown_name(info.name)):
            return info
    known = ", ".join(shown_name(info.name) for info in infos) or "none"
    message = f"operator {uid!r} has no state {state!r}; there are: {known}"
    raise StateError(message)


def _rows(reader: SavepointReader, info: StateInfo) -> Iterator[dict[str, Any]]:
    return reader.read_state(info.operator, info.name).rows()


def _show(reader: SavepointReader, options: StateOptions) -> None:
    info = _found(reader, options.uid, options.state)
    rows = (
        row
        for row in _rows(reader, info)
        if options.key is None or options.key in (str(row.get("key")), repr(row.get("key")))
    )
    for row in islice(rows, options.limit):
        print(_text(row))
    if next(rows, None) is not None:
        print(f"and more; --limit shows more than {options.limit}")


def _text(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in row.items() if value is not None)


def _diff(reader: SavepointReader, other: SavepointReader, limit: int) -> int:
    before = {(info.operator, info.name): info for info in reader.states()}
    after = {(info.operator, info.name): info for info in other.states()}
    differences = 0
    for place in sorted(before.keys() | after.keys()):
        old = _contents(reader, before.get(place))
        new = _contents(other, after.get(place))
        lines = [
            *(f"- {name}: {_times(value)}" for name, value in old.items() if name not in new),
            *(f"+ {name}: {_times(value)}" for name, value in new.items() if name not in old),
            *(
                f"~ {name}: {_times(value)} -> {_times(new[name])}"
                for name, value in old.items()
                if name in new and new[name] != value
            ),
        ]
        if lines or (place in before) != (place in after):
            differences += 1
            print(f"operator {place[0]!r}, state {shown_name(place[1])}: {len(lines)} differences")
            print(*(f"  {line}" for line in lines[:limit]), sep="\n")
    if not differences:
        print("The state is the same")
    return 1 if differences else 0


def _contents(reader: SavepointReader, info: StateInfo | None) -> dict[str, Counter[str]]:
    """What a row is found by -> its contents; several rows may be found by the same."""
    found: dict[str, Counter[str]] = {}
    for row in () if info is None else _rows(reader, info):
        name = _text({key: value for key, value in row.items() if key not in _CONTENT})
        content = ", ".join(repr(row[each]) for each in _CONTENT[:1] if each in row)
        found.setdefault(name, Counter())[content] += 1
    return found


def _times(contents: Counter[str]) -> str:
    return "; ".join(
        text if count == 1 else f"{text} ({count} times)" for text, count in contents.items()
    )


def _export(reader: SavepointReader, directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()):
        message = f"{directory} is not empty; export to a new directory"
        raise CheckpointError(message)
    for info in reader.states():
        table = reader.read_state(info.operator, info.name).to_arrow()
        path = directory / _file_name(info.operator) / f"{_file_name(info.name)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_writer(path, table.schema) as writer:
            writer.write_table(table)
        print(path)


def _file_name(name: str) -> str:
    return directory_name(name.removeprefix("\0"))
