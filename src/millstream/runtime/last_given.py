"""What a worker process gave to an operator last, in a file that is there when it has died.

A process that ends by ``os._exit`` or a signal raises no error that names operator and record.  So
each batch is noted before an operator processes it, in memory that is mapped from a file: that
costs less than a microsecond, and the system keeps it however the process ends.  Which record of
the batch it was is known

* where Python code ends its own process (``os._exit``, ``os.kill``, ``os.abort``): the record is
  noted first;
* else at the next try: the process that takes the place of one that was lost is *careful*, and
  gives operators the records one by one until the first checkpoint behind its start.

Read next: ``runtime/stage.py``.
"""

from __future__ import annotations

import mmap
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.operator import Operator
from millstream.directories.ownership import LOCAL_STATE, default_local_directory, make_own
from millstream.errors import DirectoryError
from millstream.runtime.user_code import NO_RECORD, index_reached, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import FrameType

    from millstream.contracts.batch import Batch

__all__ = ["LastGiven", "begin_notes", "end_care", "last_given", "watch"]

_SIZE: Final = 1024
_LENGTH: Final = 2
#: What processes of this machine end themselves with, and which of their arguments says whom.
_ENDINGS: Final = ("_exit", "abort", "kill")


class LastGiven:
    """The note of this process."""

    def __init__(self, path: Path, *, careful: bool) -> None:
        """Make the file, and forget what another process of this number has left."""
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        #: Whether operators are given records one by one.
        self.careful = careful
        self.text = b""

    def write(self, text: bytes) -> None:
        """Note something."""
        text = text[: _SIZE - _LENGTH]
        self.text = text
        length = len(text)
        self._memory[: _LENGTH + length] = length.to_bytes(_LENGTH, "big") + text


#: Of this process; None where nobody would read it.
_note: LastGiven | None = None


def _path(pid: int) -> Path:
    return default_local_directory() / "last-given" / str(pid)


def begin_notes(*, careful: bool = False) -> None:
    """Note from now on what this process gives to operators.

    Args:
        careful: a process was lost that had done the same.
    """
    global _note  # noqa: PLW0603 - of the process
    if _note is not None:
        _note.careful = careful
        _note.write(b"")
        return
    path = _path(os.getpid())
    try:
        make_own(LOCAL_STATE, path.parent.parent)
        make_own(LOCAL_STATE, path.parent)
        _note = LastGiven(path, careful=careful)
    except (OSError, DirectoryError):
        return  # the job does not need it, and says by itself if its directories cannot be used
    for name in _ENDINGS:
        setattr(os, name, _noting(getattr(os, name)))


def end_care() -> None:
    """Give operators whole batches again: what another process was lost of is processed."""
    if _note is not None:
        _note.careful = False


def last_given(pid: int) -> str:
    """What a process of this machine that is gone had noted, for the end of a message."""
    path = _path(pid)
    try:
        content = path.read_bytes()
        path.unlink()
    except OSError:
        return ""
    length = int.from_bytes(content[:_LENGTH], "big")
    text = content[_LENGTH : _LENGTH + length].decode(errors="replace")
    return f"; it was last in {text}" if text else ""


def watch(operator: Operator) -> None:
    """Have what an operator is given noted, if somebody reads the notes of this process."""
    if _note is not None:
        operator.process_batch = _Noted(operator, _note)  # type: ignore[method-assign]


class _Noted:
    """The ``process_batch`` of an operator, with a note."""

    __slots__ = ("_note", "_place", "_process")

    def __init__(self, operator: Operator, note: LastGiven) -> None:
        self._process = operator.process_batch
        self._note = note
        self._place = _place(operator)

    def __call__(self, batch: Batch, input_index: int = 0) -> None:
        note = self._note
        before, count = note.text, len(batch)
        if note.careful and count:
            for position in range(count):
                one = batch.slice(position, position + 1)
                note.write(_with_record(self._place, one.values[0]))
                self._process(one, input_index)
        else:
            note.write(b"%b with %d records" % (self._place, count))
            self._process(batch, input_index)
        note.write(before)


def _place(operator: Operator) -> bytes:
    return f"operator {operator.context.name!r} ({operator.context.location})".encode()


def _with_record(place: bytes, record: object) -> bytes:
    return b"%b with record %b" % (place, short_repr(record).encode(errors="replace"))


def _noting(end: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``os`` that may end this process, which notes the record before."""

    def noting(*args: Any) -> Any:
        if len(args) < 2 or args[0] == os.getpid():  # noqa: PLR2004 - (pid, signal)
            _note_caller(sys._getframe(1))  # noqa: SLF001 - as inspect does
        return end(*args)

    return noting


def _note_caller(frame: FrameType | None) -> None:
    """Note the operator that called this, and the record that it is at."""
    while frame is not None:
        names = frame.f_locals
        operator = names.get("self")
        if isinstance(operator, Operator):
            record = _record(names)
            if _note is not None and record is not NO_RECORD:
                _note.write(_with_record(_place(operator), record))
            if record is not NO_RECORD or frame.f_code.co_name == "process_batch":
                return
        frame = frame.f_back


def _record(names: Mapping[str, Any]) -> object:
    """The record that a method of an operator is at, by its variables; NO_RECORD if at none."""
    record: object = names.get("value", NO_RECORD)
    if record is NO_RECORD and "iterator" in names and "values" in names:
        values = names["values"]
        record = values[index_reached(names["iterator"], values)]
    return record
