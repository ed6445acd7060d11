"""Transactions of Kafka, inspected and ended from outside the producer that began them.

On ``kafka-python``'s protocol layer, since librdkafka cannot: list, describe, commit and abort
transactions by transactional id, producer id and producer epoch, and read the *marker*.

The marker is an offset commit within the transaction: consumer group = the transactional id, offset
= the epoch, metadata = the attempt.  It exists if and only if the transaction was committed.
Brokers alone do not show it: a producer keeps its id and epoch from one transaction to the next,
and some answer an EndTxn(commit) for a transaction that was aborted with success.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.connectors.kafka.client import (
    KafkaCluster,
    KafkaTopicPartition,
    python_client_options,
    quiet_python_client,
)
from millstream.connectors.output_names import OutputNames, generation_of
from millstream.contracts.sink import Committer
from millstream.crash_points import crash_point
from millstream.errors import ConfigurationError, PermanentSinkError, SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import TypeVar

    from millstream.contracts.sink import CommitRequest, Committable, CommitterContext

    T = TypeVar("T")


_LOG: Final = logging.getLogger("millstream.kafka")
#: Milliseconds that a broker may take to answer, and to finish what it has begun, if the client's
#: properties do not say (request.timeout.ms); as in Java's client.
_REQUEST_TIMEOUT: Final = 30_000
_PAUSE: Final = 0.02
#: EndTxn of later versions also bumps the producer's epoch, of which librdkafka would not know.
_END_VERSION: Final = 3

# Error codes of the protocol.
_TRY_AGAIN: Final = frozenset({51, 14, 7})  # CONCURRENT_TRANSACTIONS, COORDINATOR_LOAD, TIMED_OUT
_ELSEWHERE: Final = frozenset({15, 16})  # the coordinator is another one
_TIMEOUT_TOO_LARGE: Final = 50
_FORBIDDEN: Final = frozenset({31, 53})  # AUTHORIZATION_FAILED of cluster and transactional id
_RIGHTS: Final = (
    "The client needs WRITE and DESCRIBE on transactional ids with the sink's prefix, READ on"
    " groups with it, and WRITE, READ and DESCRIBE on the topic"
)
#: States of a transactional id in which nothing is open.
_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class Outcome(Enum):
    """The end of a prepared transaction."""

    #: Records and marker are in the topics.
    COMMITTED = "committed"
    #: Prepared and open.
    OPEN = "open"
    #: A later epoch of the same producer is in the topics.
    OVERTAKEN = "overtaken"
    #: Neither: it was aborted, by its timeout or by somebody.
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """All that is needed to end a transaction, and to recognise that it was ended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: The metadata of the marker.
    marker: str


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """The broker's description of a transactional id."""

    transactional_id: str
    #: "Ongoing", "CompleteCommit", "Empty", ...
    state: str
    producer_id: int
    producer_epoch: int
    #: Milliseconds since 1970; -1 if no transaction is open.
    started: int
    timeout: int
    #: "topic-partition", sorted.
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """A producer with an open transaction, as the leader of a partition sees it."""

    producer_id: int
    producer_epoch: int
    #: Of the last marker that the partition has of it; negative if there is none.
    coordinator_epoch: int
    #: Offset of the transaction's first record in the partition.
    start: int


class TransactionControl:
    """A connection to the transaction coordinators; opened when it is first used.

    Args:
        properties: of the client, by librdkafka's names.
        who: how errors name the asker.
    """

    def __init__(self, properties: Mapping[str, str], who: str = "Kafka transactions") -> None:
        self._properties = dict(properties)
        self._who = who
        self._admin: Any = None
        self._patience = int(properties.get("request.timeout.ms", _REQUEST_TIMEOUT)) / 1000
        #: Around the connection: several threads of a worker ask.
        self._asking = threading.RLock()
        #: Transactional id -> how many EndTxn were sent and not answered.
        self._unanswered: Counter[str] = Counter()

    def limit(self, seconds: float) -> None:
        """Let no question take longer, with a new connection in between."""
        self._patience = min(self._patience, seconds / 2)

    # -- questions -----------------------------------------------------------------------------

    def open_transactions(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix whose transaction is open."""
        listed = self._ask(lambda admin: admin.list_transactions(state_filters=["Ongoing"]))
        return sorted(
            each.transactional_id
            for listings in listed.values()
            for each in listings
            if each.transactional_id.startswith(prefix)
        )

    def unfinished(self) -> list[TransactionInfo]:
        """Every transaction that a coordinator knows and that has no end yet, whoever's it is."""
        listed = self._ask(lambda admin: admin.list_transactions())
        ids = sorted(
            each.transactional_id
            for listings in listed.values()
            for each in listings
            if str(each.state.value) not in _ENDED
        )
        found = [self.describe(each) for each in ids]
        return [info for info in found if info is not None and info.state not in _ENDED]

    def producers_with_transactions(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], list[OpenProducer]]:
        """The producers that have a transaction open in partitions, as their leaders see it.

        A partition is missing if its leader does not tell: it knows no DescribeProducers, or the
        client may not ask.
        """
        from kafka.errors import BrokerResponseError, UnsupportedVersionError

        from kafka import TopicPartition

        found: dict[tuple[str, int], list[OpenProducer]] = {}
        for partition in partitions:

            def ask(admin: Any, asked: tuple[str, int] = partition) -> list[Any]:
                try:
                    told = admin.describe_producers([TopicPartition(*asked)])
                except (BrokerResponseError, UnsupportedVersionError) as error:
                    _LOG.debug("who writes to %s-%d is not told: %r", *asked, error)
                    return []
                return [each for state in told.values() for each in state.active_producers]

            opened = [
                OpenProducer(
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.current_transaction_start_offset,
                )
                for each in self._ask(ask)
                if each.current_transaction_start_offset >= 0
            ]
            if opened:
                found[partition] = opened
        return found

    def describe(self, transactional_id: str) -> TransactionInfo | None:
        """Return what the broker knows of an id; None if it does not know it."""
        from kafka.errors import TransactionalIdNotFoundError

        def ask(admin: Any) -> Any:
            try:
                return admin.describe_transactions([transactional_id])[transactional_id]
            except TransactionalIdNotFoundError:
                return None

        found = self._ask(ask)
        return None if found is None else _info(transactional_id, found)

    def describe_all(self, transactional_ids: Collection[str]) -> dict[str, TransactionInfo]:
        """Return what the brokers know of ids, in one question; nothing at all if they lack one."""
        from kafka.errors import TransactionalIdNotFoundError

        def ask(admin: Any) -> Mapping[str, Any]:
            try:
                found: Mapping[str, Any] = admin.describe_transactions(list(transactional_ids))
            except TransactionalIdNotFoundError:
                return {}
            return found

        return {name: _info(name, found) for name, found in self._ask(ask).items()}

    def marker(self, transactional_id: str) -> str | None:
        """The marker of the last transaction of this id that was committed."""
        return self.newest_marker(transactional_id)[1]

    def newest_marker(self, transactional_id: str) -> tuple[int, str | None]:
        """Epoch and marker of the last transaction of this id that was committed; -1 if none."""
        found = self._ask(lambda admin: admin.list_group_offsets([transactional_id]))
        return _newest(found.get(transactional_id, {}))

    def newest_epoch(self, prefix: str) -> tuple[int, str]:
        """The newest epoch that any transactional id with this prefix has committed, and which.

        It goes by the markers of all of them, those of producers that are long gone too, as far as
        the brokers have not forgotten them.

        Returns:
            Epoch and transactional id; (-1, "") if no marker is left, or if the brokers do not
            let this client list groups, of which a warning is logged.

        Raises:
            SinkError: there is no answer.
        """
        from kafka.errors import BrokerResponseError, UnsupportedVersionError

        def ask(admin: Any) -> dict[str, Any]:
            try:
                listed = [str(each["group_id"]) for each in admin.list_groups()]
                groups = [each for each in listed if each.startswith(prefix)]
                return dict(admin.list_group_offsets(groups)) if groups else {}
            except (BrokerResponseError, UnsupportedVersionError) as error:
                _LOG.warning(
                    "%s: whether the topic holds later checkpoints than the checkpoint directory"
                    " cannot be found out: %r",
                    self._who,
                    error,
                )
                return {}

        epochs = [(_newest(offsets)[0], group) for group, offsets in self._ask(ask).items()]
        return max(epochs, default=(-1, ""))

    def outcome(
        self,
        prepared: PreparedTransaction,
        epoch: int,
        *,
        first: bool = False,
        known: TransactionInfo | None = None,
    ) -> Outcome:
        """Return what became of a transaction.

        Args:
            prepared: the transaction.
            epoch: what it holds the output of.
            first: nobody can have ended it on purpose: if one is open, it is this one, and the
                marker need not be asked for.
            known: what the broker has just said of it, which is enough if it is the first.

        Cases:

        1. The marker is there -> committed.
        2. That of a later epoch is there -> overtaken: who asks goes by an older copy of the
           checkpoint directory, and a transaction that is open is not the one he means.
        3. Neither is, and a transaction of the same producer is open -> it is this one: the
           producer begins another only after the marker of this one was seen.
        4. Neither is, and the broker is just ending a transaction -> wait and look again.
        5. Neither is, and none is open -> lost.

        What can never happen: an open transaction that was seen *before* the marker was found
        missing is a later one of the same producer.  Hence the order of the two questions.
        """
        limit = time.monotonic() + self._patience
        if first and known is not None and known.state == "Ongoing" and _is_of(prepared, known):
            return Outcome.OPEN
        while True:
            info = self.describe(prepared.transactional_id)
            open_now = info is not None and info.state == "Ongoing" and _is_of(prepared, info)
            if open_now and first:
                return Outcome.OPEN
            newest, marker = self.newest_marker(prepared.transactional_id)
            if marker == prepared.marker:
                return Outcome.COMMITTED
            if newest > epoch:
                return Outcome.OVERTAKEN
            if info is None:
                return Outcome.LOST
            if not info.state.startswith("Prepare"):
                return Outcome.OPEN if open_now else Outcome.LOST
            self._wait(limit, f"{prepared.transactional_id} stays in state {info.state}")

    # -- orders --------------------------------------------------------------------------------

    def commit(self, transactional_id: str, producer_id: int, epoch: int) -> bool:
        """Commit the open transaction of a producer, all of whose records must have arrived.

        There is no such order to abort: a record that is still on its way would land after the
        marker, in a transaction that no coordinator knows.  ``fence`` aborts.

        Returns:
            Whether the broker did so; False: it says that there is nothing to end.  Whatever
            it says, ``outcome`` is what tells.
        """
        from kafka.protocol.producer.transaction import EndTxnRequest

        def request() -> Any:
            return EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=True,
                max_version=_END_VERSION,
            )

        code = self._order(transactional_id, request, self._unanswered)
        if code in _FORBIDDEN:
            message = f"{self._who}: may not commit {transactional_id}: error {code}. {_RIGHTS}"
            raise PermanentSinkError(message)
        return code == 0

    def may_end_again(self, transactional_id: str) -> bool:
        """Whether a ``commit`` of this id got no answer, and may reach the broker at any time.

        Until ``fence`` locks its producer out, it would end whatever transaction is open then.
        """
        return self._unanswered[transactional_id] > 0

    def fence(self, transactional_id: str, timeout: int) -> None:
        """Abort the open transaction of an id, and lock out the producer that has it.

        InitProducerId gives the id a new producer epoch, and the abort's markers carry it into the
        partitions: they refuse what the old epoch still has on its way, whenever it arrives.

        Args:
            transactional_id: the id.
            timeout: milliseconds that the id's next transaction could stay open.

        Raises:
            ConfigurationError: the timeout is longer than the broker allows.
            SinkError: the broker refuses; PermanentSinkError: for lack of a right.
        """
        from kafka.protocol.producer.transaction import InitProducerIdRequest

        def request() -> Any:
            return InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout,
                producer_id=-1,
                producer_epoch=-1,
            )

        code = self._order(transactional_id, request)
        if code == _TIMEOUT_TOO_LARGE:
            message = (
                f"{self._who}: transaction.timeout.ms is {timeout}, which is more than"
                " transaction.max.timeout.ms of the brokers"
            )
            raise ConfigurationError(message)
        if code in _FORBIDDEN:
            message = f"{self._who}: may not abort {transactional_id}: error {code}. {_RIGHTS}"
            raise PermanentSinkError(message)
        if code:
            message = f"{self._who}: cannot abort {transactional_id}: error {code} of the broker"
            raise SinkError(message)
        del self._unanswered[transactional_id]

    def close(self) -> None:
        """Close the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    # -- talking -------------------------------------------------------------------------------

    def _order(
        self,
        transactional_id: str,
        request: Callable[[], Any],
        unanswered: Counter[str] | None = None,
    ) -> int:
        """Send a request to the id's coordinator until it is done with; its error code."""

        def send(admin: Any) -> int:
            counts = Counter[str]() if unanswered is None else unanswered
            counts[transactional_id] += 1
            code = _send(admin, transactional_id, request())
            counts[transactional_id] -= 1
            return code

        limit = time.monotonic() + self._patience
        while True:
            code = self._ask(send)
            if code in _ELSEWHERE:
                self.close()  # the address is remembered with the connections
            elif code not in _TRY_AGAIN:
                return code
            self._wait(limit, f"the coordinator of {transactional_id} answers with error {code}")

    def _wait(self, limit: float, trouble: str) -> None:
        if time.monotonic() > limit:
            message = f"{self._who}: {trouble}, for {self._patience:.0f} s"
            raise SinkError(message)
        time.sleep(_PAUSE)

    def _ask(self, question: Callable[[Any], T]) -> T:
        """Ask, with a new connection if the old one broke.

        Raises:
            SinkError: there is no answer.
            PermanentSinkError: the client lacks a right.
        """
        from kafka.errors import AuthorizationError, KafkaError

        for last in (False, True):
            try:
                with self._asking:
                    return question(self._connected())
            except AuthorizationError as error:
                message = f"{self._who}: the brokers refuse: {error!r}. {_RIGHTS}"
                raise PermanentSinkError(message) from error
            except (KafkaError, OSError) as error:
                with contextlib.suppress(Exception):  # what is broken may not close well
                    self.close()
                self._admin = None
                if last:
                    servers = self._properties.get("bootstrap.servers")
                    message = f"{self._who}: no answer from the brokers {servers!r}: {error!r}"
                    raise SinkError(message) from error
        raise AssertionError  # the second round returned or raised

    def _connected(self) -> Any:
        if self._admin is None:
            try:
                from kafka import KafkaAdminClient
            except ImportError as error:
                message = "Kafka transactions need kafka-python: pip install 'millstream[kafka]'"
                raise ConfigurationError(message) from error
            quiet_python_client()
            known = python_client_options(self._properties)
            milliseconds = int(self._patience * 1000)
            self._admin = KafkaAdminClient(
                **known, bootstrap_timeout_ms=milliseconds, request_timeout_ms=milliseconds
            )
        return self._admin


def _info(transactional_id: str, found: Any) -> TransactionInfo:
    partitions = sorted(f"{each.topic}-{each.partition}" for each in found.topic_partitions)
    return TransactionInfo(
        transactional_id=transactional_id,
        state=str(found.state.value),
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        started=found.transaction_start_time_ms,
        timeout=found.transaction_timeout_ms,
        partitions=tuple(partitions),
    )


def _newest(offsets: Mapping[Any, Any]) -> tuple[int, str | None]:
    """Epoch and marker of the last of a group's offset commits; -1 if there is none."""
    # One per topic that markers were written for; their offsets are epochs.
    entries = [each for each in offsets.values() if each.offset >= 0]
    if not entries:
        return -1, None
    newest = max(entries, key=lambda entry: int(entry.offset))
    # librdkafka counts the end of a C string.
    return int(newest.offset), str(newest.metadata).rstrip("\0")


def _is_of(prepared: PreparedTransaction, info: TransactionInfo) -> bool:
    return (info.producer_id, info.producer_epoch) == (
        prepared.producer_id,
        prepared.producer_epoch,
    )


def _send(admin: Any, transactional_id: str, request: Any) -> int:
    """Send a request to the coordinator of an id, by the ways of kafka-python's own requests."""
    from kafka.protocol.metadata import CoordinatorType

    async def send() -> Any:
        coordinator = await admin._find_coordinator_id(  # noqa: SLF001
            transactional_id, key_type=CoordinatorType.TRANSACTION
        )
        return await admin._manager.send(request, node_id=coordinator)  # noqa: SLF001

    return int(admin._manager.run(send).error_code)  # noqa: SLF001


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
        #: The epoch that the run continues from, until the topic is compared with it; None: done.
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
            last = "nothing is published" if epoch < 0 else f"checkpoint {epoch} is the last"
            message = (
                f"{sink}: {last} in the checkpoint directory, but transaction {holder} of this"
                f" job has committed checkpoint {newest}: the checkpoint directory is older than"
                " the"
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
                "the brokers have forgotten the marker of checkpoint %d (they do, after"
                " offsets.retention.minutes); the run that committed it logged it",
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
                f"output of checkpoint {epoch} cannot be committed: the brokers refuse to end"
                f" {transaction}, which is still open. Check the right to write to this id"
            )
        if outcome is Outcome.OVERTAKEN:
            return (
                f"output of checkpoint {epoch} is to be committed, but {transaction} has"
                " committed a"
                " later checkpoint since: the checkpoint directory is older than the topic. Put"
                " back both from one copy"
            )
        return (
            f"output of checkpoint {epoch} is lost: {transaction} is neither open nor committed."
            " Either"
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


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator knows."""

    partition: KafkaTopicPartition
    #: The last stable offset.
    stable: int
    #: The end of the partition's log.
    end: int
    #: Whose it is; None if the brokers do not tell.
    producer: OpenProducer | None

    def remedy(self, servers: str) -> str:
        """Return what an administrator of the cluster can do, as a command."""
        topic, number = self.partition.topic, self.partition.partition
        start = self.stable if self.producer is None else self.producer.start
        text = (
            f"kafka-transactions.sh --bootstrap-server {servers} abort --topic {topic}"
            f" --partition {number} --start-offset {start}"
        )
        if self.producer is None:
            return text
        # What Java's tool sends for a producer of which the partition has no marker yet is 0.
        return (
            f"{text}\n    or python -m kafka.admin -b {servers} transactions abort --topic {topic}"
            f" --partition {number} --producer-id {self.producer.producer_id} --producer-epoch"
            f" {self.producer.producer_epoch} --coordinator-epoch"
            f" {max(0, self.producer.coordinator_epoch)}"
        )


def find_hanging(
    properties: Mapping[str, str], control: TransactionControl
) -> list[HangingTransaction]:
    """Look through all partitions that the client may see.

    The order of the questions makes the answer true at any time, whatever happens meanwhile: what
    is open in a partition before *and* after the coordinators were asked was open then, too, and a
    coordinator knows a transaction from before its first record until its last marker is written.

    Args:
        properties: of the client.
        control: asks the coordinators.

    Returns:
        One per producer and partition; one per partition where the brokers name no producers.

    Raises:
        SinkError: the brokers do not answer.
    """
    cluster = KafkaCluster(properties, SinkError, "Kafka transactions")
    partitions = {
        KafkaTopicPartition(topic, number): "latest"
        for topic, numbers in cluster.topics().items()
        for number in numbers
    }
    before = _held_up(cluster, partitions)
    if not before:
        return []
    asked = [(partition.topic, partition.partition) for partition in before]
    opened = control.producers_with_transactions(asked)
    known = control.unfinished()
    after = _held_up(cluster, dict.fromkeys(before, "latest"))
    again = control.producers_with_transactions(asked)
    found: list[HangingTransaction] = []
    for partition, (stable, _) in before.items():
        if partition not in after or after[partition][0] != stable:
            continue
        here = [info for info in known if str(partition) in info.partitions]
        key = partition.topic, partition.partition
        still = [each for each in again.get(key, []) if each in opened.get(key, [])]
        found += _unknown(partition, after[partition], still, here)
    return found


def _held_up(
    cluster: KafkaCluster, partitions: Mapping[KafkaTopicPartition, object]
) -> dict[KafkaTopicPartition, tuple[int, int]]:
    """Last stable offset and end of those partitions in which the two differ."""
    stable = cluster.offsets(partitions, committed_only=True)
    ends = cluster.offsets(partitions)
    return {
        partition: (stable[partition], ends[partition])
        for partition in partitions
        if stable[partition] < ends[partition]
    }


def _unknown(
    partition: KafkaTopicPartition,
    offsets: tuple[int, int],
    producers: list[OpenProducer],
    known: list[TransactionInfo],
) -> list[HangingTransaction]:
    if not producers:
        # What is open first holds the offset; with a known one there may be others after it.
        return [] if known else [HangingTransaction(partition, *offsets, None)]
    ids = {info.producer_id for info in known}
    return [
        HangingTransaction(partition, *offsets, each)
        for each in producers
        if each.producer_id not in ids
    ]
