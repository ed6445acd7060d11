"""Forms of Python values that an Arrow column holds exactly.

A value fits a form if what comes back out of the column is equal and of the same types throughout.
Anything else (an instance of a class, a NumPy scalar, an integer above 64 bits) fits none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from millstream.types.row import Row, RowKind, row_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1
_MICROSECOND: Final = timedelta(microseconds=1)
_MOST_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class ValueForm:
    """A kind of Python values and, of containers, the forms of what is in them."""

    #: A name of ``_SCALARS``, or "decimal", "list", "map", "tuple", "row", "any", "object".
    kind: str
    #: Of elements; of map keys and map values; of fields.
    parts: tuple[ValueForm, ...] = ()
    #: Field names of a row; None: it has none.
    names: tuple[str, ...] | None = None
    #: Digits after the point of every decimal.
    scale: int = 0

    @property
    def is_known(self) -> bool:
        """Return whether there is a column type for it."""
        return self.kind not in ("any", "object") and all(part.is_known for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return it as the metadata of a column has it."""
        value: dict[str, Any] = {"kind": self.kind}
        if self.parts:
            value["parts"] = [part.to_json() for part in self.parts]
        if self.names is not None:
            value["names"] = list(self.names)
        if self.kind == "decimal":
            value["scale"] = self.scale
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ValueForm:
        """Return the form of the metadata of a column.

        Raises:
            KeyError, TypeError, AttributeError: it is none.
        """
        names = value.get("names")
        return cls(
            str(value["kind"]),
            tuple(cls.from_json(part) for part in value.get("parts", ())),
            None if names is None else tuple(names),
            int(value.get("scale", 0)),
        )

    def __str__(self) -> str:
        """``map[str, list[int]]``, for people."""
        if self.kind == "row":
            named = zip(_field_names(self), self.parts, strict=True)
            fields = (f"{name}: {part}" for name, part in named)
            return f"row({', '.join(fields)})"
        if self.kind == "decimal":
            return f"decimal({_MOST_DIGITS}, {self.scale})"
        return f"{self.kind}[{', '.join(map(str, self.parts))}]" if self.parts else self.kind


#: Of nothing but None, or of no elements.
ANY: Final = ValueForm("any")
#: No column holds it.
OBJECT: Final = ValueForm("object")


def _is_int(value: Any) -> bool:
    return type(value) is int and _SMALLEST <= value <= _LARGEST


def _is_text(value: Any) -> bool:
    if type(value) is not str:
        return False
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return False
    return True


def _is_naive(value: Any) -> bool:
    return type(value) is datetime and value.tzinfo is None and not value.fold


def _is_utc(value: Any) -> bool:
    return type(value) is datetime and value.tzinfo is UTC and not value.fold


def _is_naive_time(value: Any) -> bool:
    return type(value) is time and value.tzinfo is None and not value.fold


def _is_duration(value: Any) -> bool:
    # Python's reach beyond the microseconds of the column.
    return type(value) is timedelta and _SMALLEST <= value // _MICROSECOND <= _LARGEST


def _of_type(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


#: Name -> column type, and whether a value fits.
_SCALARS: Final[dict[str, tuple[pa.DataType, Callable[[Any], bool]]]] = {
    "bool": (pa.bool_(), _of_type(bool)),
    "int": (pa.int64(), _is_int),
    "float": (pa.float64(), _of_type(float)),
    "str": (pa.string(), _is_text),
    "bytes": (pa.binary(), _of_type(bytes)),
    "datetime": (pa.timestamp("us"), _is_naive),
    "datetime utc": (pa.timestamp("us", "UTC"), _is_utc),
    "date": (pa.date32(), _of_type(date)),
    "time": (pa.time64("us"), _is_naive_time),
    "timedelta": (pa.duration("us"), _is_duration),
}
_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    date: "date",
    time: "time",
    timedelta: "timedelta",
}


def form_of(value: object) -> ValueForm:
    """The form of a value."""
    kind = type(value)
    if kind in _KINDS:
        return ValueForm(_KINDS[kind])
    found = _FORMS.get(kind)
    if found is not None:
        return found(value)
    return _form_of_row(value) if isinstance(value, Row) else OBJECT


def _form_of_decimal(value: Decimal) -> ValueForm:
    exponent = value.as_tuple().exponent
    scales = isinstance(exponent, int) and -_MOST_DIGITS < exponent <= 0
    return ValueForm("decimal", scale=-int(exponent)) if scales else OBJECT


def _form_of_map(value: dict[Any, Any]) -> ValueForm:
    keys = _common(map(_form_or_any, value))
    return ValueForm("map", (keys, _common(map(_form_or_any, value.values()))))


def _form_of_tuple(value: tuple[Any, ...]) -> ValueForm:
    return ValueForm("tuple", tuple(map(_form_or_any, value))) if value else OBJECT


def _form_of_row(value: Row) -> ValueForm:
    if not value or not _is_plain_row(value):
        return OBJECT
    names = value.get_field_names()
    parts = tuple(map(_form_or_any, value))
    return ValueForm("row", parts, None if names is None else tuple(names))


#: Of values whose form depends on more than their type.
_FORMS: Final[dict[type, Callable[[Any], ValueForm]]] = {
    datetime: lambda value: ValueForm("datetime" if value.tzinfo is None else "datetime utc"),
    Decimal: _form_of_decimal,
    list: lambda value: ValueForm("list", (_common(map(_form_or_any, value)),)),
    dict: _form_of_map,
    tuple: _form_of_tuple,
}


def _form_or_any(value: object) -> ValueForm:
    return ANY if value is None else form_of(value)


def _is_plain_row(value: Row) -> bool:
    names = value.get_field_names()
    if type(value) not in _row_types(None if names is None else tuple(names)):
        return False
    return names is None or len(set(names)) == len(names) == len(value)


def _row_types(names: tuple[str, ...] | None) -> tuple[type, ...]:
    made = row_class(names, RowKind.INSERT)
    # ``Row(1, 2)`` is of the class itself until it was pickled once.
    return (made, Row) if names is None else (made,)


def _common(forms: Iterable[ValueForm]) -> ValueForm:
    """The form that all have; "object" if there is none."""
    found: ValueForm | None = None
    for form in forms:
        found = form if found is None else _merged(found, form)
        if found is None:
            return OBJECT
    return found or ANY


def _merged(one: ValueForm, other: ValueForm) -> ValueForm | None:
    """The form of both, where what one does not know is taken from the other; None: none."""
    if other in (one, ANY):
        return one
    if one == ANY:
        return other
    shape = (one.kind, len(one.parts), one.names, one.scale)
    if shape != (other.kind, len(other.parts), other.names, other.scale):
        return None
    parts = [_merged(*pair) for pair in zip(one.parts, other.parts, strict=True)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return ValueForm(one.kind, tuple(known), one.names, one.scale)


def infer_form(values: Iterable[object]) -> ValueForm:
    """The form of most of some values; "any" if a column could not hold half of them."""
    groups: list[ValueForm] = []
    counts: Counter[int] = Counter()
    for value in values:
        if value is None:
            continue
        form = form_of(value)
        for number, group in enumerate(groups):
            merged = _merged(group, form)
            if merged is not None:
                groups[number] = merged
                counts[number] += 1
                break
        else:
            groups.append(form)
            counts[len(groups) - 1] += 1
    if not counts:
        return ANY
    number, count = counts.most_common(1)[0]
    if not groups[number].is_known or 2 * count < counts.total():
        return ANY
    return groups[number]


class ColumnCodec:
    """Turns values of one form into a column and back, a batch at a time.

    Args:
        form: which is known.
    """

    __slots__ = ("_from_column", "_to_column", "fits", "form", "type")

    def __init__(self, form: ValueForm) -> None:
        self.form = form
        self.type = column_type(form)
        #: Whether the column gives back a value exactly; None fits each.
        self.fits = _fits(form)
        self._to_column = _to_column(form)
        self._from_column = _from_column(form)

    def array(self, values: Sequence[Any]) -> pa.Array | None:
        """Return the column of some values; None if one of them does not fit."""
        return self._to_column(values)

    def values(self, column: pa.Array | pa.ChunkedArray) -> list[Any]:
        """Return the values of a column."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        return self._from_column(column)


def column_type(form: ValueForm) -> pa.DataType:
    """The type of the column of a form that is known."""
    if form.kind in _SCALARS:
        return _SCALARS[form.kind][0]
    if form.kind == "decimal":
        return pa.decimal128(_MOST_DIGITS, form.scale)
    parts = [column_type(part) for part in form.parts]
    if form.kind == "list":
        return pa.list_(parts[0])
    if form.kind == "map":
        return pa.map_(parts[0], parts[1])
    return pa.struct(list(zip(_field_names(form), parts, strict=True)))


def _field_names(form: ValueForm) -> list[str]:
    if form.names is not None:
        return list(form.names)
    return [f"f{number}" for number in range(len(form.parts))]


def _fits(form: ValueForm) -> Callable[[Any], bool]:
    if form.kind in _SCALARS:
        return _SCALARS[form.kind][1]
    if form.kind == "decimal":
        return lambda value: _is_decimal(value, form.scale)
    if form.kind == "map":
        key, value_fits = map(_fits, form.parts)
        return lambda value: (
            type(value) is dict
            and all(map(key, value))
            and all(each is None or value_fits(each) for each in value.values())
        )
    parts = [_fits(part) for part in form.parts]
    if form.kind == "list":
        (fits,) = parts
        return lambda value: (
            type(value) is list and all(each is None or fits(each) for each in value)
        )
    kinds = (tuple,) if form.kind == "tuple" else _row_types(form.names)
    return lambda value: (
        type(value) in kinds
        and len(value) == len(parts)
        and all(each is None or fits(each) for each, fits in zip(value, parts, strict=True))
    )


def _is_decimal(value: Any, scale: int) -> bool:
    if type(value) is not Decimal:
        return False
    sign, digits, exponent = value.as_tuple()
    if exponent != -scale or len(digits) > _MOST_DIGITS:
        return False
    return bool(value) or not sign  # a column has no negative zero


#: Scalars that fit if they are of the class and Arrow takes them, without a test of each.
_BY_CLASS: Final[dict[str, type]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "date": date,
}
_NONE: Final = type(None)
_ToColumn: TypeAlias = "Callable[[Sequence[Any]], pa.Array | None]"
_FromColumn: TypeAlias = "Callable[[pa.Array], list[Any]]"


def _to_column(form: ValueForm) -> _ToColumn:
    """What makes the column of values; it returns None if one of them does not fit."""
    kind = form.kind
    if kind in _SCALARS or kind == "decimal":
        return _scalars_to_column(form)
    parts = [_to_column(part) for part in form.parts]
    if kind == "list":
        return partial(_lists_to_column, column_type(form), parts[0])
    if kind == "map":
        return partial(_maps_to_column, column_type(form), parts[0], parts[1])
    kinds = {_NONE, *((tuple,) if kind == "tuple" else _row_types(form.names))}
    return partial(_records_to_column, column_type(form), parts, kinds)


def _scalars_to_column(form: ValueForm) -> _ToColumn:
    column, fits, cls = column_type(form), _fits(form), _BY_CLASS.get(form.kind)

    def convert(values: Sequence[Any]) -> pa.Array | None:
        if cls is not None:
            if not set(map(type, values)) <= {cls, _NONE}:
                return None
        elif not all(value is None or fits(value) for value in values):
            return None
        try:
            return pa.array(values, column)
        except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
            return None

    return convert


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Where each of some lists begins in all of their elements; null for one that is None."""
    lengths = [0 if value is None else len(value) for value in values]
    ends = np.cumsum([0, *lengths])
    nulls = np.array([*(value is None for value in values), False], bool)
    return pa.array(ends, pa.int32(), mask=nulls)


def _lists_to_column(
    column: pa.DataType, convert: _ToColumn, values: Sequence[Any]
) -> pa.Array | None:
    if not set(map(type, values)) <= {list, _NONE}:
        return None
    elements = convert(list(chain.from_iterable(filter(None, values))))
    if elements is None:
        return None
    return pa.ListArray.from_arrays(_offsets(values), elements, type=column)


def _maps_to_column(
    column: pa.DataType, convert_key: _ToColumn, convert: _ToColumn, values: Sequence[Any]
) -> pa.Array | None:
    if not set(map(type, values)) <= {dict, _NONE}:
        return None
    some = [value for value in values if value]
    keys = convert_key(list(chain.from_iterable(some)))
    items = convert([item for value in some for item in value.values()])
    if keys is None or keys.null_count or items is None:
        return None
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=column)


def _records_to_column(
    column: pa.DataType, parts: list[_ToColumn], kinds: set[type], values: Sequence[Any]
) -> pa.Array | None:
    found = set(map(type, values))
    if not found <= kinds:
        return None
    mask = None
    if _NONE in found:
        nulls = [value is None for value in values]
        mask, nothing = pa.array(nulls, pa.bool_()), (None,) * len(parts)
        values = [nothing if value is None else value for value in values]
    if set(map(len, values)) - {len(parts)}:
        return None
    fields = list(zip(*values, strict=True)) or [()] * len(parts)
    arrays = [convert(field) for convert, field in zip(parts, fields, strict=True)]
    if any(array is None for array in arrays):
        return None
    return pa.StructArray.from_arrays(arrays, fields=list(column), mask=mask)


def _from_column(form: ValueForm) -> _FromColumn:
    """What gives the values of a column."""
    kind = form.kind
    if kind in _SCALARS or kind == "decimal":
        return _SCALARS_FROM_COLUMN.get(kind, _plain_from_column)
    parts = [_from_column(part) for part in form.parts]
    if kind == "list":
        return partial(_lists_from_column, parts[0])
    if kind == "map":
        return partial(_maps_from_column, parts[0], parts[1])
    make = None if kind == "tuple" else row_class(form.names, RowKind.INSERT)
    return partial(_records_from_column, parts, make)


def _plain_from_column(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found


def _numbers_from_column(column: pa.Array) -> list[Any]:
    if column.null_count:
        return _plain_from_column(column)
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _texts_from_column(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _zoned_from_column(column: pa.Array) -> list[Any]:
    return [value and value.replace(tzinfo=UTC) for value in column.to_pylist()]


_SCALARS_FROM_COLUMN: Final[dict[str, _FromColumn]] = {
    **dict.fromkeys(("bool", "int", "float"), _numbers_from_column),
    **dict.fromkeys(("str", "bytes"), _texts_from_column),
    "datetime utc": _zoned_from_column,
}


def _spans(column: pa.Array) -> tuple[int, int, list[slice | None]]:
    """First and last + 1 of a list column's elements, and where those of each list are."""
    ends = column.offsets.to_numpy()
    first = int(ends[0])
    spans: list[slice | None] = list(
        map(slice, (ends[:-1] - first).tolist(), (ends[1:] - first).tolist())
    )
    if column.null_count:
        nulls = column.is_null().to_pylist()
        spans = [None if is_null else each for is_null, each in zip(nulls, spans, strict=True)]
    return first, int(ends[-1]), spans


def _lists_from_column(convert: _FromColumn, column: pa.Array) -> list[Any]:
    first, stop, spans = _spans(column)
    elements = convert(column.values[first:stop])
    return [None if span is None else elements[span] for span in spans]


def _maps_from_column(
    convert_key: _FromColumn, convert: _FromColumn, column: pa.Array
) -> list[Any]:
    first, stop, spans = _spans(column)
    keys, items = convert_key(column.keys[first:stop]), convert(column.items[first:stop])
    return [
        None if span is None else dict(zip(keys[span], items[span], strict=True)) for span in spans
    ]


def _records_from_column(
    parts: list[_FromColumn], make: Callable[[Any], Any] | None, column: pa.Array
) -> list[Any]:
    fields = [convert(each) for convert, each in zip(parts, column.flatten(), strict=True)]
    found: list[Any] = list(zip(*fields, strict=True))
    if make is not None:
        found = list(map(make, found))
    if column.null_count:
        nulls = column.is_null().to_pylist()
        found = [None if is_null else each for is_null, each in zip(nulls, found, strict=True)]
    return found
