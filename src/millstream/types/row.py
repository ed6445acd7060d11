"""Row and RowKind: a record with fields by position and, mostly, by name.

A row is a list of its values; its class, one per tuple of field names and kind, holds the rest, so
a row costs no more than a list and two rows are compatible exactly if they share a class.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
import pyarrow as pa

from millstream.errors import TypeMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray


_get_item: Final = list.__getitem__
_set_item: Final = list.__setitem__
_set_attribute: Final = object.__setattr__
#: Looked up once: programs make a row per record, and this is most of what one costs.
#: ``list.extend`` and not ``list.__init__``, which takes twice as long to call.
_fill: Final = list.extend
_clear: Final = list.clear
_set_class: Final = object.__dict__["__class__"].__set__


class RowKind(Enum):
    """The kind of change that a row is to a table."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        """The short form, as Flink prints it: ``+I``, ``-U``, ``+U``, ``-D``."""
        return ("+I", "-U", "+U", "-D")[self.value]


class _Maker:
    """Stands for the class of a row in a pickle; the class itself cannot be imported."""

    __slots__ = ("_kind", "_names")

    def __init__(self, names: tuple[str, ...] | None, kind: RowKind) -> None:
        self._names = names
        self._kind = kind

    def __call__(self, values: Iterable[object]) -> Row:
        return row_class(self._names, self._kind)(values)

    def __reduce__(self) -> tuple[Callable[..., type[Row]], tuple[object, ...]]:
        return row_class, (self._names, self._kind)


class Row(list[Any]):
    """A mutable record whose fields are reached by index, name or attribute.

    ``Row("Alice", 11)`` has no names; ``Row(name="Alice", age=11)`` has, in this order.
    Calling a row of names makes a row with these names: ``Row("name", "age")("Alice", 11)``.
    Equal rows have the same values, names and kind.
    """

    __slots__ = ()

    #: Field names, None if the row has none.
    _fields: ClassVar[tuple[str, ...] | None] = None
    _positions: ClassVar[dict[str, int]] = {}
    _kind: ClassVar[RowKind] = RowKind.INSERT
    _maker: ClassVar[_Maker]

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take the values.

        Args:
            args: values of a row without names.
            kwargs: values by name, in the order of the fields.

        Raises:
            ValueError: both were given.
        """
        if self:  # called once more
            _clear(self)
        if kwargs:
            if args:
                message = "Can not use both args and kwargs to create Row"
                raise ValueError(message)
            names = (*kwargs,)
            kind = _given.get(names) or _take_names(names)
            _fill(self, kwargs.values())
            _set_class(self, kind)
        else:
            _fill(self, args)

    def __contains__(self, item: object) -> bool:
        """Return whether a field has this name.

        Of a row without names, whether a value is equal.
        """
        names = self._fields
        return list.__contains__(self, item) if names is None else item in names

    def _become(self, names: tuple[str, ...] | None, kind: RowKind) -> None:
        _set_attribute(self, "__class__", row_class(names, kind))

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - PyFlink's
        """The values by name.

        Args:
            recursive: turn nested rows, also those in lists and dicts, into dicts as well.

        Raises:
            TypeError: the row has no names.
        """
        if self._fields is None:
            message = "Cannot convert a Row without field names into a dict"
            raise TypeError(message)
        if recursive:
            return dict(zip(self._fields, map(_to_plain, self), strict=False))
        return dict(zip(self._fields, self, strict=False))

    def get_row_kind(self) -> RowKind:
        """Return what the row says about a changing table; INSERT unless set."""
        return self._kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind of this row."""
        self._become(self._fields, row_kind)

    @staticmethod
    def of_kind(row_kind: RowKind, *args: object, **kwargs: object) -> Row:
        """A row of that kind, with values as ``Row(...)`` takes them."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """The values of these fields, in the order of the names; all values of a nameless row.

        Raises:
            ValueError: there is no field of one of the names.
        """
        if self._fields is None:
            return list(self)
        unknown = [name for name in names if name not in self._positions]
        if unknown:
            message = f"Field names {unknown} not exist in {list(self._fields)}"
            raise ValueError(message)
        return [_get_item(self, self._positions[name]) for name in names]

    def get_field_names(self) -> list[str] | None:
        """The names of the fields, None if they have none."""
        return None if self._fields is None else list(self._fields)

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Give the fields other names."""
        self._become(tuple(field_names), self._kind)

    def __call__(self, *args: object) -> Row:
        """A row of ``args`` whose field names are the values of this one.

        Raises:
            ValueError: there are more values than names.
        """
        if len(args) > len(self):
            message = (
                f"Can not create Row with fields {self}, expected {len(self)} values but got {args}"
            )
            raise ValueError(message)
        return row_class(tuple(self), self._kind)(args)

    def __getitem__(self, item: Any) -> Any:
        """The value at an index or slice, or of the field of that name.

        Raises:
            IndexError: there is no such index.
            ValueError: there is no field of that name.
        """
        if item.__class__ is int:
            return _get_item(self, item)
        if isinstance(item, str):
            return _get_item(self, self._position(item))
        return _get_item(self, item)

    def __setitem__(self, item: Any, value: Any) -> None:
        """Change the value at an index or slice, or of the field of that name."""
        _set_item(self, self._position(item) if isinstance(item, str) else item, value)

    def _position(self, name: str) -> int:
        try:
            return self._positions[name]
        except KeyError:
            raise ValueError(name) from None

    def __getattr__(self, name: str) -> Any:
        """Only reached if no field has that name: fields are properties of the row's class."""
        if name.startswith("_"):
            raise AttributeError(name)
        has = "has no field names" if self._fields is None else f"has {', '.join(self._fields)}"
        message = f"the row has no field {name!r}; it {has}"
        raise AttributeError(message)

    def __setattr__(self, name: str, value: object) -> None:
        """Refused, as in PyFlink: use ``row[name] = value``."""
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        """Return whether values, field names and kind are the same."""
        if type(self) is not type(other) and not (
            isinstance(other, Row) and self._fields == other._fields and self._kind == other._kind
        ):
            return False
        return list.__eq__(self, cast("list[Any]", other))

    def __ne__(self, other: object) -> bool:
        """Return whether anything of the two differs."""
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]  # a list has none, PyFlink's Row has
        """The hash of the values."""
        return hash(tuple(self))

    def __reduce__(self) -> tuple[_Maker, tuple[tuple[object, ...]]]:
        """Pickle as values and a maker, which is written once per pickle and read as the class."""
        return self._maker, (tuple(self),)

    def __reduce_ex__(self, protocol: Any) -> tuple[_Maker, tuple[tuple[object, ...]]]:
        """Like ``__reduce__``, for every protocol."""
        return self._maker, (tuple(self),)

    def __repr__(self) -> str:
        """``Row(f0=1, f1='hi')`` with names, ``<Row(1, 'hi')>`` without."""
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self))})>"
        pairs = zip(self._fields, self, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def to_changelog_string(self) -> str:
        """The row with its kind, as Flink's print sink writes it: ``+I[hi, 1]``."""
        return f"{self._kind}[{', '.join(map(_to_text, self))}]"


Row._maker = _Maker(None, RowKind.INSERT)  # noqa: SLF001 - of this module

#: Attributes of Row that win over a field of the same name, as methods do in PyFlink.  Those of
#: list (``count``, ``index``) do not.
_RESERVED: Final = frozenset(vars(Row)) | frozenset(vars(object)) | {"__class__"}

_classes: Final[dict[tuple[tuple[str, ...] | None, RowKind], type[Row]]] = {}
#: Names as a program gives them -> the class of its rows.
_given: Final[dict[tuple[str, ...], type[Row]]] = {}


def _take_names(names: tuple[str, ...]) -> type[Row]:
    return _given.setdefault(names, row_class(names))


def row_class(names: tuple[str, ...] | None, kind: RowKind = RowKind.INSERT) -> type[Row]:
    """The class of rows with these names (None: without names) and kind, made once per process.

    It is a subclass of Row that is called with one iterable of values, not with the values.
    """
    found = _classes.get((names, kind))
    if found is None:
        found = _classes.setdefault((names, kind), _make_class(names, kind))
    return found


def _make_class(names: tuple[str, ...] | None, kind: RowKind) -> type[Row]:
    positions = {name: i for i, name in reversed(list(enumerate(names or ())))}
    members: dict[str, object] = {
        name: property(_getter(i)) for name, i in positions.items() if name not in _RESERVED
    }
    members |= {"__slots__": (), "_fields": names, "_positions": positions, "_kind": kind}
    members |= {"_maker": _Maker(names, kind), "__module__": Row.__module__, "__doc__": Row.__doc__}
    # list's own: a Python-level __init__ would triple the cost of a row.
    members["__init__"] = list.__init__
    return type("Row", (Row,), members)


def _getter(position: int) -> Callable[[Row], object]:
    # itemgetter would go through Row.__getitem__, which is slower than this.
    def get(row: Row, item: Callable[..., object] = _get_item) -> object:
        return item(row, position)

    return get


def _to_plain(value: object) -> object:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    return value


def _to_text(value: object) -> str:
    if isinstance(value, Row):
        return value.to_changelog_string()
    return "null" if value is None else str(value)


#: An additional column, only in batches that hold a row whose kind is not INSERT.
ROW_KIND_COLUMN: Final = "$row_kind"
_KINDS: Final = tuple(RowKind)


def kinds_of(values: Sequence[object]) -> NDArray[np.int8] | None:
    """Return what rows say of themselves; values that are no rows are inserts.

    A row's kind is held by its class, so that inserts cost one look at the classes.
    """
    rows = (kind for kind in set(map(type, values)) if issubclass(kind, Row))
    if all(kind._kind is RowKind.INSERT for kind in rows):  # noqa: SLF001 - of this package
        return None
    numbers = (value._kind.value if isinstance(value, Row) else 0 for value in values)  # noqa: SLF001
    return np.fromiter(numbers, dtype=np.int8, count=len(values))


def set_kinds(rows: Sequence[object], kinds: NDArray[np.int8]) -> None:
    """Give inserts that nobody else holds their kinds; what is no row stays as it is."""
    for position in np.flatnonzero(kinds).tolist():
        row = rows[position]
        if isinstance(row, Row):
            row.set_row_kind(_KINDS[kinds[position]])


def with_kinds(values: list[Any], kinds: NDArray[np.int8]) -> list[Any]:
    """The values with copies of those rows that are of another kind."""
    return [
        row_class(value._fields, _KINDS[kind])(value)
        if isinstance(value, Row) and value.get_row_kind().value != kind
        else value
        for value, kind in zip(values, kinds.tolist(), strict=True)
    ]


def with_kind_column(columns: pa.RecordBatch, kinds: NDArray[np.int8]) -> pa.RecordBatch:
    """The columns, and the kinds behind them."""
    return columns.append_column(ROW_KIND_COLUMN, pa.array(kinds, pa.int8()))


def without_kind_column(columns: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.int8] | None]:
    """The columns, and the kinds; None if there is no column of them, or all are inserts.

    Raises:
        TypeMismatchError: a kind is not the value of a ``RowKind``.
    """
    position = columns.schema.get_field_index(ROW_KIND_COLUMN)
    if position < 0:
        return columns, None
    column = columns.column(position)
    try:
        kinds: NDArray[np.int8] = column.cast(pa.int8()).to_numpy()
    except (pa.ArrowException, ValueError) as error:
        message = f"the column {ROW_KIND_COLUMN} holds no kinds of rows: {error}"
        raise TypeMismatchError(message) from error
    if len(kinds) and not (kinds.min() >= 0 and kinds.max() < len(_KINDS)):
        message = f"the column {ROW_KIND_COLUMN} holds kinds of rows, from 0 to {len(_KINDS) - 1}"
        raise TypeMismatchError(message)
    return columns.remove_column(position), kinds if kinds.any() else None
