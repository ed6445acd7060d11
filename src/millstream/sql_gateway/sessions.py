"""Sessions: a TableEnvironment for each client, with its operations and its idle timeout."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import re
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.options import DML_SYNC
from millstream.configuration.redaction import masked_statement, redacted_options
from millstream.errors import MillstreamError, ValidationError
from millstream.sql.catalog.schema import PhysicalColumn, ResolvedSchema
from millstream.sql.parser.tokens import split_statements
from millstream.sql.statements.session import SessionJobs
from millstream.sql_gateway.operations import Operation, OperationStatus
from millstream.sql_gateway.results import QueryRows, Result, ResultDescription, RowsAtHand
from millstream.table.completion import candidates
from millstream.table.result_kind import ResultKind
from millstream.table.table_environment import TableEnvironment
from millstream.types.logical_types import VarCharType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.configuration.configuration import Configuration
    from millstream.table.table_result import TableResult

_log: Final = logging.getLogger(__name__)

#: Operations that a session keeps. Results that were not fetched are dropped, the oldest first.
MOST_OPERATIONS: Final = 200
#: Options of a client's Flink configuration that are about a cluster or the client itself. A client
#: must not change how the gateway listens either.
_NOT_OF_SESSIONS: Final = re.compile(
    r"\$|env\.|rest\.|web\.|jobmanager\.|taskmanager\.|blob\.|security\.|metrics?\.|cluster\."
    r"|classloader\.|high-availability|historyserver\.|io\.tmp\.dirs|kubernetes\.|yarn\.|akka\."
    r"|pekko\.|sql-gateway\.|millstream\.(rest|web)\.|execution\.(attached|target)$|fs\."
    r"|resourcemanager\.|slotmanager\.|queryable-state\.|zookeeper\.|plugin\.|process\."
)
_CONFIGURES: Final = frozenset(
    {"SET", "RESET", "CREATE", "DROP", "USE", "ALTER", "LOAD", "UNLOAD", "ADD", "REMOVE"}
)
_BEGIN_SET: Final = re.compile(r"BEGIN\s+STATEMENT\s+SET\s*;?", re.IGNORECASE)
_END_SET: Final = re.compile(r"END\s*;?", re.IGNORECASE)


class GatewaySession:
    """A client's catalogs, temporary objects, functions and options, and its operations.

    Statements run one after the other in a thread of the session, as in Flink.
    """

    def __init__(self, configuration: Configuration, jobs: SessionJobs, name: str | None) -> None:
        """Open a session.

        Args:
            configuration: of the gateway, with the client's properties.
            jobs: the INSERT jobs of all sessions.
            name: what the client calls it.
        """
        #: Random, so that nobody can guess it.
        self.handle = str(uuid.uuid4())
        self.name = name
        self.environment = TableEnvironment.create(configuration)
        self.environment.share_jobs(jobs)
        self.used = time.monotonic()
        self._thread = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix=f"sql-gateway-{self.handle[:8]}"
        )
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}
        #: INSERT statements since BEGIN STATEMENT SET; None: none has begun.
        self._statement_set: list[str] | None = None
        self._closed = False

    # -- what clients ask for --------------------------------------------------------------------

    def properties(self) -> dict[str, str]:
        """Return the options of the session, without secrets."""
        configuration = self.environment.get_config().get_configuration()
        options = redacted_options(configuration.to_dict())
        return {key: str(value) for key, value in sorted(options.items())}

    def submit(self, statement: str, overrides: Mapping[str, str] | None = None) -> Operation:
        """Run a statement in the session's thread.

        Args:
            statement: the statement.
            overrides: options for this statement alone.

        Raises:
            ValidationError: too many operations are open, or the session is closed.
        """
        operation = Operation(lambda this: self._run(this, statement, dict(overrides or {})))
        with self._lock:
            if self._closed:
                message = "The session is closed."
                raise ValidationError(message)
            dropped = self._forget()
            self._operations[operation.handle] = operation
            self._thread.submit(operation.execute)
        for each in dropped:
            each.end(OperationStatus.CLOSED)
        return operation

    def configure(self, statement: str) -> None:
        """Run a statement that configures the session, and wait for it.

        Raises:
            ValidationError: it is a statement of another kind.
            MillstreamError: it failed.
        """
        words = _first_words(statement)
        if not words or words[0] not in _CONFIGURES or " AS SELECT" in " ".join(words):
            message = (
                "Unsupported statement for configuring session: "
                f"{masked_statement(statement)[:80]!r}. Only SET, RESET, CREATE, DROP, USE, ALTER, "
                "LOAD MODULE, UNLOAD MODULE and ADD JAR are allowed; execute others as statements."
            )
            raise ValidationError(message)
        operation = self.submit(statement)
        operation.wait()
        try:
            operation.result()
        finally:
            self.close_operation(operation.handle)

    def complete(self, statement: str, position: int) -> list[str]:
        """Return what the word at a position of a statement could become."""
        return candidates(self.environment, statement[:position], statement[position:])

    def operation(self, handle: str) -> Operation:
        """Return an operation.

        Raises:
            LookupError: this session has none of this handle.
        """
        found = self._operations.get(handle)
        if found is None:
            message = f"Can not find the submitted operation with the handle {handle}."
            raise LookupError(message)
        return found

    def close_operation(self, handle: str) -> None:
        """Close an operation, and the query that it runs.

        Raises:
            LookupError: this session has none of this handle.
        """
        operation = self.operation(handle)
        with self._lock:
            self._operations.pop(handle, None)
        operation.end(OperationStatus.CLOSED)

    def close(self) -> None:
        """End all queries; INSERT jobs that were submitted continue."""
        with self._lock:
            self._closed = True
            open_operations = list(self._operations.values())
            self._operations.clear()
        for operation in open_operations:
            operation.end(OperationStatus.CLOSED)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _forget(self) -> list[Operation]:
        """Take out the oldest operations of which nothing runs, if there are too many."""
        dropped = []
        while len(self._operations) >= MOST_OPERATIONS:
            handle = next((h for h, each in self._operations.items() if not each.is_live), None)
            if handle is None:
                message = (
                    f"The session has {MOST_OPERATIONS} operations that run, the most there may "
                    "be. Close some of them, or open another session."
                )
                raise ValidationError(message)
            dropped.append(self._operations.pop(handle))
        return dropped

    # -- in the session's thread -----------------------------------------------------------------

    def _run(self, operation: Operation, statement: str, overrides: dict[str, str]) -> Result:
        whole = self._statement_set_step(statement)
        if whole is None:
            return RowsAtHand(_text_column("result", "SUCCESS"), [("OK",)])
        configuration = self.environment.get_config().get_configuration()
        with _overridden(configuration, overrides):
            result = self.environment.start_sql(whole)
            waits = configuration.get(DML_SYNC)
        client = result.get_job_client()
        if result.query is not None:
            return QueryRows(_description(result), result)
        if client is None:
            rows: Any
            with result.collect() as rows:
                return RowsAtHand(_description(result), list(rows))
        if waits:
            operation.wait_for_job(client)
        job_id = client.job.get_job_id()
        description = _text_column("job id", "SUCCESS_WITH_CONTENT", job_id)
        return RowsAtHand(description, [(job_id,)])

    def _statement_set_step(self, statement: str) -> str | None:
        """Collect the statements of BEGIN STATEMENT SET ... END, which clients send one by one.

        Returns:
            What is to be run now; None if the statement was only kept.

        Raises:
            ValidationError: a statement set contains only INSERT.
        """
        bare = statement.strip()
        if self._statement_set is None:
            if _BEGIN_SET.fullmatch(bare):
                self._statement_set = []
                return None
            return statement
        if _END_SET.fullmatch(bare):
            inserts, self._statement_set = self._statement_set, None
            return f"BEGIN STATEMENT SET; {' '.join(inserts)} END;"
        if (_first_words(bare) or [""])[0] != "INSERT":
            message = (
                "Only INSERT statements are allowed between BEGIN STATEMENT SET and END. END runs "
                "those that were given."
            )
            raise ValidationError(message)
        self._statement_set.append(bare.rstrip(";") + ";")
        return None


def _first_words(statement: str) -> list[str]:
    parts = split_statements(statement)
    return parts[0].statement.upper().split() if parts else []


def _text_column(name: str, kind: str, job_id: str | None = None) -> ResultDescription:
    schema = ResolvedSchema((PhysicalColumn(name, VarCharType()),))
    return ResultDescription(schema, kind, is_query=False, job_id=job_id)


def _description(result: TableResult) -> ResultDescription:
    client = result.get_job_client()
    return ResultDescription(
        result.get_resolved_schema(),
        "SUCCESS" if result.get_result_kind() is ResultKind.SUCCESS else "SUCCESS_WITH_CONTENT",
        result.query is not None,
        None if client is None else client.job.get_job_id(),
    )


@contextlib.contextmanager
def _overridden(configuration: Configuration, overrides: Mapping[str, str]) -> Iterator[None]:
    """Set options for the time of a block; those that a SET in it changes stay changed."""
    before: dict[str, object] = {key: configuration.to_dict().get(key) for key in overrides}
    for key, value in overrides.items():
        configuration.set_string(key, value)
    given = {key: configuration.to_dict().get(key) for key in overrides}
    try:
        yield
    finally:
        for key, old in before.items():
            if configuration.to_dict().get(key) == given[key]:
                configuration.remove_config(key)
                if old is not None:
                    configuration.set_string(key, str(old))


class SessionManager:
    """All sessions of a gateway."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        idle_timeout: float,
        check_interval: float,
        most: int,
    ) -> None:
        """Start closing idle sessions.

        Args:
            configuration: what sessions start with.
            idle_timeout: seconds after which a session that nobody uses is closed; 0: never.
            check_interval: seconds between two checks for idle sessions.
            most: how many sessions there may be.
        """
        self._configuration = configuration
        self._idle_timeout = idle_timeout
        self._most = most
        self._jobs = SessionJobs()
        self._sessions: dict[str, GatewaySession] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        if idle_timeout > 0:
            threading.Thread(
                target=self._close_idle,
                args=(check_interval,),
                name="sql-gateway-idle",
                daemon=True,
            ).start()

    def open(self, name: str | None, properties: Mapping[str, str]) -> GatewaySession:
        """Open a session.

        Args:
            name: what the client calls it.
            properties: options, which have precedence over those of the gateway. Those that are
                about a Flink cluster are passed over: Flink's SQL client sends its configuration.

        Raises:
            ValidationError: there are too many sessions.
            ConfigurationError: a property has no valid value.
        """
        configuration = self._configuration.clone()
        for key, value in properties.items():
            if _NOT_OF_SESSIONS.match(key):
                _log.debug("Property %s of a new session is not applied", key)
                continue
            configuration.set_string(key, value)
        session = GatewaySession(configuration, self._jobs, name)
        with self._lock:
            if len(self._sessions) < self._most:
                self._sessions[session.handle] = session
                return session
        session.close()
        message = (
            f"Failed to create session, the count of active sessions exceeds the max count: "
            f"{self._most} (sql-gateway.session.max-num)."
        )
        raise ValidationError(message)

    def get(self, handle: str) -> GatewaySession:
        """Return a session, which is not idle then.

        Raises:
            LookupError: there is none of this handle.
        """
        found = self._sessions.get(handle)
        if found is None:
            message = f"Session '{handle}' does not exist. It was closed, or was idle for too long."
            raise LookupError(message)
        found.used = time.monotonic()
        return found

    def close_session(self, handle: str) -> None:
        """Close a session.

        Raises:
            LookupError: there is none of this handle.
        """
        session = self.get(handle)
        with self._lock:
            self._sessions.pop(handle, None)
        session.close()

    def close(self) -> None:
        """Close all sessions."""
        self._stopped.set()
        for handle in list(self._sessions):
            with contextlib.suppress(LookupError):
                self.close_session(handle)

    def _close_idle(self, interval: float) -> None:
        while not self._stopped.wait(interval):
            oldest = time.monotonic() - self._idle_timeout
            for session in [s for s in list(self._sessions.values()) if s.used < oldest]:
                _log.info("Closing session %s, which is idle", session.handle)
                try:
                    self.close_session(session.handle)
                except (LookupError, MillstreamError) as error:
                    _log.warning("Session %s did not close: %s", session.handle, error)
