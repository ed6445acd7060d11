"""Native state from a canonical savepoint, in the checkpoint directory of the job that starts."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.checkpoint.canonical import (
    KEYED,
    OPERATOR,
    batches_of,
    read_metadata,
    read_table,
)
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.savepoint import read_canonical
from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError
from millstream.state.backend import open_store
from millstream.state.canonical.layout import SectionLayout
from millstream.state.canonical.operator_rows import OperatorLayout
from millstream.state.canonical.value_form import OBJECT, ValueForm
from millstream.state.local_copies import directory_name
from millstream.state.operator_state import StateContent, prepare_states
from millstream.state.registry import META, section_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.checkpoint.canonical import CanonicalSavepoint
    from millstream.checkpoint.model import Manifest, OperatorAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore, StateHandle
    from millstream.contracts.operator import OperatorStateHandle
    from millstream.state.registry import Section


def restore_canonical(
    saved: CanonicalSavepoint, storage: CheckpointStorage, backend: str
) -> Manifest:
    """Write the state of a savepoint into a checkpoint directory, for a state backend.

    Args:
        saved: the savepoint.
        storage: of the checkpoints of the job that starts.
        backend: of that job.

    Returns:
        The checkpoint with all of its state.

    Raises:
        CorruptCheckpointError: a file is missing or damaged.
        UnknownFormatError: a file is of a later version.
    """
    operators = {}
    with tempfile.TemporaryDirectory(prefix="millstream-restore-") as directory:
        for uid, acks in saved.manifest.operators.items():
            work = Path(directory) / directory_name(uid)
            (work / "files").mkdir(parents=True)
            keyed = _restored_keyed(saved, uid, acks, storage, backend, work)
            states = _restored_states(saved, uid, acks, storage, work)
            operators[uid] = [
                replace(ack, state=keyed.get(ack.subtask), operator_states=states[ack.subtask])
                for ack in acks
            ]
        for frames in saved.manifest.in_flight:
            path = saved.local_file(frames.file["remote"], Path(directory))
            with contextlib.suppress(FileExistsError):
                storage.upload(path, frames.file["remote"])
    return replace(saved.manifest, operators=operators)


@contextlib.contextmanager
def native_state(
    storage: CheckpointStorage, manifest: Manifest
) -> Iterator[tuple[CheckpointStorage, Manifest]]:
    """Give storage and manifest of native state of a checkpoint or a savepoint.

    Args:
        storage: of the checkpoint or savepoint.
        manifest: the checkpoint.

    Yields:
        What was given; of a canonical savepoint, a temporary copy of it.
    """
    saved = read_canonical(storage)
    if saved is None:
        yield storage, manifest
        return
    with tempfile.TemporaryDirectory(prefix="millstream-native-") as directory:
        copy = LocalStorage(directory, fsync=False)
        yield copy, restore_canonical(saved, copy, "hashmap")


@dataclass(frozen=True, slots=True)
class StateFileContent:
    """A Parquet file of a section, on this machine."""

    path: Path
    section: Section
    #: What the store is to say of it, but for its number.
    meta: dict[str, Any]
    forms: dict[str, ValueForm]

    @classmethod
    def open(cls, path: Path, name: str) -> StateFileContent:
        """Read its metadata.

        Raises:
            CorruptCheckpointError, UnknownFormatError: it cannot be used.
        """
        value = read_metadata(path, name)
        meta = dict(value["section"])
        section = section_of(str(value["state"]), {**meta, "index": 0})
        return cls(path, section, meta, forms_of(value))

    def layout(self, max_parallelism: int) -> SectionLayout:
        """Return what makes entries of its rows."""
        return SectionLayout(self.section, max_parallelism, self.forms)


def forms_of(metadata: dict[str, Any]) -> dict[str, ValueForm]:
    """The forms of columns that a file names."""
    return {
        name: OBJECT if form["kind"] == "stored" else ValueForm.from_json(form)
        for name, form in metadata["columns"].items()
    }


def _restored_keyed(
    saved: CanonicalSavepoint,
    uid: str,
    acks: list[OperatorAck],
    storage: CheckpointStorage,
    backend: str,
    work: Path,
) -> dict[int, StateHandle]:
    """Subtask -> its keyed state."""
    groups: dict[int, tuple[int, int]] = {}
    for ack in acks:
        if ack.state is not None:
            first, stop = ack.state["key_groups"]
            groups[ack.subtask] = first, stop
    if not groups:
        return {}
    with contextlib.ExitStack() as stack:
        stores = {}
        for subtask, held in groups.items():
            store = open_store(backend, storage, uid, subtask, held, [], f"start-{subtask}", work)
            stack.callback(store.close)
            stores[subtask] = store
        target = Stores(stores, groups)
        target.write_all(list(saved.stores.get(uid, {}).items()))
        for index, file in enumerate(saved.of_operator(uid, KEYED).values()):
            name = file.file["remote"]
            path = saved.local_file(name, work / "files")
            content = StateFileContent.open(path, name)
            meta = json.dumps({**content.meta, "index": index}).encode()
            target.write_all([(META + content.section.name.encode(), meta)])
            layout = content.layout(max(stop for _, stop in groups.values()))
            entries = layout.entries(batches_of(path), index)
            target.distribute(entries, by_subtask=layout.is_chunked)
            path.unlink()
        handles = {}
        for subtask, store in stores.items():
            handles[subtask] = store.snapshot()
            crash_point("savepoint.copy.after")
    return handles


class Stores:
    """The stores of all subtasks of an operator, which are filled together."""

    def __init__(
        self, stores: dict[int, KeyValueStore], groups: dict[int, tuple[int, int]]
    ) -> None:
        self._stores = stores
        #: Key group -> subtask.
        self._subtasks = {
            group: subtask for subtask, held in groups.items() for group in range(*held)
        }

    def write_all(self, puts: list[tuple[bytes, bytes]]) -> None:
        """Write the same into every store."""
        for store in self._stores.values():
            store.write(puts)

    def distribute(
        self,
        entries: Iterable[tuple[list[int], list[bytes], list[bytes]]],
        *,
        by_subtask: bool,
    ) -> None:
        """Write each entry where its key group, or its subtask, is.

        Args:
            entries: as ``SectionLayout.entries`` gives them.
            by_subtask: they come with subtasks.

        Raises:
            CorruptCheckpointError: there is no such subtask.
        """
        for places, names, values in entries:
            subtasks = places if by_subtask else [self._subtasks[place] for place in places]
            for subtask in sorted(set(subtasks)):
                store = self._stores.get(subtask)
                if store is None:
                    message = (
                        f"the savepoint has state of subtask {subtask}, which it does not list"
                    )
                    raise CorruptCheckpointError(message)
                own = [each == subtask for each in subtasks]
                store.write(compress(zip(names, values, strict=True), own))


def _restored_states(
    saved: CanonicalSavepoint,
    uid: str,
    acks: list[OperatorAck],
    storage: CheckpointStorage,
    work: Path,
) -> dict[int, dict[str, OperatorStateHandle]]:
    """Subtask -> its operator states."""
    found: dict[int, dict[str, OperatorStateHandle]] = {ack.subtask: {} for ack in acks}
    elements: dict[str, dict[int | None, list[bytes]]] = {}
    for ack in acks:
        contents = {}
        for name, handle in ack.operator_states.items():
            if name not in elements:
                handles = {
                    each.subtask: each.operator_states[name]
                    for each in acks
                    if name in each.operator_states
                }
                elements[name] = read_operator_state(saved, uid, name, handles, work / "files")
            own = elements[name].get(ack.subtask, elements[name].get(None, []))
            if len(own) != handle.count:
                message = (
                    f"the savepoint {saved.storage.location} is damaged: state {name!r} of operator"
                    f" {uid!r} has {len(own)} elements in subtask {ack.subtask}, not {handle.count}"
                )
                raise CorruptCheckpointError(message)
            contents[name] = StateContent(
                handle.kind, handle.type, tuple(own), handle.is_copy, handle.schemas
            )
        prepared = prepare_states(contents, uid)
        prepared.finish(storage)
        found[ack.subtask] = prepared.handles
    return found


def read_operator_state(
    saved: CanonicalSavepoint,
    uid: str,
    name: str,
    handles: dict[int, OperatorStateHandle],
    directory: Path,
) -> dict[int | None, list[bytes]]:
    """Read the elements of an operator state by subtask; None: of all subtasks.

    Args:
        saved: the savepoint.
        uid: of the operator.
        name: of the state.
        handles: subtask -> what is to have the elements, in the encoding of their recorded type.
        directory: for a copy of the file.

    Raises:
        CorruptCheckpointError: the file is missing or damaged.
    """
    saved_file = saved.of_operator(uid, OPERATOR).get(name)
    if saved_file is None:
        message = (
            f"the savepoint {saved.storage.location} is damaged: it has no file of state {name!r}"
            f" of operator {uid!r}"
        )
        raise CorruptCheckpointError(message)
    file = saved_file.file["remote"]
    path = saved.local_file(file, directory)
    metadata = read_metadata(path, file)
    kind = next(iter(handles.values())).kind
    layout = OperatorLayout(kind, forms_of(metadata), handles)
    found = layout.elements(read_table(path))
    path.unlink()
    return found
