"""Notes of what a process gives to its operators, in a file that outlives the process.

A process that ends by ``os._exit`` or a signal raises no error that names operator and record.  So
each call of an operator is noted first, in memory that is mapped from a file: the system keeps it
however the process ends.  A note is three assignments of integers; names are written once, and
whoever finds the process gone makes a message of both.  The record, or the timer, is known

* where Python code ends its own process (``os._exit``, ``os.kill``, ``os.abort``): the record is
  noted first;
* otherwise at the next attempt: the process that replaces a lost one is *careful*.  It gives
  operators the records one by one, and notes each timer, until the first checkpoint of the run.

Layout of a file: ``_CELLS`` numbers of 8 bytes, of which the first is the number of the current
call (0: none) and each other one belongs to a kind of call; a text of ``_TEXT`` bytes, which takes
precedence where it is not empty; then a line for each kind of call, in their order.
"""

from __future__ import annotations

import contextlib
import mmap
import operator as operators
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.operator import Operator
from millstream.directories import LOCAL_STATE, default_local_directory, is_alive, make_own
from millstream.errors import DirectoryError
from millstream.logs import LoggingOperator, TaskPosition
from millstream.runtime.user_code import NO_RECORD, index_reached
from millstream.types.pickling import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import FrameType

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext


#: More kinds of calls than these are not noted.
_CELLS: Final = 4096
_NUMBER: Final = 8
_TEXT: Final = 1024
_TEXT_AT: Final = _CELLS * _NUMBER
_SIZE: Final = _TEXT_AT + _TEXT
_LENGTH: Final = 2
#: Seconds for which the notes of a process are kept that is gone.
_KEPT: Final = 3600
#: Functions of ``os`` that may end this process.
_ENDINGS: Final = ("_exit", "abort", "kill")
#: Methods of operators beside ``process_batch`` in which user code may run: what is noted of their
#: argument, and how that reads.
_CALLS: Final[Mapping[str, tuple[Callable[[Any], int], str]]] = {
    "process_watermark": (int, "at watermark {}"),
    "process_processing_time": (int, "at processing time {}"),
    "snapshot": (operators.attrgetter("epoch"), "at the snapshot of checkpoint {}"),
}
#: Methods without argument in which functions of the user are opened and closed.
_OPENING: Final = ("open", "close")
_METHODS: Final = frozenset({"process_batch", *_CALLS})


class _Notes:
    """The notes of this process."""

    def __init__(self, path: Path, *, careful: bool) -> None:
        """Make the file, and forget what another process of this number has left."""
        self.path = path
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self.cells = memoryview(self._memory)[:_TEXT_AT].cast("q")
        #: Whether operators are given records one by one.
        self.careful = careful
        self.text = b""
        #: By cell, from 1: the operator that is called and the task that it is in.
        self.owners: dict[int, tuple[OperatorContext, TaskPosition]] = {}
        self._numbers: dict[tuple[str, int], int] = {}

    def number(self, call: str, subtask: int) -> int:
        """Return the cell of a kind of call; 0 if there are too many."""
        known = self._numbers.get((call, subtask))
        if known is None:
            if len(self._numbers) == _CELLS - 1:
                return 0
            known = self._numbers[call, subtask] = len(self._numbers) + 1
            with self.path.open("ab") as file:
                file.write(call.replace("\n", " ").encode(errors="replace") + b"\n")
        return known

    def write(self, text: bytes) -> None:
        """Note something in words; empty: the numbers say all."""
        text = text[: _TEXT - _LENGTH]
        self.text = text
        content = len(text).to_bytes(_LENGTH, "big") + text
        self._memory[_TEXT_AT : _TEXT_AT + len(content)] = content


#: Of this process; None where nobody would read them.
_notes: _Notes | None = None


def _directory() -> Path:
    return default_local_directory() / "last-given"


def begin_notes(run: str = "", *, careful: bool = False) -> None:
    """Note from now on what this process gives to operators.

    Args:
        run: the id of the run, where the driver does not know its processes by their number.
        careful: a process was lost that had done the same.
    """
    global _notes  # noqa: PLW0603 - of the process
    path = _directory() / (f"{run}.{os.getpid()}" if run else str(os.getpid()))
    if _notes is not None and _notes.path == path:
        _notes.careful = careful
        _notes.cells[0] = 0
        _notes.write(b"")
        return
    is_first = _notes is None
    try:
        make_own(LOCAL_STATE, path.parent.parent)
        make_own(LOCAL_STATE, path.parent)
        _sweep(path.parent)
        if _notes is not None:
            _notes.path.unlink(missing_ok=True)  # of a run that is over
        _notes = _Notes(path, careful=careful)
    except (OSError, DirectoryError):
        return  # the job does not need it, and reports it if its directories cannot be used
    if is_first:
        for name in _ENDINGS:
            setattr(os, name, _noting(getattr(os, name)))


def _sweep(directory: Path) -> None:
    """Delete notes of processes that have been gone for long: nobody will ask for them."""
    oldest = time.time() - _KEPT
    for path in directory.iterdir():
        pid = path.name.rpartition(".")[2]
        with contextlib.suppress(FileNotFoundError):  # another process does the same
            if pid.isdecimal() and path.stat().st_mtime < oldest and not is_alive(int(pid)):
                path.unlink()


def end_careful_mode() -> None:
    """Give operators whole batches again: what another process was lost of is processed."""
    if _notes is not None and _notes.careful:
        _notes.careful = False
        _notes.write(b"")


def last_given(pid: int) -> str:
    """Return what a process of this machine that is gone had noted, for the end of a message."""
    return _taken(_directory() / str(pid))


def last_of_run(run: str) -> str:
    """Return what a process of a run had noted that is gone, for the end of a message.

    Only processes of this machine are found.  The notes of all that are gone are deleted.
    """
    found = ""
    for path in sorted(_directory().glob(f"{run}.*")):
        if not is_alive(int(path.suffix[1:])):
            taken = _taken(path)
            found = found or taken
    return found


def forget_run(run: str) -> None:
    """Delete the notes of a run that is over, and their directories if nothing else is there."""
    directory = _directory()
    for path in directory.glob(f"{run}.*"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others use them
        directory.rmdir()
        directory.parent.rmdir()


def _taken(path: Path) -> str:
    try:
        content = path.read_bytes()
        path.unlink()
    except OSError:
        return ""
    length = int.from_bytes(content[_TEXT_AT : _TEXT_AT + _LENGTH], "big")
    text = content[_TEXT_AT + _LENGTH : _TEXT_AT + _LENGTH + length].decode(errors="replace")
    cells = memoryview(content)[:_TEXT_AT].cast("q")
    if not text and cells[0]:
        calls = content[_SIZE:].decode(errors="replace").split("\n")
        text = calls[cells[0] - 1] % cells[cells[0]]
    return f"; it was last in {text}" if text else ""


def current_operator() -> LoggingOperator | None:
    """Return the operator that this process is in, for its log; None: it is in none."""
    notes = _notes
    owner = None if notes is None else notes.owners.get(notes.cells[0])
    if owner is None:
        return None
    context, task = owner
    return LoggingOperator(
        context.name, context.uid, context.subtask, context.parallelism, task.checkpoint_id
    )


def watch(operator: Operator, task: TaskPosition) -> None:
    """Have the calls of an operator noted, if somebody reads the notes of this process."""
    notes = _notes
    if notes is None:
        return
    label = _label(operator)
    _watch_calls(notes, operator, task, label)
    keyed = getattr(getattr(operator, "inner", operator), "keyed_state", None)
    if keyed is not None:
        keyed.timers.observer = _timer_noter(notes, label)


def _watch_calls(notes: _Notes, operator: Operator, task: TaskPosition, label: str) -> None:
    escaped = label.replace("%", "%%")
    subtask = operator.context.subtask
    own: Any = operator  # methods are replaced in the instance

    def numbered(text: str) -> int:
        number = notes.number(f"{escaped} {text}", subtask)
        if number:
            notes.owners[number] = operator.context, task
        return number

    number = numbered("with %d records")
    if number:
        own.process_batch = _noted_batch(notes, number, operator.process_batch, label)
    passed_on = {name for name in (*_CALLS, *_OPENING) if _is_inherited(operator, name)}
    for name, (value_of, text) in _CALLS.items():
        number = 0 if name in passed_on else numbered(text.format("%d"))
        if number:
            setattr(own, name, _noted(notes, number, getattr(operator, name), value_of))
    for name in _OPENING:
        number = 0 if name in passed_on else numbered(f"in {name}() of subtask %d")
        if number:
            noted = _noted(notes, number, _without_argument(getattr(operator, name)), int)
            setattr(own, name, partial(noted, subtask))


def _is_inherited(operator: Operator, name: str) -> bool:
    """Whether a method of an operator does nothing but to pass the call on."""
    return getattr(type(operator), name) is getattr(Operator, name)


def _without_argument(method: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda _: method()


def _noted(
    notes: _Notes, number: int, method: Callable[[Any], Any], value_of: Callable[[Any], int]
) -> Callable[[Any], Any]:
    """Make a method of an operator that notes each call."""
    cells = notes.cells

    def call(given: Any) -> Any:
        before, text = cells[0], notes.text
        cells[number] = value_of(given)
        cells[0] = number
        if text:
            notes.write(b"")
        try:
            return method(given)
        finally:
            cells[0] = before
            if text or notes.text:
                notes.write(text)

    return call


def _noted_batch(
    notes: _Notes, number: int, process: Callable[[Batch, int], None], label: str
) -> Callable[[Batch, int], None]:
    """Make a ``process_batch`` that notes each batch, and each record if the process is careful."""
    cells = notes.cells

    def one_by_one(batch: Batch, input_index: int) -> None:
        before = notes.text
        try:
            for position in range(len(batch)):
                one = batch.slice(position, position + 1)
                notes.write(_with_record(label, one.values[0]))
                process(one, input_index)
        finally:
            notes.write(before)

    def process_batch(batch: Batch, input_index: int = 0) -> None:
        if notes.careful:
            one_by_one(batch, input_index)
            return
        before = cells[0]
        cells[number] = len(batch)
        cells[0] = number
        try:
            process(batch, input_index)
        finally:
            cells[0] = before

    return process_batch


def _timer_noter(notes: _Notes, label: str) -> Callable[[int, object], None]:
    def note(time: int, key: object) -> None:
        if notes.careful:
            notes.write(_with_timer(label, time, key))

    return note


def _label(operator: Operator) -> str:
    return f"operator {operator.context.name!r} ({operator.context.location})"


def _with_record(label: str, record: object) -> bytes:
    return f"{label} with record {short_repr(record)}".encode(errors="replace")


def _with_timer(label: str, time: object, key: object) -> bytes:
    return f"{label} with the timer for {time} of key {short_repr(key)}".encode(errors="replace")


def _noting(end: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of ``os`` that may end this process note the record first."""

    def noting(*args: Any) -> Any:
        if len(args) >= 2 and args[0] != os.getpid():  # noqa: PLR2004 - (pid, signal)
            return end(*args)
        notes, text = _notes, b""
        if notes is not None:
            text = notes.text
            _note_caller(notes, sys._getframe(1))  # noqa: SLF001 - as inspect does
        try:
            return end(*args)
        finally:  # it has not ended: of a signal with a handler, say
            if notes is not None:
                notes.write(text)

    return noting


def _note_caller(notes: _Notes, frame: FrameType | None) -> None:
    """Note the operator that called this, and the record or timer that it is at."""
    while frame is not None:
        names = frame.f_locals
        operator = names.get("self")
        if isinstance(operator, Operator):
            if "fired" in names and "key" in names:
                notes.write(_with_timer(_label(operator), names.get("time"), names["key"]))
                return
            record = _record(names)
            if record is not NO_RECORD:
                notes.write(_with_record(_label(operator), record))
            if record is not NO_RECORD or frame.f_code.co_name in _METHODS:
                return
        frame = frame.f_back


def _record(names: Mapping[str, Any]) -> object:
    """Return the record that a method of an operator is at, by its variables, else NO_RECORD."""
    record: object = names.get("value", NO_RECORD)
    if record is NO_RECORD and "iterator" in names and "values" in names:
        values = names["values"]
        record = values[index_reached(names["iterator"], values)]
    return record
