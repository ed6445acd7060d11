"""Canonical savepoints: the manifest in ``savepoint.json``, everything else in Parquet files.

``state/canonical`` writes and reads the files of state; here are those of source positions and
committables, and the list of all files with their digests.  ``savepoint.json``, which is signed
where the checkpoints are, vouches for the files that it lists.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.checkpoint.model import (
    MANIFEST,
    SplitState,
    blocks_of,
    difference,
    digest_of,
)
from millstream.contracts.key_value_store import StateFile, StateHandle
from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError, UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyarrow.parquet import ParquetWriter

    from millstream.checkpoint.model import Manifest, OperatorAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage


#: Of a ``savepoint.json`` with a manifest in it.
CANONICAL_VERSION: Final = 2
#: Of the columns and metadata of all its Parquet files.
COLUMNS_VERSION: Final = 1
#: The key of JSON in the metadata of their schemas.
METADATA_KEY: Final = b"millstream"
#: Where the manifest says that state is not in a store, but in the Parquet files.
BACKEND: Final = "canonical"
POSITIONS: Final = "state/source-positions.parquet"
COMMITTABLES: Final = "state/committables.parquet"
COMPRESSION: Final = "zstd"
#: That are read at once.
_ROWS: Final = 16_384

_POSITIONS: Final = pa.schema(
    [
        ("source", pa.string()),
        ("split", pa.string()),
        ("position", pa.int64()),
        ("finished", pa.bool_()),
        ("watermark", pa.int64()),
        ("idle", pa.bool_()),
        ("records", pa.int64()),
        ("watermark_generator", pa.binary()),
    ]
)
_COMMITTABLES: Final = pa.schema(
    [("sink", pa.string()), ("subtask", pa.int32()), ("committable", pa.binary())]
)


#: Of a file: keyed state and timers, operator state, or neither.
KEYED: Final = "keyed"
OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of a canonical savepoint."""

    file: StateFile
    #: ``KEYED`` or ``OPERATOR``; empty: it holds no state of an operator.
    kind: str = ""
    #: Uid of the operator, and name of the state.
    operator: str = ""
    state: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what ``savepoint.json`` has under its name."""
        told = {"kind": self.kind, "operator": self.operator, "state": self.state}
        value = {"size": self.file["size"], "digest": self.file["digest"]}
        return {**value, **told} if self.kind else value

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> SavedFile:
        """Return the file of this name.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is described otherwise.
        """
        file = StateFile(
            local=name.rpartition("/")[2],
            remote=name,
            size=int(value["size"]),
            digest=str(value["digest"]),
        )
        kind, operator, state = (str(value.get(key, "")) for key in ("kind", "operator", "state"))
        return cls(file, kind, operator, state)


@dataclass(slots=True)
class SavepointFiles:
    """The Parquet files of a savepoint that is being written.

    Args:
        storage: of the savepoint.
        directory: for files until they are uploaded; on this machine.
    """

    storage: CheckpointStorage
    directory: Path
    #: By name.
    found: dict[str, SavedFile] = field(default_factory=dict)
    _count: int = 0

    def new_path(self) -> Path:
        """Return where to write a file that is to be added."""
        self._count += 1
        return self.directory / f"{self._count}.parquet"

    def add(
        self, path: Path, name: str, kind: str = "", operator: str = "", state: str = ""
    ) -> None:
        """Upload a file, which is then deleted here.

        Args:
            path: on this machine.
            name: in the savepoint.
            kind: ``KEYED`` or ``OPERATOR``; empty: it holds no state of an operator.
            operator: uid of the operator.
            state: the name of its state.
        """
        size, digest = digest_of(blocks_of(path))
        self.storage.upload(path, name)
        path.unlink()
        file = StateFile(local=path.name, remote=name, size=size, digest=digest)
        self.found[name] = SavedFile(file, kind, operator, state)
        crash_point("savepoint.file.after")

    def add_table(
        self, table: pa.Table, name: str, kind: str = "", operator: str = "", state: str = ""
    ) -> None:
        """Write a table as a file of the savepoint; see ``add``."""
        path = self.new_path()
        with new_writer(path, table.schema) as writer:
            writer.write_table(table)
        self.add(path, name, kind, operator, state)

    def described(self) -> dict[str, dict[str, Any]]:
        """Return what ``savepoint.json`` has of them."""
        return {name: file.to_json() for name, file in sorted(self.found.items())}


@dataclass(frozen=True, slots=True)
class CanonicalSavepoint:
    """A complete canonical savepoint, as ``savepoint.json`` describes it."""

    storage: CheckpointStorage
    #: Handles name the Parquet files, all subtasks the same; native state is made of them.
    manifest: Manifest
    files: dict[str, SavedFile]
    #: Operator -> name -> content of what its stores say of themselves, but for their sections.
    stores: dict[str, dict[bytes, bytes]]

    @classmethod
    def read(cls, storage: CheckpointStorage, description: Mapping[str, Any]) -> CanonicalSavepoint:
        """Read it; no state is read.

        Raises:
            CorruptCheckpointError: the description or the file of source positions is damaged.
        """
        where = storage.location
        try:
            files = {
                str(name): SavedFile.from_json(str(name), file)
                for name, file in description["files"].items()
            }
            manifest: Manifest = MANIFEST.read(description["manifest"])
            stores = {
                str(uid): {bytes.fromhex(name): bytes.fromhex(each) for name, each in one.items()}
                for uid, one in description["stores"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = (
                f"savepoint.json in {where} is damaged ({error!r}). Put the file back from a copy."
            )
            raise CorruptCheckpointError(message) from error
        found = cls(storage, manifest, files, stores)
        with tempfile.TemporaryDirectory(prefix="millstream-savepoint-") as directory:
            splits = _splits_of(read_table(found.local_file(POSITIONS, Path(directory))))
        for uid, some in splits.items():
            manifest.splits.setdefault(uid, {}).update(some)
        operators = {
            uid: [found._with_files(ack) for ack in acks]
            for uid, acks in manifest.operators.items()
        }
        return replace(found, manifest=replace(manifest, operators=operators))

    def of_operator(self, uid: str, kind: str) -> dict[str, SavedFile]:
        """The files of one kind of an operator, by name of the state."""
        return {
            file.state: file
            for _, file in sorted(self.files.items())
            if (file.operator, file.kind) == (uid, kind)
        }

    def _with_files(self, ack: OperatorAck) -> OperatorAck:
        keyed = [each.file for each in self.of_operator(ack.uid, KEYED).values()]
        own = self.of_operator(ack.uid, OPERATOR)
        state = ack.state and StateHandle(
            backend=BACKEND, id="", key_groups=ack.state["key_groups"], files=keyed
        )
        states = {
            name: replace(handle, file=own[name].file if name in own else None)
            for name, handle in ack.operator_states.items()
        }
        return replace(ack, state=state, operator_states=states)

    def local_file(self, name: str, directory: Path) -> Path:
        """Bring a file of the savepoint to this machine, verified.

        Raises:
            CorruptCheckpointError: it is missing or damaged.
        """
        where = self.storage.location
        file = self.files.get(name)
        if file is None:
            message = f"the savepoint {where} is damaged: savepoint.json does not list {name}"
            raise CorruptCheckpointError(message)
        path = directory / f"{len(list(directory.iterdir()))}-{file.file['local']}"
        try:
            self.storage.download(name, path)
        except FileNotFoundError:
            message = f"{name} in {where} is missing"
            raise CorruptCheckpointError(message) from None
        reason = difference(blocks_of(path), file.file)
        if reason is not None:
            message = f"{name} in {where} is damaged: {reason}"
            raise CorruptCheckpointError(message)
        return path


def describe_manifest(manifest: Manifest) -> dict[str, Any]:
    """The manifest for ``savepoint.json``: without what stands in Parquet files."""
    operators = {uid: [_described(ack) for ack in acks] for uid, acks in manifest.operators.items()}
    empty: dict[str, dict[str, SplitState]] = {uid: {} for uid in manifest.splits}
    value: dict[str, Any] = MANIFEST.write(replace(manifest, operators=operators, splits=empty))
    return value


def _described(ack: OperatorAck) -> OperatorAck:
    state = ack.state and StateHandle(
        backend=BACKEND, id="", key_groups=ack.state["key_groups"], files=[]
    )
    states = {
        name: replace(handle, inline=(), file=None) for name, handle in ack.operator_states.items()
    }
    return replace(ack, state=state, operator_states=states, committables=[])


def write_positions(manifest: Manifest, files: SavepointFiles) -> None:
    """Write source positions and committables."""
    rows = [
        {
            "source": uid,
            "split": split.split_id,
            "position": split.position,
            "finished": split.finished,
            "watermark": split.watermark,
            "idle": split.idle,
            "records": split.records,
            "watermark_generator": split.generator,
        }
        for uid, splits in manifest.splits.items()
        for split in splits.values()
    ]
    meta = {METADATA_KEY: f'{{"columns_version": {COLUMNS_VERSION}}}'.encode()}
    table = pa.Table.from_pylist(rows, schema=_POSITIONS.with_metadata(meta))
    files.add_table(table, POSITIONS)
    rows = [
        {"sink": uid, "subtask": ack.subtask, "committable": committable}
        for uid, acks in manifest.operators.items()
        for ack in acks
        for committable in ack.committables
    ]
    table = pa.Table.from_pylist(rows, schema=_COMMITTABLES.with_metadata(meta))
    files.add_table(table, COMMITTABLES)


def _splits_of(table: pa.Table) -> dict[str, dict[str, SplitState]]:
    found: dict[str, dict[str, SplitState]] = {}
    for row in table.to_pylist():
        uid, split = str(row["source"]), str(row["split"])
        found.setdefault(uid, {})[split] = SplitState(
            source_uid=uid,
            split_id=split,
            position=row["position"],
            finished=row["finished"],
            watermark=row["watermark"],
            idle=row["idle"],
            generator=row["watermark_generator"],
            records=row["records"],
        )
    return found


# Parquet takes half a second to import, which most jobs need not wait for.


def new_writer(path: Path, schema: pa.Schema) -> ParquetWriter:
    """Begin a Parquet file on this machine."""
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(path, schema, compression=COMPRESSION)


def batches_of(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file in order, some at a time."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=_ROWS)


def read_table(path: Path) -> pa.Table:
    """All rows of a Parquet file."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        return file.read()


def read_metadata(path: Path, name: str) -> dict[str, Any]:
    """Read what a Parquet file of a savepoint says of itself.

    Args:
        path: on this machine.
        name: in the savepoint, for messages.

    Raises:
        CorruptCheckpointError: it is none of a savepoint.
        UnknownFormatError: it is of another version.
    """
    from pyarrow.parquet import read_schema

    try:
        value: dict[str, Any] = json.loads(read_schema(path).metadata[METADATA_KEY])
        version = value["columns_version"]
    except (KeyError, TypeError, ValueError) as error:
        message = f"{name} of the savepoint has no description of its columns ({error!r})"
        raise CorruptCheckpointError(message) from error
    if version != COLUMNS_VERSION:
        message = (
            f"{name} of the savepoint has columns of version {version!r}; this release of"
            f" Millstream reads {COLUMNS_VERSION}. Start from it with the release that wrote it"
        )
        raise UnknownFormatError(message)
    return value
