"""Schema evolution: which types may follow a recorded one, and the conversion of their values.

Fields of rows, dataclasses and named tuples are found by name; they may be added (with their
default, or None), removed, moved and widened, also within lists, maps and tuples.  A conversion
takes a value as it was stored and returns it as the new type has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

from millstream.types.columns import as_key
from millstream.types.composite_types import (
    CompositeTypeInfo,
    DataclassTypeInfo,
    NamedTupleTypeInfo,
    RecordClassTypeInfo,
    RowTypeInfo,
)
from millstream.types.recorded_types import recorded_type, text_of
from millstream.types.row import Row, row_class
from millstream.types.type_information import (
    MapTypeInfo,
    SerializedTypeInfo,
    SerializedValue,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.types.recorded_types import RecordedType


#: Makes a value of the new type of one of the recorded type; None: it is one already.
Conversion: TypeAlias = Callable[[Any], Any] | None

#: What each type may become without loss; DOUBLE holds integers of 32 bits exactly.
_WIDER: Final[dict[str, tuple[str, ...]]] = {
    "Byte": ("Short", "Integer", "Long", "BigInteger", "Float", "Double"),
    "Short": ("Integer", "Long", "BigInteger", "Float", "Double"),
    "Integer": ("Long", "BigInteger", "Double"),
    "Long": ("BigInteger",),
    "Float": ("Double",),
}
_FLOATING: Final = ("Float", "Double")


class IncompatibleTypeError(Exception):
    """A type may not follow the recorded one.  Internal: becomes a StateError further up."""


def conversion(
    stored: RecordedType,
    declared: TypeInformation,
    moved: Mapping[str, str] | None = None,
    *,
    rebuild: bool = False,
    always: bool = False,
) -> Conversion:
    """Return what makes values of ``declared`` of those that were recorded as ``stored``.

    Args:
        stored: the type in the snapshot.
        declared: the type that the program has.
        moved: old name -> new name of classes, with their modules.
        rebuild: values of recorded dataclasses and named tuples are not instances of these, but
            have their fields.
        always: that is so even if the types are equal.

    Returns:
        The conversion of one value, of which None is none; None: nothing is to be converted.

    Raises:
        IncompatibleTypeError: the new type may not follow; says which part of it and why.
    """
    if stored == recorded_type(declared) and not always:
        return None
    return _Comparison(moved or {}, rebuild=rebuild).compare(stored, declared, "")


class _Comparison:
    """Compares a recorded type with a declared one, part by part."""

    def __init__(self, moved: Mapping[str, str], *, rebuild: bool) -> None:
        self._moved = moved
        self._rebuild = rebuild

    def compare(  # noqa: PLR0911 - a table
        self, stored: RecordedType, declared: TypeInformation, path: str
    ) -> Conversion:
        wanted = recorded_type(declared)
        if stored == wanted and not (self._rebuild and _is_read_otherwise(stored)):
            return None
        if isinstance(stored, str) and isinstance(wanted, str):
            if wanted in _WIDER.get(stored, ()):
                return _widened if wanted in _FLOATING and stored not in _FLOATING else None
            raise _changed(stored, wanted, path)
        if isinstance(stored, str) or isinstance(wanted, str) or stored["type"] != wanted["type"]:
            raise _changed(stored, wanted, path)
        if isinstance(declared, CompositeTypeInfo):
            return self._fields(stored, declared, wanted, path)
        if isinstance(declared, MapTypeInfo):
            keys = self.compare(stored["key"], declared.key_type_info, f"{path}[key]")
            items = self.compare(stored["value"], declared.value_type_info, f"{path}[value]")
            return _map_conversion(keys, items)
        if "element" in stored:
            inner = self.compare(stored["element"], getattr(declared, "elem_type"), f"{path}[]")  # noqa: B009 - of sequences
            return None if inner is None else partial(_convert_list, inner)
        if isinstance(declared, SerializedTypeInfo):
            return _deserialization(stored, declared, wanted, path)
        if stored["type"] == "decimal" and _fits_decimal(stored, wanted):
            return None
        raise _changed(stored, wanted, path)

    def _fields(
        self, stored: dict[str, Any], declared: CompositeTypeInfo, wanted: Any, path: str
    ) -> Conversion:
        old = self._moved.get(stored.get("class", ""), stored.get("class"))
        if old != wanted.get("class"):
            raise _changed(stored, wanted, path, _MOVED_ADVICE if old else "")
        names = [field["name"] for field in stored["fields"]]
        kinds = {field["name"]: field["type"] for field in stored["fields"]}
        if stored["type"] == "tuple" and len(names) != len(declared.get_field_names()):
            raise _changed(stored, wanted, path)
        takers: list[tuple[int, Conversion] | Callable[[], Any]] = []
        for name, kind in zip(declared.get_field_names(), declared.get_field_types(), strict=True):
            where = f"{path}.{name}" if path else name
            if name in kinds:
                takers.append((names.index(name), self.compare(kinds[name], kind, where)))
            else:
                takers.append(_default(declared, name, where))
        if stored == wanted and not self._rebuild:
            return None
        return partial(_convert_record, tuple(names), takers, _maker(declared))


def _is_read_otherwise(stored: RecordedType) -> bool:
    """Return whether there are dataclasses, named tuples or serializers in a recorded type."""
    if isinstance(stored, str):
        return False
    parts = [stored[part] for part in ("key", "value", "element") if part in stored]
    parts += [field["type"] for field in stored.get("fields", ())]
    return "class" in stored or "serializer" in stored or any(map(_is_read_otherwise, parts))


def _deserialization(
    stored: dict[str, Any], declared: SerializedTypeInfo, wanted: RecordedType, path: str
) -> Conversion:
    """What makes values of those that a serializer of this name has written."""
    serializer, version = declared.serializer, int(stored["version"])
    if stored["serializer"] != serializer.name:
        raise _changed(stored, wanted, path)
    if not serializer.reads(version):
        advice = f"; reads({version}) of serializer {serializer.name!r} is false"
        raise _changed(stored, wanted, path, advice)

    def deserialized(value: Any) -> Any:
        if type(value) is SerializedValue:
            return serializer.deserialize(bytes(value), version)
        return value  # it was pickled

    return deserialized


_MOVED_ADVICE: Final = "; if the class has moved, set millstream.state.moved-classes to OLD:NEW"


def _changed(
    stored: RecordedType, wanted: RecordedType, path: str, advice: str = ""
) -> IncompatibleTypeError:
    where = f"{path}: " if path else ""
    text = f"{where}{text_of(stored)} cannot become {text_of(wanted)}{advice}"
    return IncompatibleTypeError(text)


def _fits_decimal(stored: dict[str, Any], wanted: dict[str, Any]) -> bool:
    before = stored["precision"] - stored["scale"]
    return bool(
        wanted["scale"] >= stored["scale"] and wanted["precision"] - wanted["scale"] >= before
    )


def _default(declared: CompositeTypeInfo, name: str, path: str) -> Callable[[], Any]:
    """What gives the value of a field that is new."""
    if not isinstance(declared, RecordClassTypeInfo):
        return _none
    if isinstance(declared, DataclassTypeInfo):
        field = next(each for each in dataclasses.fields(declared.cls) if each.name == name)
        if field.default is not dataclasses.MISSING:
            return partial(_same, field.default)
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory
    elif isinstance(declared, NamedTupleTypeInfo):
        defaults: dict[str, Any] = getattr(declared.cls, "_field_defaults")  # noqa: B009 - of named tuples
        if name in defaults:
            return partial(_same, defaults[name])
    hint = get_type_hints(declared.cls).get(name)
    if get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint):
        return _none
    message = f"{path}: the new field has no default and is not optional"
    raise IncompatibleTypeError(message)


def _widened(value: Any) -> Any:
    return None if value is None else float(value)


def _none() -> None:
    return None


def _same(value: Any) -> Any:
    return value


def _maker(declared: CompositeTypeInfo) -> Callable[[list[Any], Any], Any]:
    """What makes a record of its fields and the value that it was before."""
    if isinstance(declared, RowTypeInfo):
        return partial(_make_row, tuple(declared.get_field_names()))
    return partial(_make_record, declared)


def _make_row(names: tuple[str, ...], values: list[Any], before: Any) -> Row:
    made: Any = row_class(names)
    if isinstance(before, Row):
        made = row_class(names, before.get_row_kind())
    row: Row = made(values)
    return row


def _make_record(declared: CompositeTypeInfo, values: list[Any], before: Any) -> Any:
    if isinstance(declared, RecordClassTypeInfo) and type(before) is declared.cls:
        # It has pickled itself, maybe with more than its fields.
        pairs = zip(declared.get_field_names(), values, strict=True)
        if all(getattr(before, name) is value for name, value in pairs):
            return before
    return declared.record_of(values)


def _convert_record(
    names: tuple[str, ...],
    takers: Sequence[tuple[int, Conversion] | Callable[[], Any]],
    make: Callable[[list[Any], Any], Any],
    value: Any,
) -> Any:
    if value is None:
        return None
    before = _fields_of(value, names)
    after = []
    for take in takers:
        if callable(take):
            after.append(take())
        else:
            position, convert = take
            field = before[position]
            after.append(field if convert is None or field is None else convert(field))
    return make(after, value)


def _fields_of(value: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """The fields of a record as it was stored, in the order of the recorded type."""
    if isinstance(value, Row):
        by_name = value.get_field_names()
        if by_name is not None and set(by_name) == set(names):
            return [value[name] for name in names]
        return value
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, dict):
        return [value.get(name) for name in names]
    return [getattr(value, name) for name in names]


def _map_conversion(keys: Conversion, items: Conversion) -> Conversion:
    if keys is None and items is None:
        return None
    return partial(_convert_map, keys or _same, items or _same)


def _convert_map(keys: Callable[[Any], Any], items: Callable[[Any], Any], value: Any) -> Any:
    if value is None:
        return None
    return {as_key(keys(key)): None if item is None else items(item) for key, item in value.items()}


def _convert_list(convert: Callable[[Any], Any], value: Any) -> Any:
    if value is None:
        return None
    return [None if item is None else convert(item) for item in value]
