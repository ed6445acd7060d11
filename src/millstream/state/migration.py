"""Migration of stored state to another declared type.

A state is migrated when it is first asked for after a restore, before anything is processed: its
entries are read as the snapshot describes them, converted and written again.  So a store never
mixes two types in one state.  What cannot be converted is refused before anything is written.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.contracts.operator import describe_type
from millstream.errors import StateError
from millstream.state.key_codec import decode_key
from millstream.state.registry import codec_for, is_list_format, recorded_kind, ttl_time_of
from millstream.state.rescale import key_and_rest, scan_state
from millstream.state.serializers import class_called, loads_recorded, moved_classes, unpickler
from millstream.state.value_codec import codec_of, pickles_itself
from millstream.types.composite_types import record_fields
from millstream.types.evolution import IncompatibleTypeError, conversion
from millstream.types.recorded_types import (
    ANYTHING,
    describe_recorded,
    recorded_type,
    text_of,
    type_of_record,
)
from millstream.types.type_information import TypeInformation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.functions.descriptors import StateDescriptor
    from millstream.state.value_codec import ValueCodec
    from millstream.types.evolution import Conversion
    from millstream.types.recorded_types import RecordedType


_BATCH: Final = 10_000
#: Map keys of these types have the same bytes.
_INTEGERS: Final = ("Byte", "Short", "Integer", "Long", "BigInteger")


def value_conversion(
    name: str, kind: object, stored: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Conversion:
    """Return the conversion of the values of a state; None if they stay as they are.

    Args:
        name: of the state.
        kind: the type of its values that the program declares.
        stored: the metadata of what is stored.
        wanted: what it is to be.

    Returns:
        The conversion, for values that ``stored_value`` reads.

    Raises:
        StateError: the values cannot be converted; shows both types side by side.
    """
    before, after = stored.get("schema"), wanted.get("schema")
    if before is None and stored.get("key_schema") is None and stored.get("type"):
        _require_same_text(name, stored["type"], wanted["type"])
    if wanted.get("key_schema") is not None:
        _require_same_map_keys(name, stored.get("key_schema"), wanted["key_schema"])
    if before is None or after is None or not isinstance(kind, TypeInformation):
        return None
    try:
        return conversion(before, kind, moved_classes(), rebuild=True)
    except IncompatibleTypeError as error:
        raise _refused(name, before, after, str(error)) from error


def stored_value(stored: RecordedType) -> Callable[[bytes], Any]:
    """Return the function that reads pickled values of a recorded type.

    Values of dataclasses have the fields of the recorded type, whatever the class has by now.
    """
    return partial(loads_recorded, records=_recorded_classes(stored))


def entry_conversion(
    descriptor: StateDescriptor, stored: Mapping[str, Any], wanted: Mapping[str, Any], now: int
) -> Callable[[bytes], bytes] | None:
    """Return the conversion of the entries of a state by key; None if they stay as they are.

    Args:
        descriptor: of the state, as the program declares it.
        stored: the metadata of the entries.
        wanted: what it is to be.
        now: the time of the restore, in milliseconds of the clock by which the state is to expire:
            values that had no time, or one of another clock, get it.

    Raises:
        StateError: as for ``value_conversion``.
    """
    kind = _kind_of(descriptor, stored, wanted)
    convert = value_conversion(descriptor.name, kind, stored, wanted)
    clocks = ttl_time_of(stored), ttl_time_of(wanted)
    if convert is None:
        if clocks[0] == clocks[1] and not _is_written_otherwise(stored, wanted, kind):
            return None
        convert = _rebuilding(descriptor.name, kind, stored)
    before = _reader(stored).decode
    after = codec_for(wanted, kind).encode
    # Without any watermark yet, values stay until they are written again.
    time_of_restore = MAX_TIMESTAMP if now == MIN_TIMESTAMP else now

    def convert_one(kept: Any) -> Any:
        time, value = kept if clocks[0] else (time_of_restore, kept)
        value = value if convert is None else convert(value)
        if clocks[1] is None:
            return value
        return (time if clocks[0] == clocks[1] else time_of_restore), value

    if not is_list_format(stored["format"]):
        return lambda content: after(convert_one(before(content)))
    return lambda content: after(list(map(convert_one, before(content))))


def _kind_of(
    descriptor: StateDescriptor, stored: Mapping[str, Any], wanted: Mapping[str, Any]
) -> TypeInformation | None:
    """The type that values are to have: the recorded one where the program declares none."""
    kind, schema = descriptor.type_info, wanted.get("schema")
    if isinstance(kind, TypeInformation) and describe_type(kind) is not None:
        return kind
    return None if schema in (None, stored.get("schema")) else recorded_kind(schema)


def _is_written_otherwise(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], kind: TypeInformation | None
) -> bool:
    """Return whether typed values are pickled from now on: what reads these does not read those."""
    if stored.get("schema") is None or not stored["format"].startswith("typed"):
        return False
    single = codec_for({**wanted, "ttl": False, "format": "pickle"}, kind)
    return stored["format"] != wanted["format"] or not single.is_typed


def _rebuilding(name: str, kind: TypeInformation | None, stored: Mapping[str, Any]) -> Conversion:
    """The conversion of values that keep their type, as ``_reader`` reads them."""
    schema = stored.get("schema")
    if schema is None:
        return None
    kind = kind or recorded_kind(schema)
    try:
        return conversion(schema, kind, moved_classes(), rebuild=True, always=True)
    except IncompatibleTypeError as error:
        raise _refused(name, schema, recorded_type(kind), str(error)) from error


def _reader(stored: Mapping[str, Any]) -> ValueCodec:
    """The codec of entries as they were written, whatever dataclasses are by now."""
    schema, form = stored.get("schema"), stored["format"]
    return codec_of(
        None if schema is None else type_of_record(schema, "tuple"),
        lists=is_list_format(form),
        expires=bool(stored["ttl"]),
        unpickle=unpickler() if schema is None else stored_value(schema),
    )


def _require_same_text(name: str, stored: str, declared: str) -> None:
    """Check the type of a state of which a store has only the text.

    Raises:
        StateError: the declared type has another text.
    """
    if stored != declared:
        message = (
            f"state {name!r} was kept with values of type {stored} and is now declared with"
            f" {declared}. What is stored has no record of its fields, so it cannot be converted:"
            " run the program once with the old type, which records them, or give the new state"
            " another name"
        )
        raise StateError(message)


def _require_same_map_keys(name: str, stored: RecordedType | None, wanted: RecordedType) -> None:
    """Check that entries of a map state are found under keys of the declared type.

    Raises:
        StateError: they are stored under other bytes.
    """
    if stored in (None, wanted, ANYTHING):
        return
    assert stored is not None  # noqa: S101 - looked at above
    if stored in _INTEGERS and wanted in _INTEGERS[_INTEGERS.index(str(stored)) :]:
        return
    reason = f"map keys of type {text_of(stored)} cannot become {text_of(wanted)}"
    raise _refused(name, stored, wanted, reason)


def _refused(name: str, stored: RecordedType, wanted: RecordedType, reason: str) -> StateError:
    lines = side_by_side(describe_recorded(stored), describe_recorded(wanted))
    head = (
        f"state {name!r} was kept with values of type {text_of(stored)} and is now declared with"
        f" {text_of(wanted)}, which cannot be restored from them: {reason}"
    )
    advice = "Declare a type that can follow, or give the new state another name."
    return StateError("\n".join([head, *lines, advice]))


def side_by_side(stored: list[str], declared: list[str]) -> list[str]:
    """Return two texts as columns of a table."""
    left = ["stored", *stored]
    width = max(map(len, left))
    return [
        f"    {one:<{width}}  |  {other}".rstrip()
        for one, other in zip_longest(left, ["declared", *declared], fillvalue="")
    ]


def migrate(
    store: KeyValueStore,
    numbers: tuple[int, int],
    key_groups: tuple[int, int],
    name: str,
    convert: Callable[[bytes], bytes],
) -> None:
    """Convert all entries of a state in a store.

    Args:
        store: of the subtask.
        numbers: that of the state, and the one that its entries are to have.
        key_groups: of the subtask.
        name: the state's name, for messages.
        convert: makes the new content of an entry of the old one.

    Raises:
        StateError: an entry cannot be converted; names its key.
    """
    old, new = numbers
    entries = scan_state(store, old, key_groups)
    while batch := list(islice(entries, _BATCH)):
        converted = list(_converted(batch, name, convert))
        if old == new:
            store.write(converted)
        else:
            number = new.to_bytes(2, "big")
            moved = [(entry[:3] + number + entry[5:], content) for entry, content in converted]
            store.write(moved, [entry for entry, _ in batch])


def _converted(
    batch: list[tuple[bytes, bytes]], name: str, convert: Callable[[bytes], bytes]
) -> Iterator[tuple[bytes, bytes]]:
    for entry, content in batch:
        try:
            yield entry, convert(content)
        except StateError:
            raise
        except Exception as error:
            key = decode_key(key_and_rest(entry)[0])
            message = (
                f"state {name!r} of key {key!r} cannot be converted to the declared type:"
                f" {type(error).__name__}: {error}"
            )
            raise StateError(message) from error


def _recorded_classes(stored: RecordedType) -> dict[str, tuple[str, ...]]:
    """Return the fields of each dataclass and named tuple in a recorded type, by module and name.

    Those are left out whose class says how it is pickled and has these fields still: only the class
    can read what it wrote.
    """
    if isinstance(stored, str):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    if "class" in stored:
        names = tuple(field["name"] for field in stored["fields"])
        cls = class_called(stored["class"])
        if cls is None or record_fields(cls) != names or not pickles_itself(cls):
            found[stored["class"]] = names
    parts = chain(
        (stored[part] for part in ("key", "value", "element") if part in stored),
        (field["type"] for field in stored.get("fields", ())),
    )
    for part in parts:
        found |= _recorded_classes(part)
    return found
