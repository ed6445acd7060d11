"""List, inspect, verify and sign a checkpoint directory, for ``millstream checkpoints DIR``.

Reading needs none of the job's code, unpickles nothing, and may be done while the job runs.
Whoever signs a directory that was written without a key vouches for its content.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from millstream.checkpoint.commit import PendingCommits, read_pending, state_names
from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import HmacSeal, is_sealed
from millstream.checkpoint.manifest_log import LogVersion, ManifestLog
from millstream.checkpoint.model import OperatorRecord, difference
from millstream.checkpoint.packs import pack_of
from millstream.checkpoint.savepoint import DESCRIPTION, read_canonical
from millstream.checkpoint.storages import open_storage
from millstream.contracts.operator import OperatorStateKind
from millstream.errors import CheckpointError, DirectoryError
from millstream.types.time import MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.checkpoint.model import Manifest, OperatorAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import StateFile


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """One line per checkpoint."""

    epoch: int
    version: int
    generation: int
    #: Milliseconds since 1970.
    started: int
    published: int
    #: Bytes of all files it needs, and how many of these no older kept checkpoint needs.
    state_size: int
    new_state_size: int
    state_files: int
    committables: int
    final: bool
    #: Bytes of frames in flight, which are a part of the state size.
    in_flight_size: int = 0
    #: Blobs that were written for it, its manifest included, as far as it needs them.
    written: int = 0
    #: Requests to object stores, and bytes, since the checkpoint before, by kind.
    requests: Mapping[str, int] = field(default_factory=dict)

    @property
    def duration(self) -> int:
        """Milliseconds from the start of the epoch to its publishing."""
        return self.published - self.started


@dataclass(frozen=True, slots=True)
class DirectoryContent:
    """What is in a checkpoint directory."""

    location: str
    #: None if no job has claimed it.
    identity: JobIdentity | None
    #: How many runs have opened it.
    runs: int
    #: "host:pid" of the newest run; empty if there was none.
    owner: str
    #: Oldest first.
    checkpoints: list[CheckpointSummary]
    #: Output of the newest checkpoint that may not be committed; None if there is none.
    pending: PendingCommits | None = None


@dataclass(frozen=True, slots=True)
class OperatorDetails:
    """One operator in a checkpoint, over all its subtasks."""

    uid: str
    #: "source", "operator" or "sink"; empty if it is not known.
    kind: str
    #: As in the program; empty if it is not known.
    name: str
    #: "job.py:12".
    location: str
    subtasks: int
    #: The lowest of its subtasks, in milliseconds.
    watermark: int
    #: Names of the state backends in use.
    backends: list[str]
    state_files: int
    state_size: int
    #: Bytes of operator state kept in the manifest.
    operator_state_size: int
    committables: int
    #: "source/split" of the active split that is exactly as far as the operator; empty if none
    #: is: time was made in mid-stream, there is none yet, or the input is over.
    held_back_by: str
    #: Since the job began.
    late_records_dropped: int
    #: What it keeps, a line each: sections of state and the states of the user's function.
    keeps: list[str]


@dataclass(frozen=True, slots=True)
class CheckpointDetails:
    """All about one checkpoint."""

    summary: CheckpointSummary
    operators: list[OperatorDetails]
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    #: None where it concerns the directory, not one checkpoint.
    epoch: int | None
    #: Name of the file.
    name: str
    reason: str


@dataclass(slots=True)
class Verification:
    """What a check of all checksums found."""

    checkpoints: int = 0
    files: int = 0
    #: Bytes read.
    size: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems


def list_checkpoints(storage: CheckpointStorage) -> DirectoryContent:
    """Return what is in the directory.

    Raises:
        CorruptCheckpointError, UnknownFormatError: a version of the log cannot be read;
            ``verify_checkpoints`` says which ones.
    """
    identity = JobIdentity.load(storage)  # first, for the others are verified as of this job
    entries = _entries(storage)
    return DirectoryContent(
        location=storage.location,
        identity=identity,
        runs=sum(entry.manifest is None for entry in entries),
        owner=entries[-1].owner if entries else "",
        checkpoints=_summaries(entries),
        pending=_pending(storage, entries),
    )


def _entries(storage: CheckpointStorage) -> list[LogVersion]:
    """The versions of the log; of a canonical savepoint, the one that it is."""
    saved = read_canonical(storage)
    if saved is None:
        return list(ManifestLog(storage).entries())
    manifest = replace(saved.manifest, committed=True)
    return [LogVersion(0, manifest.generation, "", manifest)]


def _pending(storage: CheckpointStorage, entries: list[LogVersion]) -> PendingCommits | None:
    """Return what may not be committed.

    Cases:

    1. A commit failed -> it is kept as pending, with the error.
    2. The newest checkpoint has committables, and Spark, which began its micro-batch, has not
       logged its end: the run died in the commit or just after it, or is in it now.  Which of
       them, only the sinks know; the next run asks them.
    3. Otherwise -> nothing is pending.  An epoch that has a successor is committed, for the
       successor's publishing waited for that.

    What can never happen: output of a published epoch is pending and this says None, for a job on
    Spark.  Nothing is written for this: a line before each commit, forced to disk, took 9 ms.
    """
    pending = read_pending(storage)
    if pending is not None:
        return pending
    manifest = next((each.manifest for each in reversed(entries) if each.manifest), None)
    if manifest is None or manifest.committed:
        return None
    if not storage.exists(f"spark/offsets/{manifest.epoch}"):
        return None
    sinks = manifest.committable_counts()
    if not sinks or storage.exists(f"spark/commits/{manifest.epoch}"):
        return None
    return PendingCommits(manifest.epoch, manifest.published, sinks)


def inspect_checkpoint(storage: CheckpointStorage, epoch: int | None = None) -> CheckpointDetails:
    """All about one checkpoint.

    Raises:
        CheckpointError: there is no such checkpoint, or the log cannot be read.
    """
    entries = [entry for entry in _entries(storage) if entry.manifest is not None]
    summaries = _summaries(entries)
    for entry, summary in zip(reversed(entries), reversed(summaries), strict=True):
        if entry.manifest is not None and epoch in (None, summary.epoch):
            operators = [
                _operator(entry.manifest.program.get(uid), acks, entry.manifest)
                for uid, acks in entry.manifest.operators.items()
            ]
            return CheckpointDetails(summary, operators, entry.manifest)
    known = ", ".join(str(summary.epoch) for summary in summaries) or "none"
    wanted = "no checkpoint" if epoch is None else f"no checkpoint {epoch}"
    message = f"{storage.location} has {wanted}; there are: {known}"
    raise CheckpointError(message)


def verify_checkpoints(storage: CheckpointStorage) -> Verification:
    """Read every file that a checkpoint needs and compare its size and checksum.

    A checkpoint that the running job deletes meanwhile is left out.
    """
    result = Verification()
    log = ManifestLog(storage)
    try:
        if JobIdentity.load(storage) is None:
            result.problems.append(Problem(None, "job.json", "missing: not a checkpoint directory"))
    except CheckpointError as error:
        result.problems.append(Problem(None, "job.json", str(error)))
    checked: dict[str, str | None] = {}
    if not result.problems and storage.exists(DESCRIPTION):
        _verify_canonical(storage, result)
    oldest = log.oldest_checkpoint()
    for version in log.versions():
        try:
            manifest = log.read(version).manifest
        except FileNotFoundError:
            continue
        except CheckpointError as error:
            result.problems.append(Problem(None, log.name(version), str(error)))
            continue
        if manifest is None or version < oldest:
            continue
        problems = _verify_files(storage, manifest.epoch, _files(manifest), checked, result)
        if problems and not storage.exists(log.name(version)):
            continue
        result.checkpoints += 1
        result.problems += problems
    return result


def verify_checkpoint(storage: CheckpointStorage, manifest: Manifest) -> list[Problem]:
    """Read every file of one checkpoint; returns what is missing or damaged."""
    return _verify_files(storage, manifest.epoch, _files(manifest), {}, Verification())


def _verify_canonical(storage: CheckpointStorage, result: Verification) -> None:
    """Check the files of a savepoint that has no log."""
    try:
        saved = read_canonical(storage)
    except CheckpointError as error:
        result.problems.append(Problem(None, DESCRIPTION, str(error)))
        return
    if saved is not None:
        result.checkpoints += 1
        files = [each.file for each in saved.files.values()]
        result.problems += _verify_files(storage, saved.manifest.epoch, files, {}, result)


def _verify_files(
    storage: CheckpointStorage,
    epoch: int,
    files: list[StateFile],
    checked: dict[str, str | None],
    result: Verification,
) -> list[Problem]:
    problems = []
    for file in files:
        name = file["remote"]
        if name not in checked:
            try:
                content = storage.read(name)
            except (DirectoryError, OSError) as error:
                checked[name] = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            else:
                checked[name] = difference([content], file)
                result.files += 1
                result.size += len(content)
        reason = checked[name]
        if reason is not None:
            problems.append(Problem(epoch, name, reason))
    return problems


def _files(manifest: Manifest) -> list[StateFile]:
    """The files it needs, each once."""
    return list({file["remote"]: file for file in manifest.files()}.values())


def _names(files: list[StateFile]) -> set[str]:
    return {file["remote"] for file in files}


def _summaries(entries: list[LogVersion]) -> list[CheckpointSummary]:
    summaries: list[CheckpointSummary] = []
    older: set[str] = set()
    for entry in entries:
        manifest = entry.manifest
        if manifest is None:
            continue
        files = _files(manifest)
        summaries.append(
            CheckpointSummary(
                epoch=manifest.epoch,
                version=entry.version,
                generation=entry.generation,
                started=manifest.started,
                published=manifest.published,
                state_size=sum(file["size"] for file in files),
                new_state_size=sum(file["size"] for file in files if file["remote"] not in older),
                state_files=len(files),
                committables=sum(manifest.committable_counts().values()),
                final=manifest.final,
                in_flight_size=sum(frames.file["size"] for frames in manifest.in_flight),
                written=1 + len({pack_of(name) or name for name in _names(files) - older}),
                requests=manifest.requests,
            )
        )
        older |= state_names(manifest)
    return summaries


def _operator(
    record: OperatorRecord | None, acks: list[OperatorAck], manifest: Manifest
) -> OperatorDetails:
    uid = acks[0].uid
    record = record or OperatorRecord(uid, "")
    watermark = min(ack.watermark for ack in acks)
    holding = sorted(
        f"{source}/{split.split_id}"
        for source, splits in manifest.splits.items()
        for split in splits.values()
        if split.watermark == watermark != MIN_TIMESTAMP and not split.idle
    )
    handles = [ack.state for ack in acks if ack.state is not None]
    sizes = {file["remote"]: file["size"] for ack in acks for file in ack.files()}
    return OperatorDetails(
        uid=uid,
        kind=record.kind,
        name=record.name,
        location=record.location,
        subtasks=len(acks),
        watermark=watermark,
        backends=sorted({handle["backend"] for handle in handles}),
        state_files=len(sizes),
        state_size=sum(sizes.values()),
        operator_state_size=sum(
            len(element)
            for ack in acks
            for handle in ack.operator_states.values()
            for element in handle.inline
        ),
        committables=sum(len(ack.committables) for ack in acks),
        held_back_by=holding[0] if holding else "",
        late_records_dropped=manifest.totals.get(f"{uid}.numLateRecordsDropped", 0),
        keeps=[
            *(f"{section.name}: {section}" for section in record.sections),
            *(f"{name!r}: {state}" for name, state in record.states.items()),
            *_operator_states(acks),
        ],
    )


def _operator_states(acks: list[OperatorAck]) -> Iterator[str]:
    """A line for each operator state, with the number of its elements in all subtasks."""
    for name in sorted({name for ack in acks for name in ack.operator_states}):
        handles = [ack.operator_states[name] for ack in acks if name in ack.operator_states]
        kind = handles[0].kind
        of_type = f" of {handles[0].type}" if handles[0].type else ""
        if kind is OperatorStateKind.BROADCAST:
            yield f"{name!r}: {kind.label}{of_type}, {handles[0].count} entries"
        else:
            count = sum(handle.count for handle in handles)
            yield f"{name!r}: operator {kind.label}{of_type}, {count} elements"


#: Where blobs lie that are signed; state files are named in manifests with their digests.
_SIGNED: Final = ("log/", "sources/", "sinks/")


class _UnsignedToo(HmacSeal):
    """Reads what is not signed yet, and what was signed with the same key."""

    def open(self, name: str, stored: bytes, location: str) -> bytes:
        return super().open(name, stored, location) if is_sealed(stored) else stored


def sign_directory(directory: str, key_file: str) -> int:
    """Sign everything that a job reads from its checkpoint directory.

    The job must not run.  If this is interrupted it is done again; what is signed stays as it is.

    Returns:
        How many blobs are signed.

    Raises:
        CheckpointError: something is damaged or was signed with another key.
        ConfigurationError: the key cannot be used.
        DirectoryError: the directory cannot be written to.
    """
    storage = open_storage(directory, seal=_UnsignedToo(key_file))
    storage.check()
    problems = verify_checkpoints(storage).problems
    if problems:
        told = "; ".join(f"{each.name}: {each.reason}" for each in problems)
        message = f"{storage.location} is not signed, for something in it is wrong: {told}"
        raise CheckpointError(message)
    names = list(_signed_names(storage))
    for name in names:
        storage.write(name, storage.read(name))
    return len(names)


def _signed_names(storage: CheckpointStorage) -> Iterator[str]:
    for name in storage.list_names(""):
        if name.startswith(_SIGNED) or ("/" not in name and name.endswith(".json")):
            yield name
