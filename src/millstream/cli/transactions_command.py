"""``millstream transactions list|commit|abort``: open Kafka transactions of a job that is gone."""

from __future__ import annotations

import io
import pickle
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

from millstream.checkpoint.commit import read_checkpoints
from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import seal_of
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.program import labels
from millstream.checkpoint.storages import open_storage
from millstream.connectors.kafka.transactions import (
    Outcome,
    TransactionControl,
    find_hanging,
    prepared_of,
)
from millstream.connectors.output_names import OutputNames, TransactionalIdParts
from millstream.errors import CheckpointError, SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.checkpoint.model import Manifest
    from millstream.connectors.kafka.transactions import PreparedTransaction, TransactionInfo


class Verdict(Enum):
    """The role of an open transaction by a checkpoint directory."""

    #: The newest manifest names it, and it is not committed yet.
    NAMED = "named"
    #: The newest manifest named the one before of the same producer, which is committed.
    LATER = "later"
    #: The directory is the job's, and no manifest names it.
    ORPHAN = "orphan"
    #: A later epoch of the same producer is committed: the directory is an older copy.
    OLD_COPY = "old copy"
    #: No directory of its job was given.
    UNKNOWN = "unknown"


#: What has become of a transaction that the newest manifest names, and what is open therefore.
_VERDICTS: Final = {
    Outcome.OPEN: Verdict.NAMED,
    Outcome.COMMITTED: Verdict.LATER,
    Outcome.OVERTAKEN: Verdict.OLD_COPY,
    Outcome.LOST: Verdict.ORPHAN,
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The owner of a transaction, as far as it is known."""

    verdict: Verdict
    #: What Millstream put into the id; None: the id is not one of Millstream's.
    parts: TransactionalIdParts | None
    #: Of the job; empty if no directory of its was given.
    job_name: str = ""
    #: What the sink is called; empty if it is not known.
    sink: str = ""
    #: Of the manifest; -1 if there is none.
    epoch: int = -1
    #: It is of the newest run, which may be about to publish it if it still lives.
    of_newest_run: bool = False

    @property
    def owner(self) -> str:
        """Job, sink and run in words."""
        if self.parts is None:
            return "not of a Millstream job"
        job = f"{self.job_name!r} ({self.parts.job_id})" if self.job_name else self.parts.job_id
        sink = self.sink or f"with the hash {self.parts.sink}"
        return f"job {job}, sink {sink}, run {self.parts.generation}"

    @property
    def reason(self) -> str:
        """The verdict in words."""
        if self.verdict is Verdict.NAMED:
            return f"the manifest of checkpoint {self.epoch} names it: to be committed"
        if self.verdict is Verdict.OLD_COPY:
            return f"checkpoint {self.epoch} is not the last committed: this directory is a copy"
        alive = ""
        if self.of_newest_run:
            alive = ", unless that run still lives and is about to publish it"
        if self.verdict is Verdict.LATER:
            return (
                f"begun after what checkpoint {self.epoch} names was committed: to be aborted"
                f"{alive}"
            )
        if self.verdict is Verdict.ORPHAN:
            return f"no manifest names it: to be aborted{alive}"
        return "whether a manifest names it is not known: give --checkpoint-dir of its job"


@dataclass(slots=True)
class _Job:
    """The content of one checkpoint directory."""

    name: str
    #: Of the newest run.
    generation: int
    #: -1 if there is no manifest.
    epoch: int
    #: Hash of an operator's uid -> what it is called.
    sinks: dict[str, str]
    #: Transactional id -> what the newest manifest names of it.
    named: dict[str, PreparedTransaction] = field(default_factory=dict)


class Owners:
    """Judges transactions by the checkpoint directories of their jobs; only reads."""

    def __init__(self, directories: Sequence[str], key_file: str = "") -> None:
        """Read the directories.

        Raises:
            CheckpointError: one is no checkpoint directory, or its newest manifest is damaged.
        """
        self._jobs: dict[str, _Job] = {}
        for directory in directories:
            storage = open_storage(directory, seal=seal_of(key_file))
            identity = JobIdentity.load(storage)
            if identity is None:
                message = f"{directory!r} is no checkpoint directory that a job has used"
                raise CheckpointError(message)
            log = ManifestLog(storage)
            checkpoints = read_checkpoints(log, identity.job_id)
            last = checkpoints[-1][1] if checkpoints else None
            job_id = identity.job_id
            names = labels(identity.program | (last.program if last is not None else {}))
            sinks = {OutputNames(job_id, uid).tag: name for uid, name in names.items()}
            newest = max((entry.generation for entry in log.entries()), default=0)
            job = _Job(identity.job_name, newest, -1 if last is None else last.epoch, sinks)
            if last is not None:
                job.named = _named(last)
            self._jobs[job_id] = job

    def judge(self, transactional_id: str, control: TransactionControl) -> Judgement:
        """Say whose an id's open transaction is.

        Args:
            transactional_id: the id.
            control: asked for the marker, if a manifest names the id.

        Raises:
            SinkError: the brokers do not answer.
        """
        parts = TransactionalIdParts.of(transactional_id)
        job = None if parts is None else self._jobs.get(parts.job_id)
        if parts is None or job is None:
            return Judgement(Verdict.UNKNOWN, parts)
        prepared = job.named.get(transactional_id)
        verdict = Verdict.ORPHAN
        if prepared is not None:
            outcome = control.outcome(prepared, job.epoch)
            verdict = _VERDICTS[outcome]
        return Judgement(
            verdict,
            parts,
            job_name=job.name,
            sink=job.sinks.get(parts.sink, ""),
            epoch=job.epoch,
            of_newest_run=parts.generation >= job.generation,
        )

    def is_committed(self, transactional_id: str, control: TransactionControl) -> bool:
        """Return whether what the newest manifest names of an id is committed; it must name it."""
        (job,) = (job for job in self._jobs.values() if transactional_id in job.named)
        return control.outcome(job.named[transactional_id], job.epoch) is Outcome.COMMITTED


def _named(manifest: Manifest) -> dict[str, PreparedTransaction]:
    """The transactions of Kafka sinks that a manifest names."""
    found = {}
    for acks in manifest.operators.values():
        for pickled in (each for ack in acks for each in ack.committables):
            try:
                prepared = prepared_of(_Plain(io.BytesIO(pickled)).load())
            except (pickle.UnpicklingError, SinkError):
                continue  # of a sink that is not Kafka's
            found[prepared.transactional_id] = prepared
    return found


class _Plain(pickle.Unpickler):
    """Plain values only: no class, so no code of anybody's."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        message = f"{module_name}.{global_name} is not a plain value"
        raise pickle.UnpicklingError(message)


def show_transactions(
    action: str,
    properties: Mapping[str, str],
    prefix: str,
    ids: Sequence[str] = (),
    *,
    directories: Sequence[str] = (),
    force: bool = False,
    key_file: str = "",
) -> int:
    """List, commit or abort open transactions.

    Args:
        action: "list", "commit" or "abort".
        properties: of the client, ``bootstrap.servers`` among them.
        prefix: what the transactional ids listed begin with.
        ids: the transactional ids to commit or abort.
        directories: checkpoint directories of the jobs they belong to.
        key_file: the key with which the directories are signed.
        force: commit or abort whatever the directories say, or do not say.

    Returns:
        The exit code.

    Raises:
        SinkError: the brokers do not answer, there is no such open transaction, or the checkpoint
            directory does not bear the action out.
        CheckpointError: a directory is none.
    """
    owners = Owners(directories, key_file)
    control = TransactionControl(properties)
    try:
        if action == "list":
            _list(control, prefix, owners)
            _list_hanging(properties, control)
        else:
            for transactional_id in ids:
                _end(control, transactional_id, owners, commit=action == "commit", force=force)
    finally:
        control.close()
    return 0


def _list(control: TransactionControl, prefix: str, owners: Owners) -> None:
    found = [control.describe(each) for each in control.open_transactions(prefix)]
    now = time.time() * 1000
    for info in found:
        if info is not None:
            _show(info, owners.judge(info.transactional_id, control), now)
    print(f"{len(found)} open transactions begin with {prefix!r}")


def _show(info: TransactionInfo, judgement: Judgement, now: float) -> None:
    age = max(0.0, now - info.started) / 1000
    print(
        f"{info.transactional_id}\n"
        f"  {info.state} for {age:.1f} s of {info.timeout / 1000:.0f} s, producer"
        f" {info.producer_id} epoch {info.producer_epoch}, {' '.join(info.partitions)}\n"
        f"  {judgement.owner}\n"
        f"  {judgement.reason}"
    )


def _list_hanging(properties: Mapping[str, str], control: TransactionControl) -> None:
    """What holds readers up and is in no coordinator's list, so in none of ours."""
    found = find_hanging(properties, control)
    for each in found:
        whose = "a producer that the brokers do not name"
        if each.producer is not None:
            whose = f"producer {each.producer.producer_id} epoch {each.producer.producer_epoch}"
        print(
            f"hanging: {each.partition} stands still for readers with read_committed at offset"
            f" {each.stable}, the log ends at {each.end}\n"
            f"  a transaction of {whose} is open there, no coordinator knows it, and nothing will"
            " end it\n"
            "  its records were aborted or come again elsewhere; who may administer the cluster"
            " aborts it by\n"
            f"    {each.remedy(properties.get('bootstrap.servers', ''))}"
        )
    if found:
        print(f"{len(found)} hanging transactions, of any prefix")


def _end(
    control: TransactionControl, transactional_id: str, owners: Owners, *, commit: bool, force: bool
) -> None:
    """Commit or abort one.

    Cases, without ``force``:

    1. The newest manifest of its job names it, and it is open -> it may be committed only.
    2. The directory of its job was given, and the newest manifest does not name it, or names one
       of the same producer that is committed already -> it may be aborted only.
    3. No directory of its job was given, or an older copy of it -> refused.

    What can never happen: what is refused here is ended by the job itself in another way.
    """
    info = control.describe(transactional_id)
    if info is None or info.state != "Ongoing":
        state = "not known" if info is None else info.state
        message = f"{transactional_id} has no open transaction: it is {state}"
        raise SinkError(message)
    judgement = owners.judge(transactional_id, control)
    named = judgement.verdict is Verdict.NAMED
    unknown = judgement.verdict in {Verdict.UNKNOWN, Verdict.OLD_COPY}
    if not force and (unknown or named is not commit):
        message = (
            f"{transactional_id} is not {'committed' if commit else 'aborted'}:"
            f" {judgement.reason}. It is {judgement.owner}. --force does it nevertheless"
        )
        raise SinkError(message)
    if not commit:
        # Not by EndTxn: its producer may live, with records on their way.
        control.fence(transactional_id, info.timeout)
        print(f"{transactional_id}: aborted")
        return
    done = control.commit(transactional_id, info.producer_id, info.producer_epoch)
    if done and named:
        # Brokers also say so of a transaction that its timeout has just aborted.
        done = owners.is_committed(transactional_id, control)
    if not done:
        message = f"the brokers refuse to end the transaction of {transactional_id}"
        raise SinkError(message)
    if not named:
        # Forced, so perhaps in the middle of it: its producer shall not go on.
        control.fence(transactional_id, info.timeout)
    print(f"{transactional_id}: committed")
