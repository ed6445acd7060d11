"""SavepointWriter: savepoints with state that was made or changed outside of a job."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
import uuid
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import pyarrow.compute as pc

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.model import Manifest, OperatorAck, OperatorRecord
from millstream.checkpoint.savepoint import (
    SavepointSettings,
    new_directory,
    read_sources,
    require_committed,
    write_savepoint,
)
from millstream.configuration.configuration import Configuration
from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.contracts.operator import (
    FUNCTION_STATES,
    Checkpoint,
    OperatorContext,
    OperatorStateKind,
    RestoreContext,
)
from millstream.errors import StateError
from millstream.execution.planned_source import splits_directory
from millstream.runtime.operators.process import KeyedProcessFactory
from millstream.state.backend import open_store
from millstream.state.canonical.layout import NUMBER, SAMPLE, SectionLayout
from millstream.state.canonical.restore import Stores, restore_canonical
from millstream.state.canonical.write import CANONICAL
from millstream.state.key_codec import key_group, key_group_range
from millstream.state.keyed import STATE_FORMAT
from millstream.state.operator_state import OperatorStates, StateContent, prepare_states
from millstream.state.reader import scan_section
from millstream.state.registry import (
    CHUNK_COUNTER,
    META,
    STORE_FORMAT,
    description_of,
    metadata_of,
    new_metadata,
    read_metadata,
    section_of,
)
from millstream.state_processor.reader import (
    SavepointReader,
    TemporaryFiles,
    no_operator,
    no_state,
)
from millstream.state_processor.tables import elements_of, records_of, rows_for
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.functions.descriptors import StateDescriptor
    from millstream.state.canonical.value_form import ValueForm
    from millstream.state.registry import Section


_BACKEND: Final = "hashmap"


class SavepointWriter(TemporaryFiles):
    """Changes the state of a savepoint, or makes state for a new one, and writes it.

    What is not changed stays as it is.  Use ``from_existing_savepoint`` or ``new_savepoint`` to
    make one; it keeps temporary files until it has written.

    Args:
        manifest: the checkpoint.
        storage: its native state, which is changed.
        identity: of the job.
        sources: the splits of its sources.
        directory: of temporary files, among them the state.
    """

    def __init__(
        self,
        manifest: Manifest,
        storage: CheckpointStorage,
        identity: JobIdentity,
        sources: dict[str, bytes],
        directory: tempfile.TemporaryDirectory[str],
    ) -> None:
        super().__init__(directory)
        self._manifest = manifest
        self._storage = storage
        self._identity = identity
        self._sources = sources
        self._opened = 0

    @classmethod
    def from_existing_savepoint(
        cls, path: str | Path, *, checkpoint_id: int | None = None, key_file: str = ""
    ) -> Self:
        """Begin with the state of a savepoint or of a retained checkpoint, which stays as it is.

        Args:
            path: of the savepoint, or of a checkpoint directory.
            checkpoint_id: which checkpoint of a checkpoint directory; None: the newest.
            key_file: the key with which it is signed; empty: it is not.

        Raises:
            CheckpointError: there is none, it is incomplete, damaged or of another version, or
                output of the checkpoint may not be committed.
        """
        directory = tempfile.TemporaryDirectory(prefix="millstream-writer-")
        target = LocalStorage(Path(directory.name) / "state", fsync=False)
        with SavepointReader.read(path, checkpoint_id=checkpoint_id, key_file=key_file) as reader:
            # A job that starts from what is written does not know of output that is pending.
            require_committed(reader.storage, reader.manifest.job_id, reader.checkpoint_id)
            manifest = restore_canonical(reader.saved, target, _BACKEND)
            name = reader.job_name
            sources = read_sources(reader.storage)
        identity = JobIdentity(manifest.job_id, name, manifest.program)
        return cls(manifest, target, identity, sources, directory)

    @classmethod
    def new_savepoint(cls, max_parallelism: int = 128, job_name: str = "bootstrap") -> Self:
        """Begin with no state.

        Args:
            max_parallelism: the number of key groups.
            job_name: for messages.
        """
        directory = tempfile.TemporaryDirectory(prefix="millstream-writer-")
        now = time.time_ns() // 1_000_000
        job_id = uuid.uuid4().hex
        manifest = Manifest(
            epoch=0,
            generation=1,
            job_id=job_id,
            started=now,
            published=now,
            offsets={"epoch": 0, "time": now, "final": False, "sources": {}},
            operators={},
            splits={},
            stages={},
            max_parallelism=max_parallelism,
            committed=True,
        )
        target = LocalStorage(Path(directory.name) / "state", fsync=False)
        return cls(manifest, target, JobIdentity(job_id, job_name, {}), {}, directory)

    # Keyed state and timers.

    def with_keyed_state(self, uid: str, state: str | StateDescriptor, data: Any) -> Self:
        """Put rows in the place of a keyed state.

        Columns are as ``SavepointReader`` gives them: ``key`` and ``value``, and ``map_key`` of map
        state.  Elements of a list come in the order of ``number`` and ``position``, or of the rows.
        State that expires has ``last_access``.

        Args:
            uid: of the operator; a new one is added.
            state: the name of a state that there is, or the descriptor of a new one.
            data: an Arrow table, a pandas or Spark DataFrame, or a list of dictionaries.

        Returns:
            Itself.

        Raises:
            StateError: there is no such state, or the rows do not fit.
        """
        name = state if isinstance(state, str) else state.name
        wanted = None if isinstance(state, str) else metadata_of(state)
        return self._replace(uid, name, wanted, data)

    def with_timers(self, uid: str, data: Any, domain: str = "event") -> Self:
        """Put rows in the place of the timers of an operator.

        Args:
            uid: of the operator.
            data: as for ``with_keyed_state``, with columns ``time`` (milliseconds) and ``key``.
            domain: "event" or "processing".

        Returns:
            Itself.
        """
        return self._replace(uid, f"\0timers.{domain}", new_metadata(0, "timers"), data)

    def _replace(self, uid: str, name: str, wanted: dict[str, Any] | None, data: Any) -> Self:
        what = f"state {name!r} of operator {uid!r}"
        with self._stores(uid) as (stores, groups):
            known = _known(stores)
            meta = known.get(name, wanted)
            if meta is None:
                names = ", ".join(map(repr, sorted(known))) or "none"
                message = f"there is no {what}; there are: {names}"
                raise StateError(message)
            if wanted is not None and wanted["kind"] != meta["kind"]:
                message = f"{what} is kept as {meta['kind']} state, not as {wanted['kind']} state"
                raise StateError(message)
            index = meta["index"] if name in known else _free(known)
            section = section_of(name, {**meta, "index": index})
            layout, batches = rows_for(
                section,
                max(stop for _, stop in groups.values()),
                _forms(stores, section),
                data,
                what,
            )
            entries = list(layout.entries(iter(batches), index))
            _require_distinct(entries, what)
            _empty(stores, section)
            target = Stores(stores, groups)
            put = json.dumps({**meta, "index": index}).encode()
            counter = _counter(stores, batches).to_bytes(8, "big")
            target.write_all([(META + name.encode(), put), (CHUNK_COUNTER, counter)])
            target.distribute(entries, by_subtask=layout.is_chunked)
        record = self._manifest.program[uid]
        if not name.startswith("\0"):
            states = {**record.states, name: description_of(meta)}
            self._manifest.program[uid] = replace(record, states=states)
        return self

    def with_operator(
        self,
        uid: str,
        function: object,
        data: Any,
        key_selector: Callable[[Any], Any],
    ) -> Self:
        """Run a keyed function over rows; what it keeps in its state is the state of an operator.

        Args:
            uid: of the operator; a new one is added, and the state of another one is changed.
            function: a ``KeyedProcessFunction``; what it emits is dropped, timers do not fire.
            data: rows as for ``with_keyed_state``, which it gets as ``Row`` objects, or any
                iterable of Python objects.
            key_selector: the key of a row or object.

        Returns:
            Itself.

        Raises:
            StateError: state cannot be written.
        """
        records = records_of(data)
        with self._stores(uid) as (stores, groups):
            max_parallelism = max(stop for _, stop in groups.values())
            for number, subtask in enumerate(stores):
                first, stop = groups[subtask]
                own = [
                    each
                    for each in records
                    if first <= key_group(key_selector(each), max_parallelism) < stop
                ]
                context = _context(uid, number, len(stores), max_parallelism)
                _run(function, key_selector, own, stores[subtask], context)
            found = _known(stores)
        record = self._manifest.program[uid]
        states = {
            name: description_of(meta) for name, meta in found.items() if not name.startswith("\0")
        }
        self._manifest.program[uid] = replace(record, states=states)
        return self

    @contextlib.contextmanager
    def _stores(
        self, uid: str
    ) -> Iterator[tuple[dict[int, KeyValueStore], dict[int, tuple[int, int]]]]:
        """Open the stores of an operator, which is added if need be, and keep what they hold."""
        acks = self._acks(uid)
        count = len(acks)
        handles = [ack.state for ack in acks if ack.state is not None]
        total = max((h["key_groups"][1] for h in handles), default=self._manifest.max_parallelism)
        stores: dict[int, KeyValueStore] = {}
        groups: dict[int, tuple[int, int]] = {}
        self._opened += 1
        work = Path(self._directory.name) / f"stores-{self._opened}"
        work.mkdir()
        with contextlib.ExitStack() as stack:
            for number, ack in enumerate(acks):
                held = key_group_range(number, total, count)
                own = [] if ack.state is None else [ack.state]
                store = open_store(
                    _BACKEND, self._storage, uid, ack.subtask, held, own, "writer", work
                )
                stack.callback(store.close)
                stores[ack.subtask], groups[ack.subtask] = store, held
            yield stores, groups
            for store in stores.values():
                store.write([(STORE_FORMAT, str(STATE_FORMAT).encode())])
            made = {subtask: store.snapshot() for subtask, store in stores.items()}
        self._manifest.operators[uid] = [replace(ack, state=made[ack.subtask]) for ack in acks]

    def _acks(self, uid: str) -> list[OperatorAck]:
        if uid not in self._manifest.operators:
            self._manifest.operators[uid] = [OperatorAck(uid, 0, MIN_TIMESTAMP)]
        if uid not in self._manifest.program:
            self._manifest.program[uid] = OperatorRecord(
                uid, "operator", uid, sections=(FUNCTION_STATES,)
            )
        return self._manifest.operators[uid]

    # Operator state.

    def with_list_state(self, uid: str, name: str, data: Any) -> Self:
        """Put rows in the place of a list of operator state, in the order of the rows.

        Args:
            uid: of the operator.
            name: of the state.
            data: as for ``with_keyed_state``, with the column ``value``.

        Returns:
            Itself.
        """
        return self._with_elements(uid, name, OperatorStateKind.LIST, data)

    def with_union_state(self, uid: str, name: str, data: Any) -> Self:
        """Put rows in the place of a union list of operator state; as ``with_list_state``."""
        return self._with_elements(uid, name, OperatorStateKind.UNION, data)

    def with_broadcast_state(self, uid: str, name: str, data: Any) -> Self:
        """Put rows in the place of a broadcast state; columns ``key`` and ``value``."""
        return self._with_elements(uid, name, OperatorStateKind.BROADCAST, data)

    def _with_elements(self, uid: str, name: str, kind: OperatorStateKind, data: Any) -> Self:
        elements = elements_of(data, kind, f"state {name!r} of operator {uid!r}")
        acks = self._acks(uid)
        before = next((a.operator_states[name] for a in acks if name in a.operator_states), None)
        if before is not None and before.kind is not kind:
            message = (
                f"state {name!r} of operator {uid!r} is kept as {before.kind.label}, not as"
                f" {kind.label}"
            )
            raise StateError(message)
        changed = []
        for number, ack in enumerate(acks):
            others = {each: at for each, at in ack.operator_states.items() if each != name}
            own = elements if number == 0 or kind is OperatorStateKind.BROADCAST else ()
            content = StateContent(
                kind,
                "" if before is None else before.type,
                tuple(own),
                schemas={} if before is None else before.schemas,
            )
            prepared = prepare_states({name: content}, uid)
            prepared.finish(self._storage)
            changed.append(replace(ack, operator_states={**others, **prepared.handles}))
        self._manifest.operators[uid] = changed
        return self

    # Removing and writing.

    def remove_state(self, uid: str, name: str) -> Self:
        """Remove a keyed state, the timers of a kind, or an operator state.

        Args:
            uid: of the operator.
            name: of the state.

        Returns:
            Itself.

        Raises:
            StateError: there is none.
        """
        self._require_operator(uid)
        acks = self._manifest.operators[uid]
        if any(name in ack.operator_states for ack in acks):
            self._manifest.operators[uid] = [
                replace(
                    ack,
                    operator_states={k: v for k, v in ack.operator_states.items() if k != name},
                )
                for ack in acks
            ]
            return self
        with self._stores(uid) as (stores, _):
            known = _known(stores)
            if name not in known:
                raise no_state(uid, name, known)
            _empty(stores, section_of(name, known[name]))
            for store in stores.values():
                store.write([], [META + name.encode()])
        record = self._manifest.program[uid]
        states = {each: told for each, told in record.states.items() if each != name}
        self._manifest.program[uid] = replace(record, states=states)
        return self

    def remove_operator(self, uid: str) -> Self:
        """Remove an operator with all of its state, and a source with its positions.

        Args:
            uid: of the operator.

        Returns:
            Itself.

        Raises:
            StateError: there is none.
        """
        self._require_operator(uid)
        del self._manifest.operators[uid]
        self._manifest.program.pop(uid, None)
        self._manifest.splits.pop(uid, None)
        # Else a new source of this uid would go on where the old one was.
        cast("dict[str, Any]", self._manifest.offsets["sources"]).pop(uid, None)
        own = f"{splits_directory(uid)}/"
        self._sources = {k: v for k, v in self._sources.items() if not k.startswith(own)}
        return self

    def _require_operator(self, uid: str) -> None:
        if uid not in self._manifest.operators:
            raise no_operator(uid, self._manifest.operators)

    def write(self, directory: str | Path, *, key_file: str = "") -> str:
        """Write a canonical savepoint, from which a job starts.

        Args:
            directory: below which it gets a directory.
            key_file: the key with which to sign it; empty: it is not signed.

        Returns:
            Its path.

        Raises:
            DirectoryError: it cannot be written to.
        """
        settings = SavepointSettings(key_file)
        base = settings.storage(directory).location
        target = settings.storage(new_directory(base, self._identity.job_id))
        identity = replace(self._identity, program=self._manifest.program)
        return write_savepoint(
            target, identity, self._manifest, self._storage, self._sources, CANONICAL
        )


def _known(stores: dict[int, KeyValueStore]) -> dict[str, dict[str, Any]]:
    """What the stores, which number their states alike, have of each state."""
    found: dict[str, dict[str, Any]] = {}
    for store in stores.values():
        found.update(read_metadata(store))
    return found


def _free(known: dict[str, dict[str, Any]]) -> int:
    return 1 + max((int(meta["index"]) for meta in known.values()), default=-1)


def _forms(stores: dict[int, KeyValueStore], section: Section) -> dict[str, ValueForm]:
    """The forms of the columns of a state, as they would be in a savepoint; empty if it is."""
    layout = SectionLayout(section)
    for store in stores.values():
        found = list(islice(scan_section(store, section), SAMPLE))
        if found:
            names, stored = map(list, zip(*found, strict=True))
            layout.find_forms(layout.take_apart(names, stored))
            return layout.value_forms
    return {}


def _empty(stores: dict[int, KeyValueStore], section: Section) -> None:
    for store in stores.values():
        store.write([], [name for name, _ in list(scan_section(store, section))])


def _counter(stores: dict[int, KeyValueStore], batches: list[pa.RecordBatch]) -> int:
    """What counts chunks of lists: as high as any number, so that the next one is a new one."""
    found = [int.from_bytes(store.get(CHUNK_COUNTER) or b"", "big") for store in stores.values()]
    found += [
        pc.max(batch.column(NUMBER)).as_py() or 0
        for batch in batches
        if NUMBER in batch.schema.names
    ]
    return max(found, default=0)


def _require_distinct(entries: list[tuple[list[int], list[bytes], list[bytes]]], what: str) -> None:
    names = [name for _, some, _ in entries for name in some]
    if len(set(names)) < len(names):
        message = f"{what}: two rows have the same key (and map key, or number)"
        raise StateError(message)


def _context(uid: str, subtask: int, parallelism: int, max_parallelism: int) -> OperatorContext:
    return OperatorContext(
        uid=uid,
        name=uid,
        location="SavepointWriter",
        subtask=subtask,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        job_name="savepoint",
        configuration=Configuration(),
        output_type=Types.PICKLED_BYTE_ARRAY(),
        side_types={},
        read_tags=frozenset(),
    )


class _Nowhere:
    """Drops what a function emits."""

    def emit(self, batch: Batch) -> None:
        """Drop it."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Drop it."""

    def emit_watermark(self, watermark: int) -> None:
        """Drop it."""

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - as in the contract
        """Drop it."""


def _run(
    function: object,
    key_selector: Callable[[Any], Any],
    records: list[Any],
    store: KeyValueStore,
    context: OperatorContext,
) -> None:
    """Have a keyed function process records on a store."""
    now = time.time_ns() // 1_000_000
    operator = KeyedProcessFactory(function, key_selector).create()
    operator.setup(context, _Nowhere())
    try:
        operator.open()
        restored = RestoreContext(
            epoch=0,
            attempt="writer",
            processing_time=now,
            store=store,
            watermark=MIN_TIMESTAMP,
            operator_states=OperatorStates(),
        )
        operator.restore(restored)
        operator.process_batch(Batch(Types.PICKLED_BYTE_ARRAY(), values=records))
        operator.snapshot(Checkpoint(0))
    finally:
        operator.close()
