"""Rows of a canonical savepoint: the elements of one operator state, in columns."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.contracts.operator import OperatorStateKind
from millstream.errors import StateError
from millstream.state.canonical.layout import KEY, OTHER, POSITION, SUBTASK, VALUE, Column
from millstream.state.canonical.value_form import infer_form
from millstream.state.reader import readable_elements, readable_value
from millstream.state.value_codec import pickled
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.contracts.operator import OperatorStateHandle
    from millstream.state.canonical.value_form import ValueForm
    from millstream.state.value_codec import ValueCodec


_UNREADABLE: Final = object()
#: The first byte of what is pickled.
_PICKLE: Final = b"\x80"


class OperatorLayout:
    """The columns of an operator state.

    Each element is a row with its subtask and position.  Broadcast state has keys and values; it is
    there once if all subtasks have the same, and then its subtask is null.

    Args:
        kind: of the state.
        columns: forms as a file has them; None: they are found from the elements.
        handles: subtask -> what has the elements, with their recorded types; left out, they are
            pickled.
    """

    def __init__(
        self,
        kind: OperatorStateKind,
        columns: Mapping[str, ValueForm] | None = None,
        handles: Mapping[int, OperatorStateHandle] | None = None,
    ) -> None:
        handles = handles or {}
        self._codecs = {subtask: readable_elements(each) for subtask, each in handles.items()}
        schemas = [handle.schemas for handle in handles.values()]
        self._are_alike = all(each == schemas[0] for each in schemas)
        self._is_broadcast = kind is OperatorStateKind.BROADCAST
        self._names = [KEY, VALUE] if self._is_broadcast else [VALUE]
        self._columns = {name: Column.of_form(name, form) for name, form in (columns or {}).items()}

    @property
    def forms(self) -> dict[str, Any]:
        """The forms of its columns, as the metadata of the file has them."""
        return {name: column.form() for name, column in self._columns.items()}

    @property
    def _other(self) -> str:
        """The column of elements as they are stored."""
        return VALUE if self._columns[VALUE].codec is None else VALUE + OTHER

    def _codec(self, subtask: int | None) -> ValueCodec:
        """That of the elements of a subtask; None: of all."""
        default = next(iter(self._codecs.values()), pickled(readable_value))
        return default if subtask is None else self._codecs.get(subtask, default)

    def table(self, elements: Mapping[int, Sequence[bytes]]) -> pa.Table:
        """The rows of all subtasks.

        Args:
            elements: subtask -> its elements.
        """
        subtasks: dict[int | None, Sequence[bytes]] = dict(elements.items())
        contents = {tuple(sorted(each)) for each in elements.values()}
        if self._is_broadcast and len(contents) == 1 and self._are_alike:
            subtasks = {None: next(iter(elements.values()))}
        rows = [
            (subtask, position, stored)
            for subtask, own in subtasks.items()
            for position, stored in enumerate(own)
        ]
        values = [_readable(stored, self._codec(subtask)) for subtask, _, stored in rows]
        columns = [self._parts(value) for value in values]
        for at, name in enumerate(self._names):
            form = infer_form(None if parts is None else parts[at] for parts in columns)
            self._columns[name] = Column.of_form(name, form)
        held = [parts is not None and self._holds(parts) for parts in columns]
        data = {
            SUBTASK: pa.array([subtask for subtask, _, _ in rows], pa.int32()),
            POSITION: pa.array([position for _, position, _ in rows], pa.int64()),
        }
        for at, name in enumerate(self._names):
            column = self._columns[name]
            if column.codec is not None:
                data[name] = column.codec.array(
                    [
                        parts[at] if parts is not None and column.fits(parts[at]) else None
                        for parts in columns
                    ]
                )
        stored = [None if fits else each for fits, (_, _, each) in zip(held, rows, strict=True)]
        data[self._other] = pa.array(stored, pa.binary())
        return pa.table(data)

    def _parts(self, value: Any) -> tuple[Any, ...] | None:
        if value is _UNREADABLE:
            return None
        if not self._is_broadcast:
            return (value,)
        return value if type(value) is tuple and len(value) == 2 else None  # noqa: PLR2004 - key, value

    def _holds(self, parts: Sequence[Any]) -> bool:
        return all(
            self._columns[name].fits(part) for name, part in zip(self._names, parts, strict=True)
        )

    def elements(self, table: pa.Table) -> dict[int | None, list[bytes]]:
        """Subtask -> its elements; None: of all subtasks.

        Raises:
            StateError: the elements of a subtask are not numbered in order.
        """
        columns = [
            [None] * table.num_rows if codec is None else codec.values(table.column(name))
            for name, codec in ((name, self._columns[name].codec) for name in self._names)
        ]
        found: dict[int | None, list[bytes]] = {}
        rows = zip(
            table.column(SUBTASK).to_pylist(),
            table.column(POSITION).to_pylist(),
            table.column(self._other).to_pylist(),
            zip(*columns, strict=True),
            strict=True,
        )
        for subtask, position, stored, parts in rows:
            own = found.setdefault(subtask, [])
            if position != len(own):
                message = f"element {position} of subtask {subtask} does not follow the one before"
                raise StateError(message)
            value = parts if self._is_broadcast else parts[0]
            codec = self._codec(subtask)
            encode = codec.encode if codec.is_typed else dumps
            own.append(encode(value) if stored is None else stored)
        return found

    def readable_rows(self, table: pa.Table) -> Iterator[dict[str, Any]]:
        """Yield rows with elements as Python objects; nothing of the program is imported.

        Raises:
            StateError: an element cannot be read.
        """
        subtasks, positions = (table.column(name).to_pylist() for name in (SUBTASK, POSITION))
        elements = chain.from_iterable(self.elements(table).values())
        for subtask, position, stored in zip(subtasks, positions, elements, strict=True):
            value = self._codec(subtask).decode(stored)
            parts = value if self._is_broadcast else (value,)
            yield {
                SUBTASK: subtask,
                POSITION: position,
                **dict(zip(self._names, parts, strict=True)),
            }


def _readable(stored: bytes, codec: ValueCodec) -> Any:
    try:
        value = codec.decode(stored)
        # A pickle has several forms; what is equal and of the same types is the same.
        is_known = stored[:1] == _PICKLE or not codec.is_typed or codec.encode(value) == stored
    except Exception:  # noqa: BLE001 - of whatever a value is: it stays as it is stored
        return _UNREADABLE
    return value if is_known else _UNREADABLE
