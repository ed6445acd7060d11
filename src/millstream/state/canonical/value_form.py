"""Forms of Python values that an Arrow column holds exactly.

A value fits a form if what comes back out of the column is equal and of the same types throughout.
Anything else (an instance of a class, a NumPy scalar, an integer above 64 bits) fits none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.types.basic_types import DecimalTypeInfo
from millstream.types.composite_types import RowTypeInfo, TupleTypeInfo
from millstream.types.row import Row, RowKind, row_class
from millstream.types.type_information import ArrowTypeInfo, ListTypeInfo, MapTypeInfo
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import tzinfo

    from millstream.types.type_information import TypeInformation


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
            names = self.names or [f"f{number}" for number in range(len(self.parts))]
            named = zip(names, self.parts, strict=True)
            fields = (f"{name}: {part}" for name, part in named)
            return f"row({', '.join(fields)})"
        if self.kind == "decimal":
            return f"decimal({_MOST_DIGITS}, {self.scale})"
        return f"{self.kind}[{', '.join(map(str, self.parts))}]" if self.parts else self.kind


#: Of nothing but None, or of no elements.
ANY: Final = ValueForm("any")
#: No column holds it.
OBJECT: Final = ValueForm("object")


def _are_in_64_bits(values: Sequence[int]) -> bool:
    return min(values) >= _SMALLEST and max(values) <= _LARGEST


def _are_texts(values: Sequence[str]) -> bool:
    try:
        "".join(values).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _are_in_zone(zone: tzinfo | None) -> Callable[[Sequence[Any]], bool]:
    return lambda values: all(value.tzinfo is zone and not value.fold for value in values)


def _are_durations(values: Sequence[timedelta]) -> bool:
    # Python's reach beyond the microseconds of the column.
    return _are_in_64_bits([value // _MICROSECOND for value in values])


#: Name -> class, type of the column, and whether values of the class (some, none of them None)
#: fit; None: all do.
_SCALARS: Final[dict[str, tuple[type, TypeInformation, Callable[[Sequence[Any]], bool] | None]]] = {
    "bool": (bool, Types.BOOLEAN(), None),
    "int": (int, Types.LONG(), _are_in_64_bits),
    "float": (float, Types.DOUBLE(), None),
    "str": (str, Types.STRING(), _are_texts),
    "bytes": (bytes, Types.PRIMITIVE_ARRAY(Types.BYTE()), None),
    "datetime": (datetime, Types.SQL_TIMESTAMP(), _are_in_zone(None)),
    "datetime utc": (datetime, Types.TIMESTAMP_LTZ(), _are_in_zone(UTC)),
    "date": (date, Types.SQL_DATE(), None),
    "time": (time, Types.SQL_TIME(), _are_in_zone(None)),
    "timedelta": (timedelta, ArrowTypeInfo(pa.duration("us")), _are_durations),
}
_KINDS: Final = {cls: name for name, (cls, *_) in _SCALARS.items() if cls is not datetime}


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


def _row_types(names: tuple[str, ...] | None) -> frozenset[type]:
    made = row_class(names, RowKind.INSERT)
    # ``Row(1, 2)`` is of the class itself until it was pickled once.
    return frozenset({made, Row} if names is None else {made})


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

    __slots__ = ("_info", "form", "type")

    def __init__(self, form: ValueForm) -> None:
        self.form = form
        self._info = _type_info_of(form)
        self.type = self._info.arrow_type

    def fits(self, *values: Any) -> bool:
        """Return whether the column gives back these values exactly; None fits each."""
        return _are_exact(self.form, values)

    def array(self, values: Sequence[Any]) -> pa.Array | None:
        """Return the column of some values; None if one of them does not fit."""
        return self._info.column_to_arrow(values) if _are_exact(self.form, values) else None

    def values(self, column: pa.Array | pa.ChunkedArray) -> list[Any]:
        """Return the values of a column."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        return self._info.column_from_arrow(column)


class _NamelessRowTypeInfo(TupleTypeInfo):
    """Rows whose fields have no names."""

    def _from_columns(self, columns: list[list[Any]]) -> list[Any]:
        return list(map(row_class(None), super()._from_columns(columns)))


def _type_info_of(form: ValueForm) -> TypeInformation:
    if form.kind in _SCALARS:
        return _SCALARS[form.kind][1]
    if form.kind == "decimal":
        return DecimalTypeInfo(_MOST_DIGITS, form.scale)
    parts = list(map(_type_info_of, form.parts))
    if form.kind == "list":
        return ListTypeInfo(*parts)
    if form.kind == "map":
        return MapTypeInfo(*parts)
    if form.kind == "tuple":
        return TupleTypeInfo(parts)
    return _NamelessRowTypeInfo(parts) if form.names is None else RowTypeInfo(parts, form.names)


def _are_exact(form: ValueForm, values: Sequence[Any]) -> bool:
    """Return whether the type of the form gives back these values with the same types."""
    kinds = set(map(type, values))
    present = values
    if _NONE in kinds:
        kinds.remove(_NONE)
        present = [value for value in values if value is not None]
    if not present:
        return True
    if not kinds <= _classes_of(form):
        return False
    return _have_exact_parts(form, present)


def _have_exact_parts(form: ValueForm, values: Sequence[Any]) -> bool:
    """The same of values of the right classes, of which there are some and none is None."""
    if form.kind == "decimal":
        return all(_is_decimal(value, form.scale) for value in values)
    if not form.parts:
        check = _SCALARS[form.kind][2]
        return check is None or check(values)
    if form.kind == "list":
        return _are_exact(form.parts[0], list(chain.from_iterable(values)))
    if form.kind == "map":
        keys = list(chain.from_iterable(values))
        items = [item for value in values for item in value.values()]
        return all(map(_are_exact, form.parts, (keys, items))) and None not in keys
    if set(map(len, values)) != {len(form.parts)}:
        return False
    return all(map(_are_exact, form.parts, zip(*values, strict=True)))


def _classes_of(form: ValueForm) -> frozenset[type]:
    return _row_types(form.names) if form.kind == "row" else _CLASSES[form.kind]


_NONE: Final = type(None)
_CLASSES: Final[dict[str, frozenset[type]]] = {
    **{kind: frozenset({cls}) for kind, (cls, *_) in _SCALARS.items()},
    "decimal": frozenset({Decimal}),
    "list": frozenset({list}),
    "map": frozenset({dict}),
    "tuple": frozenset({tuple}),
}


def _is_decimal(value: Decimal, scale: int) -> bool:
    sign, digits, exponent = value.as_tuple()
    if exponent != -scale or len(digits) > _MOST_DIGITS:
        return False
    return bool(value) or not sign  # a column has no negative zero
