"""Rows of a canonical savepoint: the elements of one operator state, in columns."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.contracts.operator import OperatorStateKind
from millstream.errors import StateError
from millstream.state.canonical.layout import KEY, OTHER, POSITION, SUBTASK, VALUE
from millstream.state.canonical.value_form import ColumnCodec, ValueForm, infer_form
from millstream.state.reader import readable_value
from millstream.types.pickling import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


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
        self._codecs: dict[str, ColumnCodec | None] = {
            name: ColumnCodec(form) if form.is_known else None
            for name, form in (columns or {}).items()
        }

    @property
    def forms(self) -> dict[str, Any]:
        """The forms of its columns, as the metadata of the file has them."""
        return {
            name: {"kind": "stored"} if codec is None else codec.form.to_json()
            for name, codec in self._codecs.items()
        }

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
        names = [KEY, VALUE] if self._is_broadcast else [VALUE]
        for at, name in enumerate(names):
            form = infer_form(None if parts is None else parts[at] for parts in columns)
            self._codecs[name] = ColumnCodec(form) if form.is_known else None
        held = [parts is not None and self._holds(names, parts) for parts in columns]
        data = {
            SUBTASK: pa.array([subtask for subtask, _, _ in rows], pa.int32()),
            POSITION: pa.array([position for _, position, _ in rows], pa.int64()),
        }
        for at, name in enumerate(names):
            codec = self._codecs[name]
            if codec is not None:
                data[name] = codec.array(
                    [
                        parts[at] if parts is not None and _fits(codec, parts[at]) else None
                        for parts in columns
                    ]
                )
        stored = [None if fits else each for fits, (_, _, each) in zip(held, rows, strict=True)]
        name = VALUE if self._codecs[VALUE] is None else VALUE + OTHER
        data[name] = pa.array(stored, pa.binary())
        return pa.table(data)

    def _parts(self, value: Any) -> tuple[Any, ...] | None:
        if value is _UNREADABLE:
            return None
        if not self._is_broadcast:
            return (value,)
        return value if type(value) is tuple and len(value) == 2 else None  # noqa: PLR2004 - key, value

    def _holds(self, names: Sequence[str], parts: Sequence[Any]) -> bool:
        codecs = [self._codecs[name] for name in names]
        return all(_fits(codec, part) for codec, part in zip(codecs, parts, strict=True))

    def elements(self, table: pa.Table) -> dict[int | None, list[bytes]]:
        """Subtask -> its elements, each pickled; None: of all subtasks.

        Raises:
            StateError: the elements of a subtask are not numbered in order.
        """
        names = [KEY, VALUE] if self._is_broadcast else [VALUE]
        codecs = [self._codecs[name] for name in names]
        count = table.num_rows
        other = VALUE if self._codecs[VALUE] is None else VALUE + OTHER
        columns = [
            [None] * count if codec is None else codec.values(table.column(name))
            for name, codec in zip(names, codecs, strict=True)
        ]
        found: dict[int | None, list[bytes]] = {}
        rows = zip(
            table.column(SUBTASK).to_pylist(),
            table.column(POSITION).to_pylist(),
            table.column(other).to_pylist(),
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
        names = [KEY, VALUE] if self._is_broadcast else [VALUE]
        subtasks, positions = (table.column(name).to_pylist() for name in (SUBTASK, POSITION))
        elements = chain.from_iterable(self.elements(table).values())
        for subtask, position, stored in zip(subtasks, positions, elements, strict=True):
            value = readable_value(stored)
            parts = value if self._is_broadcast else (value,)
            yield {SUBTASK: subtask, POSITION: position, **dict(zip(names, parts, strict=True))}


def _readable(stored: bytes) -> Any:
    try:
        return readable_value(stored)
    except StateError:
        return _UNREADABLE


def _fits(codec: ColumnCodec | None, value: Any) -> bool:
    return codec is not None and (value is None or codec.fits(value))
