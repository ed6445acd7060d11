"""Write all state of a checkpoint into the Parquet files of a canonical savepoint."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.checkpoint.canonical import (
    COLUMNS_VERSION,
    KEYED,
    METADATA_KEY,
    OPERATOR,
    SavepointFiles,
    describe_manifest,
    new_writer,
    write_positions,
)
from millstream.checkpoint.model import blocks_of, difference
from millstream.checkpoint.savepoint import SavepointFormat, SavepointFormatType
from millstream.errors import CorruptCheckpointError, StateError
from millstream.state.backend import open_store
from millstream.state.canonical.layout import NO_ENTRIES, SectionLayout
from millstream.state.canonical.operator_rows import OperatorLayout
from millstream.state.local_copies import directory_name
from millstream.state.operator_state import StateReader
from millstream.state.reader import scan_section
from millstream.state.registry import (
    EVENT_TIME,
    META,
    PROCESSING_TIME,
    SWEPT,
    is_section,
    read_metadata,
    section_of,
)
from millstream.state.rescale import name_in, own_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.parquet import ParquetWriter

    from millstream.checkpoint.model import Manifest, OperatorAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import OperatorStateHandle
    from millstream.state.canonical.layout import Entries
    from millstream.state.registry import Section


#: Of stored entries that are rows of one batch.
_BATCH_BYTES: Final = 32 << 20
_BATCH_ENTRIES: Final = 32_768


def write_canonical(
    target: CheckpointStorage, source: CheckpointStorage, manifest: Manifest
) -> dict[str, Any]:
    """Write the state of a checkpoint as Parquet files.

    Args:
        target: the storage of the savepoint.
        source: of the checkpoint.
        manifest: the checkpoint.

    Returns:
        What ``savepoint.json`` is to have.

    Raises:
        CorruptCheckpointError: a file of the checkpoint is damaged.
        FileNotFoundError: one is missing; the job may have deleted it meanwhile.
        StateError: an entry cannot be read.
    """
    try:
        return _written(target, source, manifest)
    except CorruptCheckpointError as error:
        for file in manifest.files():
            if not source.exists(file["remote"]):
                message = f"{source.location} has no {file['remote']}"
                raise FileNotFoundError(message) from error
        raise


def _written(
    target: CheckpointStorage, source: CheckpointStorage, manifest: Manifest
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="millstream-savepoint-") as directory:
        work = Path(directory)
        (work / "files").mkdir()
        files = SavepointFiles(target, work / "files")
        stores: dict[str, dict[str, str]] = {}
        for uid, acks in manifest.operators.items():
            writer = _OperatorWriter(files, uid)
            writer.write_keyed(source, acks, work, manifest.started)
            writer.write_operator_states(source, acks)
            if writer.store_metadata:
                stores[uid] = {
                    name.hex(): value.hex() for name, value in writer.store_metadata.items()
                }
        for frames in manifest.in_flight:
            path = files.new_path()
            source.download(frames.file["remote"], path)
            # The savepoint has a digest of its own: it would vouch for what is damaged.
            reason = difference(blocks_of(path), frames.file)
            if reason is not None:
                message = f"{frames.file['remote']} in {source.location} is damaged: {reason}"
                raise CorruptCheckpointError(message)
            files.add(path, frames.file["remote"])
        write_positions(manifest, files)
    return {
        "files": files.described(),
        "stores": stores,
        "manifest": describe_manifest(manifest),
    }


CANONICAL: Final = SavepointFormat(SavepointFormatType.CANONICAL, write_canonical)


def file_of_section(uid: str, name: str) -> str:
    """The file of a section of keyed state."""
    if name.startswith("\0timers."):
        group, name = "timers", name.removeprefix("\0timers.")
    elif name.startswith("\0"):
        group, name = "internal", name[1:]
    else:
        group = "keyed"
    return f"state/{directory_name(uid)}/{group}/{directory_name(name)}.parquet"


def file_of_operator_state(uid: str, name: str) -> str:
    """The file of an operator state."""
    return f"state/{directory_name(uid)}/operator/{directory_name(name)}.parquet"


class _OperatorWriter:
    """Writes the state of one operator.

    Args:
        files: of the savepoint.
        uid: of the operator.
    """

    def __init__(self, files: SavepointFiles, uid: str) -> None:
        self._files = files
        self._uid = uid
        self._sections: dict[str, _SectionWriter] = {}
        #: What stores say of these, by the name of their entry.
        self._metadata: dict[bytes, dict[str, Any]] = {}
        #: What its stores say of themselves beside their sections; of several the highest counts.
        self.store_metadata: dict[bytes, bytes] = {}

    def write_keyed(
        self, source: CheckpointStorage, acks: list[OperatorAck], work: Path, started: int
    ) -> None:
        """Write every section of its stores, one after the other.

        Args:
            source: the storage of the checkpoint.
            acks: of its subtasks.
            work: a directory for copies of state files.
            started: when the checkpoint began, in milliseconds: what has expired by then, or by the
                watermark of the subtask, is left out.
        """
        for ack in acks:
            handle = ack.state
            if handle is None:
                continue
            first, stop = handle["key_groups"]
            store = open_store(
                handle["backend"],
                source,
                self._uid,
                ack.subtask,
                (first, stop),
                [handle],
                f"savepoint-{ack.subtask}",
                work,
            )
            with contextlib.closing(store):
                times = {PROCESSING_TIME: started, EVENT_TIME: ack.watermark}
                self._write_store(store, ack.subtask, times)
        for writer in self._sections.values():
            writer.close()

    def _write_store(self, store: KeyValueStore, subtask: int, times: dict[str, int]) -> None:
        known = self.store_metadata
        for entry, value in store.scan(META, b"N"):
            if not is_section(entry) and entry != SWEPT:
                known[entry] = max(value, known.get(entry, b""))
        for stored, meta in read_metadata(store).items():
            # Of what is declared otherwise here than in another subtask: as when it is rescaled.
            self._require_kind(stored, meta)
            entry = name_in(self._metadata, META + stored.encode(), meta)
            name = entry.removeprefix(META).decode()
            if entry not in self._metadata:
                self._metadata[entry] = meta
                writer = _SectionWriter(self._files, self._uid, section_of(name, meta), meta)
                self._sections[name] = writer
            section = section_of(stored, meta)
            self._sections[name].add(store, section, subtask, times.get(section.ttl_time or ""))

    def _require_kind(self, name: str, meta: dict[str, Any]) -> None:
        known = self._metadata.get(META + name.encode(), meta)
        if known["kind"] != meta["kind"]:
            message = (
                f"state {name!r} of operator {self._uid!r} has different kinds in the subtasks"
                f" of the checkpoint: {known['kind']} and {meta['kind']}"
            )
            raise StateError(message)

    def write_operator_states(self, source: CheckpointStorage, acks: list[OperatorAck]) -> None:
        """Write its list, union and broadcast states."""
        read = StateReader(source)
        found: dict[str, dict[int, list[bytes]]] = {}
        handles: dict[str, dict[int, OperatorStateHandle]] = {}
        for ack in acks:
            for name, (part,) in own_states(ack.operator_states).items():
                found.setdefault(name, {})[ack.subtask] = list(read(part))
                handles.setdefault(name, {})[ack.subtask] = part.handle
        for name, elements in found.items():
            own = list(handles[name].values())
            kind = own[-1].kind
            declared = next((handle.type for handle in reversed(own) if handle.type), "")
            layout = OperatorLayout(kind, handles=handles[name])
            table = layout.table(elements)
            meta = _metadata(
                self._uid, name, kind=f"{kind} operator state", type=declared, columns=layout.forms
            )
            file = file_of_operator_state(self._uid, name)
            table = table.replace_schema_metadata(meta)
            self._files.add_table(table, file, OPERATOR, self._uid, name)


def _metadata(uid: str, name: str, **more: Any) -> dict[bytes, bytes]:
    value = {"columns_version": COLUMNS_VERSION, "operator": uid, "state": name, **more}
    return {METADATA_KEY: json.dumps(value).encode()}


class _SectionWriter:
    """Writes one section of all subtasks into one file, in order of subtasks."""

    def __init__(
        self,
        files: SavepointFiles,
        uid: str,
        section: Section,
        meta: dict[str, Any],
    ) -> None:
        self._files = files
        self._uid = uid
        self._section = section
        self._meta = dict(meta)
        self._layout = SectionLayout(section)
        self._path = files.new_path()
        self._writer: ParquetWriter | None = None

    def add(
        self, store: KeyValueStore, section: Section, subtask: int, now: int | None = None
    ) -> None:
        """Write what a store has of the section, without what has expired.

        Args:
            store: of the subtask.
            section: as the store has it, maybe with another number.
            subtask: its number.
            now: the time of the checkpoint in the clock by which the state expires.
        """
        for entries in self._batches(store, section, now):
            if entries.stored:
                self._write(entries, subtask)

    def _batches(
        self, store: KeyValueStore, section: Section, now: int | None
    ) -> Iterator[Entries]:
        names: list[bytes] = []
        values: list[bytes] = []
        size = 0
        for name, value in scan_section(store, section):
            names.append(name)
            values.append(value)
            size += len(name) + len(value)
            if size >= _BATCH_BYTES or len(names) >= _BATCH_ENTRIES:
                yield self._layout.take_apart(names, values, now=now)
                names, values, size = [], [], 0
        if names:
            yield self._layout.take_apart(names, values, now=now)

    def _write(self, entries: Entries | None, subtask: int) -> None:
        if self._writer is None:
            self._layout.find_forms(entries or NO_ENTRIES)
            meta = {key: value for key, value in self._meta.items() if key != "index"}
            schema = self._layout.schema.with_metadata(
                _metadata(self._uid, self._section.name, section=meta, columns=self._layout.forms)
            )
            self._writer = new_writer(self._path, schema)
        if entries is not None:
            self._writer.write_batch(self._layout.batch(entries, subtask))

    def close(self) -> None:
        """Complete the file and add it to the savepoint; without entries it has no rows."""
        if self._writer is None:
            self._write(None, 0)
        assert self._writer is not None  # noqa: S101 - made above
        self._writer.close()
        name = self._section.name
        self._files.add(self._path, file_of_section(self._uid, name), KEYED, self._uid, name)
