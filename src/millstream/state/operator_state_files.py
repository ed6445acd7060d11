"""Operator state in a checkpoint: in the manifest if it is small, else in a file of its own.

What it is: writing what ``OperatorStates.snapshot`` gives, and reading it.  A file is an Arrow IPC
file with one binary column, ``element``, so that other programs can open it; each element is
pickled, of broadcast state as a pair of key and value.

What it is not: kept on the local disk.  It is read once, when a job is restored.

Read next: ``checkpoint/manifest_codec.py``, ``checkpoint/cleanup.py``.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.checkpoint.model import difference, digest_of
from millstream.contracts.key_value_store import StateFile
from millstream.contracts.operator import OperatorStateHandle
from millstream.crash_points import crash_point
from millstream.errors import UnknownFormatError
from millstream.state.operator_state import inline_handle, read_inline
from millstream.state.snapshot_files import damaged_checkpoint, directory_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.operator import StatePart
    from millstream.state.operator_state import StateContent

__all__ = [
    "INLINE_BYTES",
    "PendingStates",
    "StateReader",
    "prepare_states",
    "write_states",
]

#: The most that the elements of one state take in a manifest; Flink's is 20 KB for all of them.
INLINE_BYTES: Final = 8 << 10

_FORMAT_KEY: Final = b"millstream.operator-state.format"
_FORMAT: Final = b"1"
_COLUMN: Final = "element"


def write_states(
    states: Mapping[str, StateContent | OperatorStateHandle], storage: CheckpointStorage, uid: str
) -> dict[str, OperatorStateHandle]:
    """Make the states of an operator's subtask durable, and say where they are.

    Args:
        states: what ``OperatorStates.snapshot`` gave.
        storage: of the checkpoint.
        uid: of the operator.
    """
    pending = prepare_states(states, uid)
    pending.finish(storage)
    return pending.handles


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
    """The first step of ``write_states``, behind which the states may change.

    ``OperatorStates.written`` can be told of the handles at once.

    Args:
        states: what ``OperatorStates.snapshot`` gave.
        uid: of the operator.
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
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        column = pa.array(content.elements, type=pa.large_binary())
        writer.write_batch(pa.record_batch([column], schema=schema))
    stored: bytes = sink.getvalue().to_pybytes()
    size, digest = digest_of([stored])
    # Named by chance, as all state files: no other attempt, and no other state, writes this one.
    local = f"{uuid.uuid4().hex}-operator.arrow"
    remote = f"state/{directory_name(uid)}/{local}"
    files[remote] = stored
    file = StateFile(local=local, remote=remote, size=size, digest=digest)
    count = len(content.elements)
    return OperatorStateHandle(content.kind, count, (), file, content.type, content.is_copy)


class StateReader:
    """Reads elements out of the checkpoint, each file once."""

    def __init__(self, storage: CheckpointStorage) -> None:
        """Read from ``storage``; nothing is read yet."""
        self._storage = storage
        self._files: dict[str, pa.ChunkedArray] = {}

    def __call__(self, part: StatePart) -> Sequence[bytes]:
        """The elements of a part, each pickled.

        Raises:
            CorruptCheckpointError: the file is missing or is not what was written.
            UnknownFormatError: it was written in another format.
        """
        file = part.handle.file
        if file is None:
            return read_inline(part)
        name = file["remote"]
        if name not in self._files:
            self._files[name] = self._content(file)
        found: list[bytes] = self._files[name].slice(part.first, part.stop - part.first).to_pylist()
        return found

    def _content(self, file: StateFile) -> pa.ChunkedArray:
        name = file["remote"]
        try:
            stored = self._storage.read(name)
        except FileNotFoundError as error:
            raise damaged_checkpoint(self._storage, f"state file {name} is missing") from error
        reason = difference([stored], file)
        if reason is not None:
            raise damaged_checkpoint(self._storage, f"state file {name} is corrupt: {reason}")
        table = pa.ipc.open_file(pa.BufferReader(stored)).read_all()
        version = (table.schema.metadata or {}).get(_FORMAT_KEY)
        if version != _FORMAT:
            message = f"{name}: operator state of format {version!r}; known is {_FORMAT!r}"
            raise UnknownFormatError(message)
        return table.column(_COLUMN)
