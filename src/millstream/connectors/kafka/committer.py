"""Ends the transactions that writers prepared, from the driver.

What it is: the exactly-once half of the Kafka sink.  For each committable it finds one of:

1. The transaction is open: nobody committed it yet.  It is committed by a request of the driver's
   own, with the writer's producer id and epoch; the writer may be dead by then.
2. Its marker is there: an earlier run or try committed it.
3. The marker of a later epoch is there: the checkpoint directory was put back from an older copy.
   SinkError: going on would repeat output, and what is open is not what the manifest names.
4. Neither: it was aborted, by its timeout or by somebody else.  The output of a published epoch
   is gone; SinkError says so.  Millstream itself aborts only what no manifest names, and a job
   whose timeouts could lead here is refused at submit.  But if the run that committed it has said
   so, the brokers have only forgotten: markers expire.

Before any of this, the markers of all producers that the job and sink ever had are compared with
the last manifest: the producers of an older copy need not be those that went on (``resume_from``).

A commit that got no answer may reach the broker late, when its producer is in the middle of another
transaction, and would commit half an epoch.  So its producer is locked out before it can begin one:
the id is fenced once the marker is seen.

What it is not: a producer.

Read next: ``connectors/kafka/transactions.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from millstream.connectors.kafka.transactions import (
    Outcome,
    PreparedTransaction,
    TransactionControl,
)
from millstream.connectors.output_names import OutputNames, generation_of
from millstream.contracts.sink import Committer
from millstream.crash_points import crash_point
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.connectors.kafka.transactions import TransactionInfo
    from millstream.contracts.sink import CommitRequest, Committable, CommitterContext

__all__ = ["KafkaCommitter", "committable_of"]

_LOG: Final = logging.getLogger("millstream.kafka")


class KafkaCommitter(Committer):
    """Commits prepared transactions, aborts those that no manifest names.

    Args:
        properties: of the client.
        prefix: of the transactional ids.
        timeout: transaction.timeout.ms.
    """

    def __init__(self, properties: Mapping[str, str], prefix: str, timeout: int) -> None:
        self._prefix = prefix
        self._timeout = timeout
        self._control = TransactionControl(properties, "Kafka sink")
        self._context: CommitterContext | None = None
        #: The epoch that the run goes on from, while the topic is not compared with it; None: done.
        self._compare: int | None = None
        self.target = f"Kafka {properties.get('bootstrap.servers', '')!r}"

    def open(self, context: CommitterContext) -> None:
        """Give up a try before the coordinator does."""
        self._context = context
        self._control.limit(context.timeout)

    def resume_from(self, epoch: int) -> None:
        """Compare the markers of all runs of this job and sink with the last manifest.

        Only a published epoch is committed, so a marker of a later one is of a history that this
        checkpoint directory has forgotten, or of a newer run.  A run that loses or repeats nothing
        never finds one, whatever died before.

        Raises:
            SinkError: there is one.
        """
        self._compare = epoch
        try:
            found = self._newest_epoch()
        except SinkError as error:
            # What is pending has to be told and tried again; that is for the commit.
            _LOG.warning("the topic is compared with the checkpoint directory later: %s", error)
        else:
            self._require_no_later(found)

    def _newest_epoch(self) -> tuple[int, str]:
        """The newest epoch in the topic, and whose it is; raises SinkError without an answer."""
        if self._context is None:
            message = "open() comes before everything else"
            raise SinkError(message)
        own = OutputNames.of(self._context).transactional(self._prefix)
        return self._control.newest_epoch(own)

    def _require_no_later(self, found: tuple[int, str]) -> None:
        epoch, (newest, holder) = self._compare, found
        if epoch is not None and newest > epoch:
            sink = "sink" if self._context is None else self._context.sink
            last = "nothing is published" if epoch < 0 else f"epoch {epoch} is the last"
            message = (
                f"{sink}: {last} in the checkpoint directory, but transaction {holder} of this"
                f" job has committed epoch {newest}: the checkpoint directory is older than the"
                " topic, or a newer run has taken over. Put back both from one copy. To write again"
                " what came after the copy, give the sink another set_transactional_id_prefix"
            )
            raise SinkError(message)
        self._compare = None

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit every transaction.

        One that cannot be committed does not keep the others waiting, for they time out as well.

        Raises:
            SinkError: one is lost or refused, or the brokers are away.
        """
        if self._compare is not None:
            self._require_no_later(self._newest_epoch())
        troubles = []
        # Asked for at once: one answer after the other would keep results waiting.
        new = [prepared_of(each.committable) for each in requests if not each.retried]
        ids = [each.transactional_id for each in new]
        known = self._control.describe_all(ids) if len(ids) > 1 else {}
        for request in requests:
            prepared = prepared_of(request.committable)
            trouble = self._commit(prepared, request, known.get(prepared.transactional_id))
            if trouble:
                troubles.append(trouble)
        if troubles:
            more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
            raise SinkError(troubles[0] + more)

    def _commit(
        self, prepared: PreparedTransaction, request: CommitRequest, known: TransactionInfo | None
    ) -> str:
        """Commit a transaction; why not, if it cannot be done."""
        first = not request.retried
        outcome = self._control.outcome(prepared, request.epoch, first=first, known=known)
        if outcome is Outcome.OPEN:
            crash_point("kafka.commit.before")
            done = self._control.commit(
                prepared.transactional_id, prepared.producer_id, prepared.producer_epoch
            )
            crash_point("kafka.commit.after")
            outcome = Outcome.COMMITTED if done else self._control.outcome(prepared, request.epoch)
        if outcome is Outcome.LOST and request.confirmed:
            _LOG.info(
                "the brokers have forgotten the marker of epoch %d (they do, after"
                " offsets.retention.minutes); the run that committed it said so",
                request.epoch,
            )
            return ""
        if outcome is not Outcome.COMMITTED:
            return self._trouble(prepared, request.epoch, outcome)
        if self._control.may_end_again(prepared.transactional_id):
            self._control.fence(prepared.transactional_id, self._timeout)
        return ""

    def _trouble(self, prepared: PreparedTransaction, epoch: int, outcome: Outcome) -> str:
        transaction = (
            f"transaction {prepared.transactional_id} (producer {prepared.producer_id}, epoch"
            f" {prepared.producer_epoch})"
        )
        if outcome is Outcome.OPEN:
            return (
                f"output of epoch {epoch} cannot be committed: the brokers refuse to end"
                f" {transaction}, which is still open. Check the right to write to this id"
            )
        if outcome is Outcome.OVERTAKEN:
            return (
                f"output of epoch {epoch} is to be committed, but {transaction} has committed a"
                " later epoch since: the checkpoint directory is older than the topic. Put back"
                " both from one copy"
            )
        return (
            f"output of epoch {epoch} is lost: {transaction} is neither open nor committed. Either"
            f" nothing committed it within transaction.timeout.ms ({self._timeout}), or somebody"
            " else ended it."
        )

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        """Abort open transactions of this sink and job, of this generation and older ones.

        An id that ``keep`` names may be open for two reasons: it is to be committed yet, or
        it was, and its producer has begun another transaction since, which is an orphan.
        """
        if self._compare is not None:
            self._require_no_later(self._newest_epoch())
        own = OutputNames(job_id, sink_uid).transactional(self._prefix)
        kept = {each.transactional_id: each for each in map(prepared_of, keep)}
        for transactional_id in self._control.open_transactions(own):
            made_by = generation_of(transactional_id, own)
            if made_by is None or made_by > generation:
                continue
            prepared = kept.get(transactional_id)
            if prepared is not None and self._control.marker(transactional_id) != prepared.marker:
                continue
            crash_point("kafka.abort.before")
            self._control.fence(transactional_id, self._timeout)
            crash_point("kafka.abort.after")

    def close(self) -> None:
        self._control.close()


def committable_of(prepared: PreparedTransaction) -> Committable:
    """A prepared transaction as it is kept in manifests."""
    return {
        "transactional_id": prepared.transactional_id,
        "producer_id": prepared.producer_id,
        "producer_epoch": prepared.producer_epoch,
        "marker": prepared.marker,
    }


def prepared_of(committable: Committable) -> PreparedTransaction:
    """The prepared transaction of a manifest; raises SinkError if it is none."""
    if not isinstance(committable, dict) or "transactional_id" not in committable:
        message = f"not a committable of a Kafka sink: {committable!r:.200}"
        raise SinkError(message)
    return PreparedTransaction(**cast("dict[str, str]", committable))  # type: ignore[arg-type]
