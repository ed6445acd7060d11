r"""The registry of a store: a description of every state that it holds.

``M`` entries of JSON, one per state number: a state of the user's function, the timers of one kind,
the content of windows.  Each has the kind of state, the encoding of its names and values, and the
type of its values where one was declared, so a store can be read without the program
(``state/reader.py``).

Under ``M\0section:`` and a name an operator describes all that it keeps for one purpose
(``contracts/operator.py``), so that another operator can tell whether it understands it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.operator import SECTION, describe_type
from millstream.functions.descriptors import StateTtlConfig
from millstream.state.serializers import class_called, unpickler
from millstream.state.value_codec import codec_of, pickled
from millstream.types.recorded_types import recorded_type, type_of_record
from millstream.types.type_information import TypeInformation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import StateSection
    from millstream.functions.descriptors import StateDescriptor
    from millstream.state.value_codec import ValueCodec
    from millstream.types.recorded_types import RecordedType


META: Final = b"M"
STORE_FORMAT: Final = b"M\0format"
#: The counter that numbers list chunks.
CHUNK_COUNTER: Final = b"M\0chunk"
#: Up to which entry the background has looked for what has expired.
SWEPT: Final = b"M\0swept"
#: What the names of records begin with that say what an operator keeps.
SECTION_RECORD: Final = b"M\0section:"


#: What the names of states begin with that have one form in some subtasks and another in others.
_VARIANT: Final = b"\0variant:"


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a store."""

    name: str
    #: The state's number in names of entries.
    index: int
    #: "value", "list", "map", "timers", "panes"...
    kind: str
    #: What the names of its entries begin with: "K" by key, "T" by time, "C" chunks by time.
    letter: str
    #: What stands behind the key: "", "map key", "window", "number"...
    namespace: str
    #: How values are written: "typed", "typed list" (``state/value_codec.py``), "pickle", "pickled
    #: list", "packed", "arrow" or "" (there is none).
    format: str
    #: The declared type of values, or what they are; empty if nothing is known.
    value_type: str = ""
    expires: bool = False
    #: The declared types of values, and of the keys of a map, as ``types/recorded_types.py`` has
    #: them; None if nothing was declared.
    schema: RecordedType | None = None
    key_schema: RecordedType | None = None
    #: The clock of the time to live, "processing" or "event", and its length in milliseconds; None
    #: if values do not expire, or an early build has not recorded the length.
    ttl_time: str | None = None
    ttl: int | None = None


#: Kind -> (letter, namespace, format).
_FORMS: Final = {
    "value": ("K", "", "pickle"),
    "reducing": ("K", "", "pickle"),
    "aggregating": ("K", "", "pickle"),
    "list": ("K", "number", "pickled list"),
    "map": ("K", "map key", "pickle"),
    "namespaced": ("K", "window", "pickle"),
    "window elements": ("K", "window, number", "pickled list"),
    "merging windows": ("K", "", "pickled windows"),
    "packed": ("K", "", "packed"),
    "packed map": ("K", "bucket", "packed map"),
    "timers": ("T", "timer", ""),
    "accumulators of windows": ("T", "", "pickle"),
    "elements of windows": ("T", "sequence", "pickled list"),
    "panes": ("C", "", "arrow"),
    "session fragments": ("C", "", "arrow"),
}


def new_metadata(
    index: int, kind: str, *, ttl: bool = False, declared: str | None = None
) -> dict[str, object]:
    """What a store is to say of a section; JSON."""
    letter, namespace, form = _FORMS[kind]
    return {
        "index": index,
        "kind": kind,
        "ttl": ttl,
        "type": declared,
        "letter": letter,
        "namespace": namespace,
        "format": form,
    }


def declared_type(descriptor: StateDescriptor) -> str | None:
    """The declared types of a state; of a map, those of its keys and values."""
    found = [describe_type(getattr(descriptor, "key_type_info", None))]
    found.append(describe_type(descriptor.type_info))
    told = [each for each in found if each is not None]
    return " -> ".join(told) if told else None


def declared_schemas(value_type: object, key_type: object = None) -> dict[str, Any]:
    """The types of values and of keys as they are recorded; None where nothing was declared."""
    return {
        name: recorded_type(kind)
        if isinstance(kind, TypeInformation) and describe_type(kind) is not None
        else None
        for name, kind in (("schema", value_type), ("key_schema", key_type))
    }


def metadata_of(descriptor: StateDescriptor) -> dict[str, object]:
    """What a store is to say of a state that a program declares, but for its number."""
    schemas = declared_schemas(descriptor.type_info, getattr(descriptor, "key_type_info", None))
    config, declared = descriptor.ttl_config, declared_type(descriptor)
    made = {**new_metadata(0, descriptor.kind, ttl=bool(config), declared=declared), **schemas}
    if config is not None:
        made["ttl_time"] = EVENT_TIME if is_by_event_time(config) else PROCESSING_TIME
        made["ttl_ms"] = config.get_ttl().to_milliseconds()
    return made


#: The clock of the time to live of a state; processing time where a store does not say.
PROCESSING_TIME: Final = "processing"
EVENT_TIME: Final = "event"


def is_by_event_time(config: StateTtlConfig) -> bool:
    """Return whether state expires by event time."""
    characteristic = config.get_ttl_time_characteristic()
    return characteristic is StateTtlConfig.TtlTimeCharacteristic.EventTime


def ttl_time_of(meta: Mapping[str, Any]) -> str | None:
    """Return the clock by which the values of a state expire; None if they do not."""
    return str(meta.get("ttl_time") or PROCESSING_TIME) if meta["ttl"] else None


def codec_for(meta: Mapping[str, Any], declared: object = None) -> ValueCodec:
    """Return the codec of the values of a state.

    Args:
        meta: what the store is to say of it.
        declared: the type of its values in the program; else it is the recorded one.
    """
    schema = meta.get("schema")
    if meta["format"] not in _TYPED_FORMATS:
        return pickled(unpickler())
    if not isinstance(declared, TypeInformation) or describe_type(declared) is None:
        declared = None if schema is None else recorded_kind(schema)
    is_list = is_list_format(str(meta["format"]))
    return codec_of(declared, lists=is_list, expires=bool(meta["ttl"]), unpickle=unpickler())


def recorded_kind(schema: RecordedType) -> TypeInformation:
    """The type that was recorded, with the classes that the program has."""
    return type_of_record(schema, find=class_called)


#: Format of values that are pickled -> that of typed ones, where there is one.
_TYPED_FORMATS: Final = {
    "pickle": "typed",
    "pickled list": "typed list",
    "typed": "typed",
    "typed list": "typed list",
}


def is_list_format(form: str) -> bool:
    """Return whether each entry is a list of values."""
    return form.endswith("list")


def format_of(meta: Mapping[str, Any], codec: ValueCodec) -> str:
    """Return how a codec writes the values of a state.

    A typed codec reads what was pickled before, so the format may change while entries stay.
    """
    form = str(meta["format"])
    return _TYPED_FORMATS.get(form, form) if codec.is_typed else form


def declared_parts(wanted: dict[str, object]) -> dict[str, object]:
    """What the program says of the values of a state; of their types only if it declares any."""
    parts = {name: wanted.get(name) for name in ("ttl", "ttl_time", "ttl_ms")}
    if wanted["ttl"]:
        parts["format"] = wanted["format"]
    if wanted["type"] is not None:
        types = ("type", "schema", "key_schema", "format")
        parts |= {name: wanted[name] for name in types if name in wanted}
    return parts


def description_of(meta: dict[str, object]) -> str:
    """Kind and type of a state, for people."""
    kind = f"{meta['kind']} state"
    declared = f" of {meta['type']}" if meta.get("type") else ""
    expires = ", expires" if meta["ttl"] else ""
    return f"{kind}{declared}{expires}{' by event time' if ttl_time_of(meta) == EVENT_TIME else ''}"


def section_record(section: StateSection) -> tuple[bytes, bytes]:
    """The entry in which an operator says what it keeps."""
    value = json.dumps(SECTION.write(section)).encode()
    return SECTION_RECORD + section.name.encode(), value


def stored_record(store: KeyValueStore, name: str) -> StateSection | None:
    """What the operator that wrote a store said of the section ``name``; None if nothing."""
    value = store.get(SECTION_RECORD + name.encode())
    return None if value is None else SECTION.read(json.loads(value))


def is_section(name: bytes) -> bool:
    """Return whether the ``M`` entry of this name is of a section with a number."""
    return name not in (STORE_FORMAT, CHUNK_COUNTER, SWEPT) and not name.startswith(SECTION_RECORD)


def variant_name(name: bytes, number: int) -> bytes:
    """Return the ``M`` entry of a state that has another form in some subtasks, and its name."""
    return META + _VARIANT + f"{number}:".encode() + name.removeprefix(META)


def variants(states: Iterable[str], name: str) -> list[str]:
    """Return the names of the variants of a state that a store has."""
    head = _VARIANT.decode()
    return [
        each
        for each in states
        if each.startswith(head) and each.removeprefix(head).partition(":")[2] == name
    ]


def read_sections(store: KeyValueStore) -> list[Section]:
    """Return every section of a store, in order of names."""
    found = [section_of(name, meta) for name, meta in read_metadata(store).items()]
    return sorted(found, key=lambda section: section.name)


def read_metadata(store: KeyValueStore) -> dict[str, dict[str, Any]]:
    """Return what a store says of every section, by name."""
    return {
        name[1:].decode(): json.loads(value)
        for name, value in store.scan(META, b"N")
        if is_section(name)
    }


def section_of(name: str, meta: dict[str, Any]) -> Section:
    """Return the section of that name of which a store says this."""
    return Section(
        name=name,
        index=int(meta["index"]),
        kind=str(meta["kind"]),
        letter=str(meta["letter"]),
        namespace=str(meta["namespace"]),
        format=str(meta["format"]),
        value_type=str(meta["type"] or ""),
        expires=bool(meta["ttl"]),
        schema=meta.get("schema"),
        key_schema=meta.get("key_schema"),
        ttl_time=ttl_time_of(meta),
        ttl=meta.get("ttl_ms"),
    )
