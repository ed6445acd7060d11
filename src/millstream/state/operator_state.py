"""The operator states of one subtask: lists and maps in memory between two checkpoints.

A state that did not change since it was read or written is not written again: the checkpoint refers
to the same file as the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pyarrow as pa

from millstream.contracts.operator import (
    OperatorStateHandle,
    OperatorStateKind,
    StatePart,
    describe_type,
)
from millstream.crash_points import crash_point
from millstream.errors import StateError
from millstream.state.local_copies import directory_name, read_table, stored_table
from millstream.state.migration import stored_value, value_conversion
from millstream.state.registry import declared_schemas, recorded_kind
from millstream.state.serializers import moved_classes, unpickler
from millstream.state.value_codec import codec_of, entry_codec, pickled
from millstream.types.pickling import dumps
from millstream.types.recorded_types import type_of_record
from millstream.types.type_information import TypeInformation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.state.value_codec import ValueCodec


@dataclass(frozen=True, slots=True)
class StateContent:
    """What is to be written of one state."""

    kind: OperatorStateKind
    type: str
    #: As the handle has them.
    elements: tuple[bytes, ...]
    is_copy: bool = False
    schemas: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Named:
    """What all states have; the content is a list, or a dict of broadcast state."""

    name: str
    kind: OperatorStateKind
    type: str
    #: Where the checkpoint has exactly this; None once it was changed.
    handle: OperatorStateHandle | None = None
    #: The declared types as they are recorded.
    schemas: dict[str, Any] = field(default_factory=dict)
    #: Writes elements of a recorded type; else they are pickled.
    encode: Callable[[Any], bytes] = dumps

    def elements(self) -> Iterable[Any]:
        raise NotImplementedError

    def load(self, elements: Iterable[Any]) -> None:
        raise NotImplementedError


@dataclass(slots=True)
class _List(_Named):
    _elements: list[Any] = field(default_factory=list)

    def elements(self) -> Iterable[Any]:
        return self._elements

    def load(self, elements: Iterable[Any]) -> None:
        self._elements = list(elements)

    def get(self) -> list[Any]:
        return list(self._elements)

    def add(self, element: object) -> None:
        self.handle = None
        self._elements.append(element)

    def update(self, elements: Iterable[object]) -> None:
        self.handle = None
        self._elements = list(elements)

    def clear(self) -> None:
        self.update(())


@dataclass(slots=True)
class _Broadcast(_Named):
    _entries: dict[Any, Any] = field(default_factory=dict)

    def elements(self) -> Iterable[Any]:
        return self._entries.items()

    def load(self, elements: Iterable[Any]) -> None:
        self._entries = dict(elements)

    def get(self, key: Any) -> Any:
        return self._entries.get(key)

    def put(self, key: Any, value: Any) -> None:
        self.handle = None
        self._entries[key] = value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        self.handle = None
        self._entries.update(entries)

    def remove(self, key: Any) -> None:
        if key in self._entries:
            self.handle = None
            del self._entries[key]

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self._entries.items()))

    def clear(self) -> None:
        if self._entries:
            self.handle = None
            self._entries = {}


_S = TypeVar("_S", bound=_Named)


class OperatorStates:
    """The operator states of one subtask."""

    def __init__(self, owner: str = "the operator") -> None:
        """Hold no state yet.

        Args:
            owner: whose they are, for messages.
        """
        self._owner = owner
        self._states: dict[str, _Named] = {}
        #: What the checkpoint has for this subtask, of the names that nobody asked for yet.
        self._unclaimed: dict[str, list[StatePart]] = {}
        self._read: Callable[[StatePart], Sequence[bytes]] = read_inline
        #: Whether nothing came behind the last snapshot: what is in memory is what it has.
        self._is_written = False

    # For operators.

    def list_state(self, name: str, type_info: TypeInformation | None = None) -> _List:
        """Return the list whose elements are dealt out at another parallelism.

        Raises:
            StateError: the name is taken by another kind or type of state; as for all of them.
        """
        return self._claim(_List, name, OperatorStateKind.LIST, type_info)

    def union_list_state(self, name: str, type_info: TypeInformation | None = None) -> _List:
        """Return the list of which every subtask gets the elements of all."""
        return self._claim(_List, name, OperatorStateKind.UNION, type_info)

    def broadcast_state(
        self,
        name: str,
        key_type: TypeInformation | None = None,
        value_type: TypeInformation | None = None,
    ) -> _Broadcast:
        """Return the map that is the same in all subtasks."""
        return self._claim(_Broadcast, name, OperatorStateKind.BROADCAST, value_type, key_type)

    def _claim(
        self,
        form: type[_S],
        name: str,
        kind: OperatorStateKind,
        value_type: TypeInformation | None,
        key_type: TypeInformation | None = None,
    ) -> _S:
        told = [each for each in map(describe_type, (key_type, value_type)) if each is not None]
        declared = " -> ".join(told)
        schemas = declared_schemas(value_type, key_type) if declared else {}
        known = self._states.get(name)
        if known is None:
            wanted = {"type": declared, **schemas}
            known = self._states[name] = self._made(form, name, kind, value_type, wanted)
        self._check(known, kind, declared)
        known.type = declared or known.type
        if schemas and known.schemas != schemas:
            known.schemas, known.handle = schemas, None
        if schemas or known.schemas:
            known.encode = self._codec_of(known, value_type).encode
        return cast("_S", known)

    def _codec_of(self, state: _Named | OperatorStateHandle, value_type: object) -> ValueCodec:
        """The codec of elements; as the program declares values, or else as they are recorded."""
        try:
            return element_codec(state.kind, state.schemas, value_type)
        except StateError as error:
            message = f"{self._owner}: {error}"
            raise StateError(message) from error

    def _made(
        self,
        form: type[_Named],
        name: str,
        kind: OperatorStateKind,
        value_type: object,
        wanted: dict[str, Any],
    ) -> _Named:
        """A state with what the checkpoint has of it, as the program declares it."""
        parts = self._unclaimed.pop(name, [])
        if not parts:
            return form(name, kind, "")
        handle = parts[0].handle
        made = form(name, handle.kind, "" if wanted["type"] else handle.type)
        made.schemas = handle.schemas
        self._check(made, kind, "")  # before its elements are taken for what they are not
        values: list[Any] = []
        for part in parts:
            read = self._reader(name, value_type, part.handle, wanted)
            values += map(read, self._read(part))
        made.load(values)
        only = _only(parts)
        # From now on it is the subtask's own.  Classes that have moved are written by their new
        # names, so that the next run needs no option.
        made.handle = None if moved_classes() else only and replace(only, is_copy=False)
        return made

    def _reader(
        self, name: str, value_type: object, handle: OperatorStateHandle, wanted: dict[str, Any]
    ) -> Callable[[bytes], Any]:
        """What reads the elements of a handle as the declared type has them."""
        if not wanted["type"]:
            return self._codec_of(handle, None).decode
        stored = {"type": handle.type, **handle.schemas}
        try:
            convert = value_conversion(name, value_type, stored, wanted)
        except StateError as error:
            message = f"{self._owner}: {error}"
            raise StateError(message) from error
        if convert is None:
            return self._codec_of(handle, value_type).decode
        schema, is_entry = handle.schemas["schema"], handle.kind is OperatorStateKind.BROADCAST
        kind, unpickle = type_of_record(schema, "tuple"), stored_value(schema)
        key_type = _key_type(handle.schemas)
        codec = (
            entry_codec(key_type, kind, unpickle) if is_entry else codec_of(kind, unpickle=unpickle)
        )
        read = codec.decode
        declared = element_codec(handle.kind, wanted, value_type)

        def converted(element: bytes) -> Any:
            value = read(element)
            made = _with_value(convert, value) if is_entry else convert(value)
            return declared.decode(declared.encode(made))  # without stand-ins

        return converted

    def _check(self, known: _Named, kind: OperatorStateKind, declared: str) -> None:
        if known.kind is not kind:
            message = (
                f"{self._owner}: state {known.name!r} is kept as {known.kind.label} and is now"
                f" asked for as {kind.label}; give the new state another name"
            )
            raise StateError(message)
        if declared and known.type and declared != known.type:
            message = (
                f"{self._owner}: state {known.name!r} was kept with values of type {known.type} and"
                f" is now declared with {declared}; declare the old type, or give the new state"
                " another name"
            )
            raise StateError(message)

    # For the runtime.

    @property
    def unclaimed(self) -> list[str]:
        """Names of what the checkpoint has for this subtask that nobody asked for."""
        return list(self._unclaimed)

    def restore(
        self,
        parts: Mapping[str, Sequence[StatePart]],
        read: Callable[[StatePart], Sequence[bytes]] | None = None,
    ) -> None:
        """Go on from what a checkpoint has for this subtask.

        What is in memory stays there if it was written to this very checkpoint and not used since.
        An epoch that failed in another task has used it: values may have been changed in place, so
        they are read again.

        Args:
            parts: by name.
            read: reads the elements of a part; left out, none of them is in a file.
        """
        self._read = read or read_inline
        self._states = {
            name: state
            for name, state in self._states.items()
            if self._is_written and state.handle == (_only(parts.get(name, ())) or _NOWHERE)
        }
        self._is_written = False
        self._unclaimed = {
            name: list(some) for name, some in parts.items() if name not in self._states
        }

    def restore_elements(self, states: Mapping[str, tuple[str, Sequence[bytes]]]) -> None:
        """Go on from ``elements``: what belongs to a source split, whose state lies with it.

        There may be many splits in an epoch, so the states that are there are filled anew instead
        of being made anew.
        """
        self._read = read_inline
        self._is_written = False
        self._unclaimed = {}
        for name, state in self._states.items():
            if name not in states:
                state.load(())
        for name, (kind, elements) in states.items():
            known = self._states.get(name)
            if known is not None and known.kind == kind:
                known.handle = None
                known.load(map(unpickler(), elements))
            else:
                self._states.pop(name, None)
                content = StateContent(OperatorStateKind(kind), "", tuple(elements))
                self._unclaimed[name] = [StatePart.whole(inline_handle(content))]

    def elements(self) -> dict[str, tuple[str, list[bytes]]]:
        """Kind and pickled elements by name; without declared types, which are the operator's."""
        found = {
            name: (str(parts[0].handle.kind), self._pickled(parts))
            for name, parts in self._unclaimed.items()
        }
        for name, state in self._states.items():
            found[name] = (str(state.kind), list(map(dumps, state.elements())))
        return found

    def snapshot(self) -> dict[str, StateContent | OperatorStateHandle]:
        """What a checkpoint is to have, by name: content to be written, or where it is already."""
        found: dict[str, StateContent | OperatorStateHandle] = {}
        for name, parts in self._unclaimed.items():
            found[name] = _only(parts) or self._content_of(parts)
        for name, state in self._states.items():
            elements = () if state.handle else tuple(map(state.encode, state.elements()))
            found[name] = state.handle or StateContent(
                state.kind, state.type, elements, schemas=state.schemas
            )
        return found

    def _content_of(self, parts: Sequence[StatePart]) -> StateContent:
        """What nobody asked for, as one."""
        handle = parts[0].handle
        elements = tuple(element for part in parts for element in self._read(part))
        if any(part.handle.schemas != handle.schemas for part in parts):
            elements = tuple(self._pickled(parts))  # which can be read as of any type
        return StateContent(handle.kind, handle.type, elements, handle.is_copy, handle.schemas)

    def _pickled(self, parts: Sequence[StatePart]) -> list[bytes]:
        """The elements of some parts, each pickled."""
        found: list[bytes] = []
        for part in parts:
            elements = self._read(part)
            if part.handle.schemas:
                decode = self._codec_of(part.handle, None).decode
                elements = [dumps(decode(element)) for element in elements]
            found += elements
        return found

    def written(self, handles: Mapping[str, OperatorStateHandle]) -> None:
        """Remember where the last snapshot lies; nothing was changed since it was taken."""
        self._is_written = True
        for name, handle in handles.items():
            if name in self._states:
                self._states[name].handle = handle
            else:
                self._unclaimed[name] = [StatePart.whole(handle)]


def element_codec(
    kind: OperatorStateKind, schemas: Mapping[str, Any], declared: object = None
) -> ValueCodec:
    """Return the codec of the elements of a state, for a program.

    Args:
        kind: of the state.
        schemas: recorded types of its values and keys.
        declared: the type of values that the program declares; else it is the recorded one.

    Raises:
        StateError: only a serializer that is not declared reads the values.
    """
    schema = schemas.get("schema")
    if schema is None:
        return pickled(unpickler())
    value_type = declared if isinstance(declared, TypeInformation) else recorded_kind(schema)
    if kind is OperatorStateKind.BROADCAST:
        return entry_codec(_key_type(schemas), value_type, unpickler())
    return codec_of(value_type, unpickle=unpickler())


def _key_type(schemas: Mapping[str, Any]) -> TypeInformation | None:
    schema = schemas.get("key_schema")
    return None if schema is None else recorded_kind(schema)


def _with_value(convert: Callable[[Any], Any], entry: tuple[Any, Any]) -> tuple[Any, Any]:
    key, value = entry
    return key, convert(value)


#: Equal to no handle, nor to the lack of one.
_NOWHERE: Final = object()


def read_inline(part: StatePart) -> Sequence[bytes]:
    """The elements of a part that is in no file."""
    return part.handle.inline[part.first : part.stop]


def inline_handle(content: StateContent) -> OperatorStateHandle:
    """A handle that has the elements in it, however many they are."""
    count = len(content.elements)
    told = (content.type, content.is_copy, content.schemas)
    return OperatorStateHandle(content.kind, count, content.elements, None, *told)


def _only(parts: Sequence[StatePart]) -> OperatorStateHandle | None:
    """The handle of which this is all, if there is one."""
    return parts[0].handle if len(parts) == 1 and parts[0].is_whole else None


#: The most that the elements of one state take in a manifest; Flink's is 20 KB for all of them.
INLINE_BYTES: Final = 8 << 10

_FORMAT_KEY: Final = b"millstream.operator-state.format"
_FORMAT: Final = b"1"
_COLUMN: Final = "element"


@dataclass(frozen=True, slots=True)
class PendingStates:
    """States whose content is fixed, of which files are not in the checkpoint storage yet.

    ``finish`` is called in any case: later snapshots name the same files if nothing changed.
    """

    #: Where the states are to lie, by name.
    handles: dict[str, OperatorStateHandle]
    #: Name in the storage -> content.
    files: dict[str, bytes]

    def finish(self, storage: CheckpointStorage) -> None:
        """Write the files; any thread may, while the states change."""
        for name, content in self.files.items():
            crash_point("state.upload.before")
            storage.write(name, content)
            crash_point("state.upload.after")


def prepare_states(
    states: Mapping[str, StateContent | OperatorStateHandle], uid: str
) -> PendingStates:
    """Say where the states of an operator's subtask are to be; behind it they may change.

    ``OperatorStates.written`` can be told of the handles at once.
    """
    files: dict[str, bytes] = {}
    handles = {
        name: state if isinstance(state, OperatorStateHandle) else _prepared(state, uid, files)
        for name, state in states.items()
    }
    return PendingStates(handles, files)


def _prepared(content: StateContent, uid: str, files: dict[str, bytes]) -> OperatorStateHandle:
    if sum(map(len, content.elements)) <= INLINE_BYTES:
        return inline_handle(content)
    schema = pa.schema([(_COLUMN, pa.large_binary())], metadata={_FORMAT_KEY: _FORMAT})
    column = pa.array(content.elements, type=pa.large_binary())
    batch = pa.record_batch([column], schema=schema)
    file, stored = stored_table(batch, f"state/{directory_name(uid)}", "operator")
    files[file["remote"]] = stored
    count = len(content.elements)
    told = (content.type, content.is_copy, content.schemas)
    return OperatorStateHandle(content.kind, count, (), file, *told)


class StateReader:
    """Reads elements out of the checkpoint, each file once."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self._storage = storage
        self._files: dict[str, pa.ChunkedArray] = {}

    def __call__(self, part: StatePart) -> Sequence[bytes]:
        """The elements of a part, as they are stored.

        Raises:
            CorruptCheckpointError: the file is missing or is not what was written.
            UnknownFormatError: it was written in another format.
        """
        file = part.handle.file
        if file is None:
            return read_inline(part)
        name = file["remote"]
        if name not in self._files:
            table = read_table(self._storage, file, "operator state", _FORMAT_KEY, _FORMAT)
            self._files[name] = table.column(_COLUMN)
        found: list[bytes] = self._files[name].slice(part.first, part.stop - part.first).to_pylist()
        return found
