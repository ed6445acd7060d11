"""``millstream transactions list|commit|abort``: open transactions of Kafka.

What it is: for the day on which a job is not to be started again, and its open transactions keep
readers waiting.  A job itself ends all of its own.  What is to be committed and what aborted is in
the job's checkpoint directory; against it, or without it, this acts only when it is forced to.

What it is not: a way to publish what a job did not: that would be output which comes again when
the job goes on.

Read next: ``cli/transaction_owners.py``, ``connectors/kafka/transactions.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.cli.transaction_owners import Owners, Verdict
from millstream.connectors.kafka.hanging import find_hanging
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.cli.transaction_owners import Judgement
    from millstream.connectors.kafka.transactions import TransactionInfo

__all__ = ["show_transactions"]


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
