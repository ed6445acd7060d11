"""The JSON form of types in snapshots, which says all of a type without its program.

A type without parts is its name as Flink prints it (``"Long"``); others are objects: ``{"type":
"row", "fields": [{"name": "id", "type": "Long"}]}``.  Equal types have equal forms.
"""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from millstream.errors import StateError
from millstream.types.basic_types import (
    BasicTypeInfo,
    BigDecimalTypeInfo,
    DecimalTypeInfo,
    InstantTypeInfo,
    SqlTimeTypeInfo,
)
from millstream.types.composite_types import (
    CompositeTypeInfo,
    DataclassTypeInfo,
    NamedTupleTypeInfo,
    RecordClassTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    record_fields,
)
from millstream.types.type_information import (
    ArrowTypeInfo,
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    SerializedTypeInfo,
    StoredSerializer,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Callable


#: A type as it is recorded; JSON.
RecordedType: TypeAlias = "str | dict[str, Any]"

#: Values of any type, pickled.
ANYTHING: Final = "Pickled"
#: Values of a serializer of the program.
SERIALIZED: Final = "serialized"
_NAMED: Final[dict[str, TypeInformation]] = {
    **{name: BasicTypeInfo(name) for name in ("String", "Character", "Boolean")},
    **{name: BasicTypeInfo(name) for name in ("Byte", "Short", "Integer", "Long")},
    **{name: BasicTypeInfo(name) for name in ("Float", "Double")},
    **{name: SqlTimeTypeInfo(name) for name in ("Date", "Time", "Timestamp", "TimestampLtz")},
    "BigDecimal": BigDecimalTypeInfo(),
    "BigInteger": DecimalTypeInfo(38, 0, integers=True),
    "Instant": InstantTypeInfo(),
    ANYTHING: PickledBytesTypeInfo(),
}
_SEQUENCES: Final = {
    "list": ListTypeInfo,
    "basic array": BasicArrayTypeInfo,
    "object array": ObjectArrayTypeInfo,
    "primitive array": PrimitiveArrayTypeInfo,
}
_SEQUENCE_NAMES: Final[dict[type, str]] = {cls: name for name, cls in _SEQUENCES.items()}
_COMPOSITES: Final[dict[type, str]] = {
    RowTypeInfo: "row",
    TupleTypeInfo: "tuple",
    DataclassTypeInfo: "dataclass",
    NamedTupleTypeInfo: "named tuple",
}
_RECORD_CLASSES: Final = {"dataclass": DataclassTypeInfo, "named tuple": NamedTupleTypeInfo}


def recorded_type(kind: TypeInformation) -> RecordedType:  # noqa: PLR0911 - a table
    """Return a type as it is recorded."""
    name = str(kind)
    if name in _NAMED:
        return name
    if isinstance(kind, PickledBytesTypeInfo):
        return ANYTHING
    if isinstance(kind, SerializedTypeInfo):
        serializer = kind.serializer
        return {"type": SERIALIZED, "serializer": serializer.name, "version": serializer.version}
    if isinstance(kind, DecimalTypeInfo):
        decimal = kind.arrow_type
        return {"type": "decimal", "precision": decimal.precision, "scale": decimal.scale}
    if isinstance(kind, CompositeTypeInfo) and type(kind) in _COMPOSITES:
        return _recorded_composite(kind)
    if isinstance(kind, MapTypeInfo):
        key, value = recorded_type(kind.key_type_info), recorded_type(kind.value_type_info)
        return {"type": "map", "key": key, "value": value}
    if type(kind) in _SEQUENCE_NAMES:
        element: TypeInformation = getattr(kind, "elem_type")  # noqa: B009 - of the four of them
        return {"type": _SEQUENCE_NAMES[type(kind)], "element": recorded_type(element)}
    column = pa.schema([("f0", kind.arrow_type)]).serialize().to_pybytes()
    return {"type": "column", "name": name, "arrow": base64.b64encode(column).decode("ascii")}


def _recorded_composite(kind: CompositeTypeInfo) -> RecordedType:
    pairs = zip(kind.get_field_names(), kind.get_field_types(), strict=True)
    fields = [{"name": name, "type": recorded_type(each)} for name, each in pairs]
    form: dict[str, Any] = {"type": _COMPOSITES[type(kind)], "fields": fields}
    if isinstance(kind, RecordClassTypeInfo):
        form["class"] = f"{kind.cls.__module__}.{kind.cls.__qualname__}"
    return form


def type_of_record(  # noqa: PLR0911 - a table
    recorded: RecordedType,
    record_as: Literal["class", "row", "tuple"] = "class",
    find: Callable[[str], type | None] | None = None,
) -> TypeInformation:
    """Return the type that was recorded.

    A column type of SQL is the Arrow type of its columns.

    Args:
        recorded: as ``recorded_type`` returns it.
        record_as: what dataclasses and named tuples are: their class, or a row or tuple of the
            recorded fields, which needs no class.  One that is missing or has other fields by now
            is a row.  Values of a serializer are ``bytes`` in rows, ``SerializedValue`` in tuples.
        find: finds the class of a module and qualified name; left out, these are rows.

    Raises:
        StateError: a later release may have written it, or the class of its values is asked for,
            which only their serializer makes.
    """
    if isinstance(recorded, str):
        if recorded in _NAMED:
            return _NAMED[recorded]
        raise _unknown(recorded)
    form = recorded.get("type")
    if form == "decimal":
        return DecimalTypeInfo(recorded["precision"], recorded["scale"])
    if form == "map":
        parts = (type_of_record(recorded[part], record_as, find) for part in ("key", "value"))
        return MapTypeInfo(*parts)
    if form in _SEQUENCES:
        return _SEQUENCES[form](type_of_record(recorded["element"], record_as, find))
    if form == "column":
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(recorded["arrow"])))
        return ArrowTypeInfo(schema.field(0).type)
    if form == SERIALIZED:
        return _serialized(recorded, record_as)
    if form in _COMPOSITES.values():
        return _composite(recorded, record_as, find)
    raise _unknown(recorded)


def _composite(
    recorded: dict[str, Any],
    record_as: Literal["class", "row", "tuple"],
    find: Callable[[str], type | None] | None,
) -> TypeInformation:
    names = [field["name"] for field in recorded["fields"]]
    kinds = [type_of_record(field["type"], record_as, find) for field in recorded["fields"]]
    form = recorded["type"]
    if form == "tuple" or (form in _RECORD_CLASSES and record_as == "tuple"):
        return TupleTypeInfo(kinds)
    if form in _RECORD_CLASSES and record_as == "class" and find is not None:
        cls = find(recorded["class"])
        is_dataclass = dataclasses.is_dataclass(cls)
        if cls and record_fields(cls) == tuple(names) and is_dataclass == (form == "dataclass"):
            return _RECORD_CLASSES[form](cls, kinds)
    return RowTypeInfo(kinds, names)


def _serialized(
    recorded: dict[str, Any], record_as: Literal["class", "row", "tuple"]
) -> TypeInformation:
    name, version = str(recorded["serializer"]), int(recorded["version"])
    if record_as == "class":
        message = (
            f"its values were written by serializer {name!r}, version {version}; declare its type"
            " with Types.SERIALIZED and that serializer"
        )
        raise StateError(message)
    return SerializedTypeInfo(StoredSerializer(name, version, as_bytes=record_as == "row"))


def _unknown(recorded: object) -> StateError:
    message = f"the type {recorded!r} in a snapshot is unknown; a later release may have written it"
    return StateError(message)


def describe_recorded(recorded: RecordedType) -> list[str]:
    """Return a recorded type for people: a line for it, or one for each field of a record."""
    if isinstance(recorded, dict) and "fields" in recorded:
        head = recorded.get("class") or recorded["type"]
        return [
            head,
            *(f"  {each['name']}: {text_of(each['type'])}" for each in recorded["fields"]),
        ]
    return [text_of(recorded)]


def text_of(recorded: RecordedType) -> str:  # noqa: PLR0911 - a table
    """Return a recorded type in one line."""
    if isinstance(recorded, str):
        return recorded
    form = recorded["type"]
    if form == "decimal":
        return f"Decimal({recorded['precision']}, {recorded['scale']})"
    if form == "map":
        return f"map<{text_of(recorded['key'])}, {text_of(recorded['value'])}>"
    if form in _SEQUENCES:
        return f"{form}<{text_of(recorded['element'])}>"
    if form == SERIALIZED:
        return f"serialized({recorded['serializer']}, version {recorded['version']})"
    if "fields" in recorded:
        fields = (f"{each['name']}: {text_of(each['type'])}" for each in recorded["fields"])
        return f"{recorded.get('class') or form}({', '.join(fields)})"
    return str(recorded.get("name", form))
