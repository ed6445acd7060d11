"""``millstream transactions list|commit|abort``: open transactions of Kafka.

What it is: for the day on which a job is not to be started again, and its open transactions keep
readers waiting.  A job itself ends all of its own.

What it is not: a judge.  Whether a transaction is to be committed is in the job's last manifest
(``millstream checkpoints DIR inspect``).

Read next: ``connectors/kafka/transactions.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.connectors.kafka.transactions import TransactionControl
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["show_transactions"]


def show_transactions(
    action: str, properties: Mapping[str, str], prefix: str, ids: Sequence[str] = ()
) -> int:
    """List, commit or abort open transactions.

    Args:
        action: "list", "commit" or "abort".
        properties: of the client, ``bootstrap.servers`` among them.
        prefix: what the transactional ids listed begin with.
        ids: the transactional ids to commit or abort.

    Returns:
        The exit code.

    Raises:
        SinkError: the brokers do not answer, or there is no such open transaction.
    """
    control = TransactionControl(properties)
    try:
        if action == "list":
            _list(control, prefix)
        else:
            for transactional_id in ids:
                _end(control, transactional_id, commit=action == "commit")
    finally:
        control.close()
    return 0


def _list(control: TransactionControl, prefix: str) -> None:
    found = [control.describe(each) for each in control.open_transactions(prefix)]
    now = time.time() * 1000
    for info in found:
        if info is not None:
            age = (now - info.started) / 1000
            print(
                f"{info.transactional_id}  producer {info.producer_id} epoch {info.producer_epoch}"
                f"  open for {age:.1f} s of {info.timeout / 1000:.0f} s"
                f"  {' '.join(info.partitions)}"
            )
    print(f"{len(found)} open transactions begin with {prefix!r}")


def _end(control: TransactionControl, transactional_id: str, *, commit: bool) -> None:
    info = control.describe(transactional_id)
    if info is None or info.state != "Ongoing":
        state = "not known" if info is None else info.state
        message = f"{transactional_id} has no open transaction: it is {state}"
        raise SinkError(message)
    if not control.end(transactional_id, info.producer_id, info.producer_epoch, commit=commit):
        message = f"the brokers refuse to end the transaction of {transactional_id}"
        raise SinkError(message)
    print(f"{transactional_id}: {'committed' if commit else 'aborted'}")
