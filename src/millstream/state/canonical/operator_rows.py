"""Rows of a canonical savepoint: the elements of one operator state, in columns."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.contracts.operator import OperatorStateKind
from millstream.errors import StateError
from millstream.state.canonical.layout import KEY, OTHER, POSITION, SUBTASK, VALUE, Column
from millstream.state.canonical.value_form import infer_form
from millstream.state.reader import readable_value
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.state.canonical.value_form import ValueForm


_UNREADABLE: Final = object()


class OperatorLayout:
    """The columns of an operator state.

    Each element is a row with its subtask and position.  Broadcast state has keys and values; it is
    there once if all subtasks have the same, and then its subtask is null.

    Args:
        kind: of the state.
        columns: forms as a file has them; None: they are found from the elements.
    """

    def __init__(
        self, kind: OperatorStateKind, columns: Mapping[str, ValueForm] | None = None
    ) -> None:
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

    def table(self, elements: Mapping[int, Sequence[bytes]]) -> pa.Table:
        """The rows of all subtasks.

        Args:
            elements: subtask -> its elements, each pickled.
        """
        subtasks: dict[int | None, Sequence[bytes]] = dict(elements.items())
        if self._is_broadcast and len({tuple(sorted(each)) for each in elements.values()}) == 1:
            subtasks = {None: next(iter(elements.values()))}
        rows = [
            (subtask, position, stored)
            for subtask, own in subtasks.items()
            for position, stored in enumerate(own)
        ]
        values = [_readable(stored) for _, _, stored in rows]
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
        """Subtask -> its elements, each pickled; None: of all subtasks.

        Raises:
            StateError: the elements of a subtask are not numbered in order.
        """
        codecs = [(name, self._columns[name].codec) for name in self._names]
        columns = [
            [None] * table.num_rows if codec is None else codec.values(table.column(name))
            for name, codec in codecs
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
            own.append(dumps(value) if stored is None else stored)
        return found

    def readable_rows(self, table: pa.Table) -> Iterator[dict[str, Any]]:
        """Yield rows with elements as Python objects; nothing of the program is imported.

        Raises:
            StateError: an element cannot be read.
        """
        subtasks, positions = (table.column(name).to_pylist() for name in (SUBTASK, POSITION))
        elements = chain.from_iterable(self.elements(table).values())
        for subtask, position, stored in zip(subtasks, positions, elements, strict=True):
            value = readable_value(stored)
            parts = value if self._is_broadcast else (value,)
            yield {
                SUBTASK: subtask,
                POSITION: position,
                **dict(zip(self._names, parts, strict=True)),
            }


def _readable(stored: bytes) -> Any:
    try:
        return readable_value(stored)
    except StateError:
        return _UNREADABLE
