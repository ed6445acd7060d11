"""SavepointReader: the state of a savepoint or checkpoint as Arrow, pandas and Spark DataFrames."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from millstream.checkpoint.canonical import (
    KEYED,
    OPERATOR,
    POSITIONS,
    CanonicalSavepoint,
    read_metadata,
    read_table,
)
from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.savepoint import SavepointSettings, read_canonical
from millstream.contracts.operator import OperatorStateKind
from millstream.errors import CheckpointError, CorruptCheckpointError, StateError
from millstream.state.canonical.layout import NAMESPACE, OTHER, VALUE
from millstream.state.canonical.operator_rows import OperatorLayout
from millstream.state.canonical.restore import StateFileContent, forms_of, restore_canonical
from millstream.state.canonical.write import write_canonical
from millstream.state.reader import open_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from millstream.checkpoint.canonical import SavedFile
    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage


@dataclass(frozen=True, slots=True)
class StateInfo:
    """One state of a savepoint."""

    #: The uid of the operator.
    operator: str
    #: The name of the state; what operators keep for themselves begins with a null character.
    name: str
    #: "value", "list", "map", "timers", "broadcast state" and others.
    kind: str
    #: As it was declared; empty if it was not.
    type: str
    #: Rows: values, elements, map entries, timers.
    entries: int
    #: Of the Parquet file, in bytes.
    size: int


class StateTable:
    """The rows of one state.

    Args:
        table: as its file has them.
        content: of the file of a keyed state; None: of operator state, or of chunks of windows.
        layout: of operator state.
    """

    def __init__(
        self,
        table: pa.Table,
        content: StateFileContent | None = None,
        layout: OperatorLayout | None = None,
    ) -> None:
        self._table = table
        self._content = content
        self._layout = layout

    def to_arrow(self) -> pa.Table:
        """Return the rows, without columns that are empty because all values have a type."""
        table = self._table
        empty = [
            name
            for name in table.column_names
            if name.endswith((OTHER, NAMESPACE)) and table.column(name).null_count == table.num_rows
        ]
        return table.drop_columns(empty).replace_schema_metadata(None)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_spark(self, session: Any) -> Any:
        """Return the rows as a Spark DataFrame.

        Args:
            session: a SparkSession.
        """
        table = self.to_arrow()
        for at, field in enumerate(table.schema):
            if pa.types.is_time(field.type):  # a type that Spark does not have
                table = table.set_column(at, field.name, table.column(at).cast(pa.string()))
        rows = [tuple(row.values()) for row in table.to_pylist(maps_as_pydicts="strict")]
        return session.createDataFrame(rows, schema=_spark_schema(table.schema))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows with Python objects for keys and values, also for those that are pickled.

        Nothing of the program is imported: objects of its classes are stand-ins, which show names
        and fields.

        Raises:
            StateError: a key or a value cannot be read.
        """
        if self._content is not None:
            layout = self._content.layout(0)
            for batch in self._table.to_batches():
                yield from layout.readable_rows(batch)
        elif self._layout is not None:
            yield from self._layout.readable_rows(self._table)
        else:
            yield from self._table.to_pylist()

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._table.num_rows)


class TemporaryFiles:
    """What keeps temporary files until it is closed.

    Args:
        directory: of these files.
    """

    def __init__(self, directory: tempfile.TemporaryDirectory[str]) -> None:
        self._directory = directory

    def close(self) -> None:
        """Delete temporary files."""
        self._directory.cleanup()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete temporary files."""
        self.close()


def no_operator(uid: str, known: Iterable[str]) -> StateError:
    """Return the error for an operator that is not there."""
    names = ", ".join(map(repr, known)) or "none"
    return StateError(f"there is no operator with uid {uid!r}; there are: {names}")


def no_state(uid: str, name: str, known: Iterable[str]) -> StateError:
    """Return the error for a state that an operator has not."""
    names = ", ".join(map(repr, sorted(known))) or "none"
    return StateError(f"operator {uid!r} has no state {name!r}; there are: {names}")


class SavepointReader(TemporaryFiles):
    """Reads the state of a savepoint of any format, or of a retained checkpoint.

    Nothing of the program is imported, and nothing is changed.  Use ``read`` to make one; it keeps
    temporary files until it is closed.

    Args:
        saved: the savepoint in the canonical format.
        directory: for temporary files.
        job_name: of the job that wrote it.
        storage: what was opened, bound to the job.
    """

    def __init__(
        self,
        saved: CanonicalSavepoint,
        directory: tempfile.TemporaryDirectory[str],
        job_name: str,
        storage: CheckpointStorage,
    ) -> None:
        super().__init__(directory)
        #: In the canonical format.
        self.saved = saved
        self._paths: dict[str, Path] = {}
        #: Of native state, where it was needed.
        self._native: Manifest | None = None
        self.job_name = job_name
        #: The savepoint, or the checkpoint directory, itself.
        self.storage = storage

    @classmethod
    def read(
        cls, path: str | Path, *, checkpoint_id: int | None = None, key_file: str = ""
    ) -> Self:
        """Open a savepoint or a checkpoint directory.

        Args:
            path: of it.
            checkpoint_id: which checkpoint of a checkpoint directory; None: the newest.
            key_file: the key with which it is signed; empty: it is not.

        Raises:
            CheckpointError: there is none, or it is incomplete, damaged or of another version.
        """
        storage = SavepointSettings(key_file).storage(str(path).removesuffix("/savepoint.json"))
        if not storage.is_there():
            message = f"there is no savepoint and no checkpoint directory {storage.location}"
            raise CheckpointError(message)
        storage.check()
        identity = JobIdentity.load(storage)
        if identity is None:
            message = (
                f"{storage.location} is neither a savepoint nor the checkpoint directory of a job"
            )
            raise CheckpointError(message)
        manifest = inspect_checkpoint(storage, checkpoint_id).manifest
        directory = tempfile.TemporaryDirectory(prefix="millstream-state-")
        saved = read_canonical(storage)
        if saved is None:
            target = LocalStorage(Path(directory.name) / "converted", fsync=False)
            target.bind(identity.job_id)
            saved = CanonicalSavepoint.read(target, _converted(target, storage, manifest))
        (Path(directory.name) / "files").mkdir()
        return cls(saved, directory, identity.job_name, storage)

    @property
    def manifest(self) -> Manifest:
        """The checkpoint; its handles name the Parquet files."""
        return self.saved.manifest

    @property
    def checkpoint_id(self) -> int:
        """The id of the checkpoint that it is."""
        return self.manifest.epoch

    def operators(self) -> list[str]:
        """Return the uids of all operators."""
        return list(self.manifest.operators)

    def states(self, uid: str | None = None) -> list[StateInfo]:
        """Return all states, of one operator or of all.

        Args:
            uid: of the operator; None: of all.

        Raises:
            StateError: there is no such operator.
        """
        if uid is not None and uid not in self.manifest.operators:
            raise self._unknown(uid)
        return [
            self._info(name, file)
            for name, file in sorted(self.saved.files.items())
            if file.kind and uid in (None, file.operator)
        ]

    def _info(self, name: str, file: SavedFile) -> StateInfo:
        from pyarrow.parquet import read_metadata as read_footer

        path = self._path(name)
        described = read_metadata(path, name)
        section = described.get("section", {})
        return StateInfo(
            file.operator,
            file.state,
            str(section.get("kind", described.get("kind", ""))),
            str(section.get("type") or described.get("type") or ""),
            read_footer(path).num_rows,
            file.file["size"],
        )

    def _path(self, name: str) -> Path:
        if name not in self._paths:
            self._paths[name] = self.saved.local_file(name, Path(self._directory.name) / "files")
        return self._paths[name]

    def read_keyed_state(self, uid: str, name: str) -> StateTable:
        """Read a keyed state: a row per value, list element or map entry.

        Args:
            uid: of the operator.
            name: of the state.

        Raises:
            StateError: there is none.
        """
        file = self._file(uid, KEYED, name)
        path = self._path(file)
        return StateTable(read_table(path), StateFileContent.open(path, file))

    def read_timers(self, uid: str, domain: str = "event") -> StateTable:
        """Read the timers of an operator: time in milliseconds, and key.

        Args:
            uid: of the operator.
            domain: "event" or "processing".
        """
        return self.read_keyed_state(uid, f"\0timers.{domain}")

    def read_window_state(self, uid: str, name: str | None = None) -> StateTable:
        """Read the content of windows: accumulators or elements.

        Args:
            uid: of the operator.
            name: of the state, with or without the null character before it; None: the first one.

        Raises:
            StateError: there is none.
        """
        own = self.saved.of_operator(uid, KEYED)
        found = [each for each in own if each.startswith("\0windows.")]
        wanted = found[:1] if name is None else [each for each in found if each.endswith(name)]
        if not wanted:
            raise self._unknown(uid, name or "windows")
        file = self._file(uid, KEYED, wanted[0])
        if StateFileContent.open(self._path(file), file).section.letter == "C":
            return StateTable(self._chunk_rows(uid, wanted[0]))
        return self.read_keyed_state(uid, wanted[0])

    def _chunk_rows(self, uid: str, name: str) -> pa.Table:
        """The rows of columnar chunks, those that do not count left out."""
        storage = LocalStorage(Path(self._directory.name) / "native", fsync=False)
        if self._native is None:
            self._native = restore_canonical(self.saved, storage, "hashmap")
        with open_state(storage, self._native, uid) as state:
            rows = [
                {
                    "key": each.key,
                    **({} if each.time is None else {"time": each.time}),
                    **({} if each.namespace is None else _bounds(each.namespace)),
                    **(each.value if isinstance(each.value, dict) else {VALUE: each.value}),
                }
                for each in state.entries(name)
            ]
        return pa.Table.from_pylist(rows)

    def read_state(self, uid: str, name: str) -> StateTable:
        """Read a state of any kind; content of windows as ``read_window_state`` gives it.

        Args:
            uid: of the operator.
            name: of the state, as ``states`` gives it.

        Raises:
            StateError: there is none.
        """
        if name in self.saved.of_operator(uid, OPERATOR):
            return self._operator_state(uid, name, None)
        if name.startswith("\0windows."):
            return self.read_window_state(uid, name)
        return self.read_keyed_state(uid, name)

    def read_list_state(self, uid: str, name: str) -> StateTable:
        """Read a list of operator state: subtask, position and value."""
        return self._operator_state(uid, name, OperatorStateKind.LIST)

    def read_union_state(self, uid: str, name: str) -> StateTable:
        """Read a union list of operator state: subtask, position and value."""
        return self._operator_state(uid, name, OperatorStateKind.UNION)

    def read_broadcast_state(self, uid: str, name: str) -> StateTable:
        """Read a broadcast state: key and value; the subtask is null if all have the same."""
        return self._operator_state(uid, name, OperatorStateKind.BROADCAST)

    def _operator_state(self, uid: str, name: str, kind: OperatorStateKind | None) -> StateTable:
        file = self._file(uid, OPERATOR, name)
        path = self._path(file)
        described = read_metadata(path, file)
        found = OperatorStateKind(str(described["kind"]).partition(" ")[0])
        if kind not in (None, found):
            message = f"state {name!r} of operator {uid!r} is {found} state, not {kind} state"
            raise StateError(message)
        acks = self.saved.manifest.operators[uid]
        handles = {
            ack.subtask: ack.operator_states[name] for ack in acks if name in ack.operator_states
        }
        layout = OperatorLayout(found, forms_of(described), handles)
        return StateTable(read_table(path), layout=layout)

    def read_source_positions(self) -> StateTable:
        """Read where the splits of all sources stand."""
        return StateTable(read_table(self._path(POSITIONS)))

    def _file(self, uid: str, kind: str, name: str) -> str:
        own = self.saved.of_operator(uid, kind)
        if name not in own:
            raise self._unknown(uid, name)
        return own[name].file["remote"]

    def _unknown(self, uid: str, name: str = "") -> StateError:
        saved = self.saved
        if uid not in saved.manifest.operators:
            return no_operator(uid, saved.manifest.operators)
        states = {**saved.of_operator(uid, KEYED), **saved.of_operator(uid, OPERATOR)}
        return no_state(uid, name, states)


def _converted(
    target: CheckpointStorage, storage: CheckpointStorage, manifest: Manifest
) -> dict[str, Any]:
    try:
        return write_canonical(target, storage, manifest)
    except FileNotFoundError as error:
        message = (
            f"checkpoint {manifest.epoch} in {storage.location} lacks a file, or its job has"
            f" deleted it meanwhile: {error}"
        )
        raise CorruptCheckpointError(message) from error


def _bounds(namespace: object) -> dict[str, object]:
    if isinstance(namespace, tuple) and len(namespace) == 2:  # noqa: PLR2004 - start and end
        return {"window_start": namespace[0], "window_end": namespace[1]}
    return {NAMESPACE: repr(namespace)}


def _spark_schema(schema: pa.Schema) -> str:
    """The columns as Spark's DDL."""
    return ", ".join(f"`{field.name}` {_spark_type(field.type)}" for field in schema)


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_spark_type(kind.key_type)}, {_spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{each.name}`: {_spark_type(each.type)}' for each in kind)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    names = {"int64": "bigint", "int32": "int", "bool": "boolean", "date32[day]": "date"}
    names["duration[us]"] = "interval day to second"
    return names.get(str(kind), str(kind))
