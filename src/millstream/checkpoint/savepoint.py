"""Savepoints: complete copies of one checkpoint, which can be moved, copied and started from.

A savepoint has a description, and the content of one checkpoint::

    savepoint.json   what it is, and whether it is complete: the commit point
    job.json         the job that wrote it                             job_directories.py
    sources/         the splits of the sources                         execution/planned_source.py
    log/             native: the manifest, as in a checkpoint directory    manifest_log.py
    state/           native: every state file that the manifest names
                     canonical: Parquet; the manifest is in savepoint.json    canonical.py

``savepoint.json`` is written before all files, as incomplete, and again when they are durable.  A
job that starts from a savepoint, or from the checkpoint directory of another job, copies it into
its own checkpoint directory, so it does not need it afterwards.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream import __version__
from millstream.checkpoint.canonical import CANONICAL_VERSION, POSITIONS, CanonicalSavepoint
from millstream.checkpoint.commit import ORIGIN, is_marked_committed, read_checkpoints
from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import IDENTITY, TEMPORARY_DIRECTORY, seal_of
from millstream.checkpoint.manifest_log import ManifestLog, encode
from millstream.checkpoint.model import MANIFEST, PROGRAM, blocks_of, difference
from millstream.checkpoint.storages import open_storage
from millstream.crash_points import crash_point
from millstream.errors import CheckpointError, CorruptCheckpointError, UnknownFormatError
from millstream.object_stores import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import StateFile


#: Of a ``savepoint.json`` beside the manifest of a checkpoint directory.
NATIVE_VERSION: Final = 1
DESCRIPTION: Final = "savepoint.json"
_SOURCES: Final = "sources"
#: How often the splits of sources are listed again because a file was compacted away meanwhile.
_ATTEMPTS: Final = 5


class SavepointFormatType(Enum):
    """How the state of a savepoint is stored."""

    #: As Parquet files, which do not depend on the state backend.
    CANONICAL = "canonical"
    #: As the state backend of the job stores it: quicker to write and to start from.
    NATIVE = "native"


#: Writes the content of a checkpoint into a savepoint: target, storage of the checkpoint, manifest.
#: Returns what the description is to have.
WriteContent: TypeAlias = (
    "Callable[[CheckpointStorage, CheckpointStorage, Manifest], dict[str, Any]]"
)


@dataclass(frozen=True, slots=True)
class SavepointFormat:
    """A format in which savepoints are written."""

    kind: SavepointFormatType
    write: WriteContent

    @property
    def version(self) -> int:
        """Return that of its ``savepoint.json``."""
        is_native = self.kind is SavepointFormatType.NATIVE
        return NATIVE_VERSION if is_native else CANONICAL_VERSION


@dataclass(frozen=True, slots=True)
class SavepointSettings:
    """How savepoints are written and read."""

    #: With which they are signed; empty: they are not.
    key_file: str = ""
    fsync: bool = True

    #: Of object stores.
    store_options: StoreOptions = field(default_factory=StoreOptions)

    def storage(self, directory: str | Path) -> CheckpointStorage:
        """The storage of a savepoint.

        Raises:
            ConfigurationError: the directory is at a place that is not supported.
        """
        return open_storage(
            directory,
            seal=seal_of(self.key_file),
            fsync=self.fsync,
            store_options=self.store_options,
        )


def read_sources(storage: CheckpointStorage) -> dict[str, bytes]:
    """The blobs that list the splits of a job's sources, by name, as they are now.

    Raises:
        CheckpointError: another driver changes them all the time.
    """
    for _ in range(_ATTEMPTS):
        try:
            return {name: storage.read(name) for name in storage.list_names(_SOURCES)}
        except FileNotFoundError:  # compacted away between listing and reading
            continue
    message = f"the splits in {storage.location} change while they are read"
    raise CheckpointError(message)


def new_directory(base: str, job_id: str) -> str:
    """The directory of a new savepoint, named as Flink's are."""
    return f"{base.rstrip('/')}/savepoint-{job_id[:6]}-{uuid.uuid4().hex[:12]}"


def write_savepoint(
    target: CheckpointStorage,
    identity: JobIdentity,
    manifest: Manifest,
    source: CheckpointStorage,
    splits: Mapping[str, bytes],
    form: SavepointFormat,
) -> str:
    """Write a savepoint of a checkpoint that is published and committed.

    Cases (where it can stop -> what holds):

    1. Nothing is written, or an empty directory -> there is no savepoint.
    2. Some files are written, the description says that it is incomplete -> it is refused.
    3. The description says that it is complete -> it is.

    What can never happen: it is taken for complete, and something of it is missing.

    Args:
        target: a new directory; an incomplete one is deleted if this fails.
        identity: the job.
        manifest: the checkpoint.
        source: the job's checkpoints; the state files of the manifest stay meanwhile.
        splits: the splits of its sources, of a time after the manifest.
        form: how its content is written.

    Returns:
        The directory.

    Raises:
        FileNotFoundError: a state file has gone.
        CorruptCheckpointError: a state file is damaged, or has gone.
        DirectoryError: the target cannot be written to.
    """
    target.bind(identity.job_id)
    head = {"format_version": form.version, "format": form.kind.value}
    began = {**head, "complete": False, "job_id": identity.job_id}
    crash_point("savepoint.write.before")
    try:
        target.write(IDENTITY, identity.encode())  # which says whom signatures are of
        target.write(DESCRIPTION, _encoded(began))
        content = form.write(target, source, manifest)
        for name, blob in splits.items():
            target.write(name, blob)
        crash_point("savepoint.publish.before")
        told = {**head, **_description(identity, manifest), **content}
        target.write(DESCRIPTION, _encoded(told))
        crash_point("savepoint.publish.after")
        target.remove_empty((TEMPORARY_DIRECTORY,))
    except Exception:
        with contextlib.suppress(Exception):  # what went wrong before is to be told
            delete_savepoint(target)
        raise
    return target.location


def _write_native(
    target: CheckpointStorage, source: CheckpointStorage, manifest: Manifest
) -> dict[str, object]:
    """Copy the state files, and write the manifest as a checkpoint directory has it."""
    files = _distinct(manifest.files())
    for file in files:
        _copy(source, target, file)
        crash_point("savepoint.file.after")
    content, checksum = encode(0, manifest.generation, MANIFEST.write(manifest))
    target.write(ManifestLog.name(0), content)
    return {
        "state_files": len(files),
        "state_size": sum(file["size"] for file in files),
        "manifest_checksum": checksum,
    }


NATIVE: Final = SavepointFormat(SavepointFormatType.NATIVE, _write_native)


def export_checkpoint(
    source: CheckpointStorage,
    epoch: int,
    directory: str,
    settings: SavepointSettings,
    form: SavepointFormat,
) -> str:
    """Make a savepoint of a retained checkpoint, also while the job runs.

    Args:
        source: the checkpoint directory of the job.
        epoch: the number of the checkpoint.
        directory: below which the savepoint gets a directory of its own.
        settings: how it is signed.
        form: how its content is written.

    Returns:
        Its directory.

    Raises:
        CheckpointError: there is no such checkpoint, or its output may not be committed.
        CorruptCheckpointError: something of it is damaged.
        FileNotFoundError: the job has deleted it meanwhile.
    """
    identity = JobIdentity.load(source)
    found = [] if identity is None else read_checkpoints(ManifestLog(source), identity.job_id)
    chosen = next((each for each in found if each[1].epoch == epoch), None)
    if identity is None or chosen is None:
        known = ", ".join(str(manifest.epoch) for _, manifest in found) or "none"
        message = f"{source.location} has no checkpoint {epoch}; there are: {known}"
        raise CheckpointError(message)
    version, manifest = chosen
    if chosen is found[-1]:  # older ones are committed: the next one waited for that
        _require_committed(source, version, manifest)
    path = new_directory(open_storage(directory).location, identity.job_id)
    identity = replace(identity, program=manifest.program)
    target = settings.storage(path)
    return write_savepoint(target, identity, manifest, source, read_sources(source), form)


def _description(identity: JobIdentity, manifest: Manifest) -> dict[str, object]:
    operators: dict[str, object] = {}
    for uid, record in PROGRAM.write(manifest.program).items():
        acks = manifest.operators.get(uid, [])
        names = {name: handle for ack in acks for name, handle in ack.operator_states.items()}
        operators[uid] = {
            **record,
            "parallelism": len(acks),
            "operator_states": {
                name: f"{handle.kind.label} {handle.type}".strip()
                for name, handle in sorted(names.items())
            },
            "splits": len(manifest.splits.get(uid, {})),
        }
    return {
        "complete": True,
        "savepoint_id": uuid.uuid4().hex,
        "job_id": identity.job_id,
        "job_name": identity.job_name,
        "checkpoint_id": manifest.epoch,
        "run": manifest.generation,
        "created": time.time_ns() // 1_000_000,
        "checkpoint_published": manifest.published,
        "millstream_version": __version__,
        "max_parallelism": manifest.max_parallelism,
        "final": manifest.final,
        "in_flight_size": sum(frames.file["size"] for frames in manifest.in_flight),
        "operators": operators,
    }


def _encoded(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _distinct(files: Iterable[StateFile]) -> list[StateFile]:
    return list({file["remote"]: file for file in files}.values())


def _copy(source: CheckpointStorage, target: CheckpointStorage, file: StateFile) -> None:
    """Copy a state file; one that is there was copied before."""
    with _verified(source, file) as path, contextlib.suppress(FileExistsError):
        target.upload(path, file["remote"])


@contextlib.contextmanager
def _verified(storage: CheckpointStorage, file: StateFile, *, keep: bool = False) -> Iterator[Path]:
    """A local file with the content of a state file, which is as it was uploaded."""
    with storage.local_file(file["remote"], keep=keep) as path:
        reason = difference(blocks_of(path), file)
        if reason is not None:
            message = f"{file['remote']} in {storage.location} is damaged: {reason}"
            raise CorruptCheckpointError(message)
        yield path


def require_no_savepoint(storage: CheckpointStorage) -> None:
    """Refuse a savepoint as the checkpoint directory of a job, which would change it.

    Raises:
        CheckpointError: it is one.
    """
    if storage.exists(DESCRIPTION):
        message = (
            f"{storage.location} is a savepoint, and no checkpoint directory. To start from it, set"
            " execution.state-recovery.path (millstream run --from-savepoint), and use another"
            " execution.checkpointing.dir"
        )
        raise CheckpointError(message)


def delete_savepoint(storage: CheckpointStorage, savepoint_id: str | None = None) -> None:
    """Delete a savepoint; files that are not its own stay.

    Args:
        storage: of the savepoint, bound to its job.
        savepoint_id: of the one that is meant; another one stays.  None: whatever is there.

    Raises:
        DirectoryError: something cannot be deleted.
    """
    if storage.exists(DESCRIPTION):
        found = _read_description(storage) if savepoint_id is not None else {}
        if found.get("complete") and found.get("savepoint_id") != savepoint_id:
            return
        storage.write(DESCRIPTION, _encoded({"format_version": NATIVE_VERSION, "complete": False}))
    elif savepoint_id is not None:
        return
    own = ("log", "state", _SOURCES)
    storage.delete([name for each in own for name in storage.list_names(each)])
    storage.delete([DESCRIPTION, IDENTITY])
    storage.remove_empty((*own, TEMPORARY_DIRECTORY))


# -- starting from one ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Origin:
    """What a job has started from, as its checkpoint directory keeps it."""

    #: As it was given, without a scheme.
    path: str
    #: Of the savepoint, or made of job, run and number of a checkpoint.
    savepoint_id: str
    checkpoint_id: int
    job_id: str
    job_name: str

    @classmethod
    def load(cls, storage: CheckpointStorage) -> Origin | None:
        """What the job of a checkpoint directory has started from; None: from scratch.

        Raises:
            CorruptCheckpointError: the file is damaged.
        """
        try:
            value: dict[str, Any] = json.loads(storage.read(ORIGIN))
            return cls(**{each: value[each] for each in cls.__dataclass_fields__})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            file = f"{ORIGIN} in {storage.location}"
            message = f"{file} is damaged ({error!r}). Put the file back from a copy."
            raise CorruptCheckpointError(message) from error

    def save(self, storage: CheckpointStorage) -> None:
        """Keep it in the checkpoint directory of the job that starts."""
        storage.write(ORIGIN, _encoded(asdict(self)))

    def __str__(self) -> str:
        """For messages."""
        return f"{self.path} (checkpoint {self.checkpoint_id} of job {self.job_name!r})"


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """A savepoint, or the checkpoint directory of a job, from which another job starts."""

    storage: CheckpointStorage
    manifest: Manifest
    origin: Origin
    #: Else it is the checkpoint directory of a job.
    is_savepoint: bool
    #: A savepoint whose state is no native one; its manifest names no files.
    canonical: CanonicalSavepoint | None = None

    @classmethod
    def open(cls, path: str, settings: SavepointSettings) -> StartingPoint:
        """Read what there is at a path; nothing is written.

        Cases:

        1. A complete savepoint -> it is taken.
        2. An incomplete one, or one of another format -> refused.
        3. A checkpoint directory -> its newest checkpoint is taken, if its output is committed.
           The other job commits it, or it has been lost; nobody else may.
        4. Anything else -> refused.

        Raises:
            CheckpointError: there is nothing to start from.
            CorruptCheckpointError, UnknownFormatError, SignatureError: it cannot be used.
            ConfigurationError: it is at a place that is not supported.
        """
        storage = settings.storage(path.removesuffix(f"/{DESCRIPTION}"))
        where = storage.location
        if not storage.is_there():
            message = f"there is no savepoint and no checkpoint directory {where}"
            raise CheckpointError(message)
        storage.check()
        identity = JobIdentity.load(storage)  # first, for the others are verified as of this job
        description = _read_description(storage) if storage.exists(DESCRIPTION) else None
        if description is not None:
            _require_complete(description, where)
        elif identity is None:
            message = (
                f"{where} is neither a savepoint (it has no {DESCRIPTION}) nor a checkpoint"
                f" directory (it has no {IDENTITY})"
            )
            raise CheckpointError(message)
        if identity is None:
            message = f"the savepoint {where} is damaged: {IDENTITY} is missing"
            raise CorruptCheckpointError(message)
        if description is not None and description["format_version"] == CANONICAL_VERSION:
            return cls._of_canonical(storage, identity, description)
        return cls._of(storage, identity, description)

    @classmethod
    def _of_canonical(
        cls, storage: CheckpointStorage, identity: JobIdentity, description: dict[str, Any]
    ) -> StartingPoint:
        saved = CanonicalSavepoint.read(storage, description)
        manifest = saved.manifest
        if manifest.job_id != identity.job_id:
            message = (
                f"the savepoint {storage.location} is damaged: {IDENTITY} is of another job than"
                f" {DESCRIPTION}. Put it back from a copy as a whole"
            )
            raise CorruptCheckpointError(message)
        origin = Origin(
            storage.location,
            str(description.get("savepoint_id")),
            manifest.epoch,
            identity.job_id,
            identity.job_name,
        )
        return cls(storage, manifest, origin, is_savepoint=True, canonical=saved)

    @classmethod
    def _of(
        cls, storage: CheckpointStorage, identity: JobIdentity, description: dict[str, Any] | None
    ) -> StartingPoint:
        where, log = storage.location, ManifestLog(storage)
        found = read_checkpoints(log, identity.job_id)
        if not found and description is not None:
            message = f"the savepoint {where} is damaged: its manifest is missing"
            raise CorruptCheckpointError(message)
        if not found:
            message = f"the checkpoint directory {where} has no checkpoint yet"
            raise CheckpointError(message)
        version, manifest = found[-1]
        if description is None:
            _require_committed(storage, version, manifest)
            savepoint_id = checkpoint_identity(manifest)
        else:
            savepoint_id = str(description.get("savepoint_id"))
            _require_same(description, log.checksum(version), manifest, where)
        origin = Origin(where, savepoint_id, manifest.epoch, identity.job_id, identity.job_name)
        return cls(storage, manifest, origin, description is not None)

    @property
    def files(self) -> list[StateFile]:
        """Every state file."""
        if self.canonical is not None:
            return [each.file for each in self.canonical.files.values()]
        return _distinct(self.manifest.files())

    def verify(self) -> None:
        """Read every state file, of which ``begin`` takes what is brought to this machine.

        Raises:
            CorruptCheckpointError: one is missing or damaged.
        """
        taken = {file["remote"] for file in self.manifest.files()}
        for file in self.files:
            if self.canonical is not None and file["remote"] == POSITIONS:
                continue  # read, and verified, when the savepoint was opened
            try:
                with _verified(self.storage, file, keep=file["remote"] in taken):
                    pass
            except FileNotFoundError:
                message = f"{file['remote']} in {self.storage.location} is missing"
                raise CorruptCheckpointError(message) from None

    def begin(
        self,
        storage: CheckpointStorage,
        job_id: str,
        restore: Callable[[CanonicalSavepoint, CheckpointStorage], Manifest],
    ) -> Manifest:
        """Bring everything that the checkpoint needs into the checkpoint directory of another job.

        Args:
            storage: that directory.
            job_id: of the other job.
            restore: makes native state there of a canonical savepoint.

        Returns:
            The checkpoint as the first one of the other job.

        Raises:
            CorruptCheckpointError: a file is missing or damaged.
        """
        crash_point("savepoint.restore.before")
        self.origin.save(storage)
        if self.canonical is not None:
            manifest = restore(self.canonical, storage)
        else:
            manifest = self.manifest
            self._copy_to(storage)
        for name, content in read_sources(self.storage).items():
            storage.write(name, content)
        # Its output is that of the job that made it, which has committed it.
        return replace(manifest.without_committables(), job_id=job_id)

    def _copy_to(self, storage: CheckpointStorage) -> None:
        try:
            for file in self.files:
                _copy(self.storage, storage, file)
                crash_point("savepoint.copy.after")
        except FileNotFoundError as error:
            message = f"a state file of {self.storage.location} is missing: {error}"
            raise CorruptCheckpointError(message) from error


def read_canonical(storage: CheckpointStorage) -> CanonicalSavepoint | None:
    """The canonical savepoint in a directory; None if it holds none.

    Raises:
        CorruptCheckpointError: it is incomplete or damaged.
        UnknownFormatError: it is of another version.
    """
    JobIdentity.load(storage)  # first, for the others are verified as of this job
    if not storage.exists(DESCRIPTION):
        return None
    description = _read_description(storage)
    if description["format_version"] != CANONICAL_VERSION:
        return None
    _require_complete(description, storage.location)
    return CanonicalSavepoint.read(storage, description)


def _read_description(storage: CheckpointStorage) -> dict[str, Any]:
    where = f"{DESCRIPTION} in {storage.location}"
    # It is signed for the job that job.json names; an incomplete one may come before that.
    try:
        value = json.loads(storage.read(DESCRIPTION))
        version = value["format_version"]
    except (ValueError, TypeError, KeyError) as error:
        message = f"{where} is damaged ({error!r}). Put the file back from a copy."
        raise CorruptCheckpointError(message) from error
    if version not in (NATIVE_VERSION, CANONICAL_VERSION):
        message = (
            f"{where} has format version {version!r}; this release of Millstream reads"
            f" {NATIVE_VERSION} and {CANONICAL_VERSION}. Start from it with the release that wrote"
            " it"
        )
        raise UnknownFormatError(message)
    found: dict[str, Any] = value
    return found


def _require_complete(description: Mapping[str, Any], where: str) -> None:
    if description.get("complete") is not True:
        message = (
            f"the savepoint {where} is incomplete: the job that wrote it was ended before it was"
            " done, or is still writing it. Take another one; an incomplete one can be deleted"
        )
        raise CorruptCheckpointError(message)


def _require_same(
    description: Mapping[str, Any], checksum: str, manifest: Manifest, where: str
) -> None:
    """Check that description and manifest belong together."""
    told = (description.get("checkpoint_id"), description.get("job_id"))
    if checksum != description.get("manifest_checksum") or told != (
        manifest.epoch,
        manifest.job_id,
    ):
        message = (
            f"the savepoint {where} is damaged: its manifest is not the one that {DESCRIPTION}"
            " names. Put it back from a copy as a whole"
        )
        raise CorruptCheckpointError(message)


def checkpoint_identity(manifest: Manifest) -> str:
    """The id of a checkpoint that is none of a savepoint."""
    return f"{manifest.job_id}/{manifest.generation}/{manifest.epoch}"


def require_committed(storage: CheckpointStorage, job_id: str, epoch: int) -> None:
    """Refuse a checkpoint whose output only its job can commit; a savepoint has none.

    Args:
        storage: the checkpoint directory, or the savepoint.
        job_id: of the job.
        epoch: the number of the checkpoint.

    Raises:
        CheckpointError: its output may not be committed.
    """
    if storage.exists(DESCRIPTION):
        return
    found = read_checkpoints(ManifestLog(storage), job_id)
    if found and found[-1][1].epoch == epoch:  # older ones are: the next one waited for that
        _require_committed(storage, *found[-1])


def _require_committed(storage: CheckpointStorage, version: int, manifest: Manifest) -> None:
    if manifest.committed or not manifest.committable_counts():
        return
    if is_marked_committed(storage, version, manifest):
        return
    where = storage.location
    message = (
        f"checkpoint {manifest.epoch} in {where} has output of sinks that may not be committed: its"
        " job is running, or was killed. Only that job commits it. While it runs, take a savepoint"
        f" (`millstream savepoint {where}`); else start it there once more and stop it, or, if you"
        f" know that the output is visible, `millstream checkpoints {where} confirm"
        f" {manifest.epoch}`"
    )
    raise CheckpointError(message)
