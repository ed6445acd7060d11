"""Sessions on a PostgreSQL server: waits are limited, older runs' ended, holders of locks named.

A driver or worker that was stopped, or whose machine fell silent, leaves a session that keeps its
locks: in the commit of a commit table for as long as a commit may take.  Every session of a sink
carries job, sink and generation in its ``application_name``, and a newer generation ends those of
older ones.

Why that is safe, mode by mode.  In all of them a generation begins with a version of the manifest
log, so that from then on no older one can publish, and sessions are looked for after that.  What
a session has not committed when it is ended, it never commits.

- *Commit table*.  A committer's transaction moves rows and enters them together: it is done, then
  the entry is found; or it is undone, and the newer run does it.  A writer's staging either was
  committed before its acknowledgement, or no manifest names it.
- *Two-phase*.  ``COMMIT PREPARED`` and ``PREPARE TRANSACTION`` are each done or not.  The first is
  looked up by its entry; the second came before the acknowledgement, or is an orphan.
- *Upsert*.  A writer acknowledges after its COMMIT.  One that is ended before has not, so its epoch
  is run again and writes the same keys.  Left alone it could replace newer rows by its older ones.

A pooler between client and server has to give each client a session of its own: sessions that are
shared carry the name of whoever used them last.
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from millstream.connectors.output_names import SERVER_PREFIX, OutputNames, generation_of
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import psycopg
    from psycopg.rows import TupleRow

    from millstream.contracts.sink import CommitterContext, WriterContext

    Session = psycopg.Connection[TupleRow]


_LOG: Final = logging.getLogger("millstream")
#: Seconds that the server gets to end a session; it takes milliseconds.
_ENDING: Final = 10.0
_POLL: Final = 0.01
#: So many holders of locks are named in a message.
_NAMED: Final = 3
_MAY_END: Final = "as the same user, as a member of pg_signal_backend, or as a superuser"

#: Of one database, for a session does not see what those of others lock.
_SESSIONS: Final = (
    "SELECT pid, application_name, usename, coalesce(state, 'state not shown to this user'),"
    " date_trunc('second', coalesce(xact_start, state_change, backend_start))"
    " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND starts_with(application_name, $1)"
)
#: Who holds the locks that writers of a table wait for.  A prepared transaction has no session;
#: its number is one of its locks.
_HOLDERS: Final = (
    "SELECT l.pid, a.application_name, a.usename, coalesce(a.state, 'state not shown'),"
    " date_trunc('second', coalesce(p.prepared, a.xact_start, a.backend_start)), p.gid, p.owner,"
    " string_agg(DISTINCT coalesce(l.mode || ' on ' || l.relation::regclass::text,"
    " 'the lock of a commit'), ', ')"
    " FROM pg_locks l"
    " LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
    " LEFT JOIN pg_locks own ON l.pid IS NULL AND own.pid IS NULL"
    " AND own.virtualtransaction = l.virtualtransaction AND own.locktype = 'transactionid'"
    " LEFT JOIN pg_prepared_xacts p ON p.transaction = own.transactionid"
    " WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (l.locktype = 'advisory' AND starts_with(a.application_name, $1)"
    " OR l.relation = ANY (SELECT to_regclass(name) FROM unnest($2::text[]) AS name)"
    " AND l.mode <> 'AccessShareLock')"
    " GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 5, 1"
)


def driver() -> Any:
    """The module psycopg.

    Raises:
        SinkError: it is not installed.
    """
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        message = "PostgreSQL needs the package psycopg: pip install 'millstream[postgres]'"
        raise SinkError(message) from error


def limit_waiting(session: Any, timeout: float, end: float = math.inf) -> None:
    """Let statements of a connection wait no longer.

    Args:
        session: made by ``limited_connection()``.
        timeout: seconds that the server may be silent.
        end: when waiting is over at the latest, by ``time.monotonic``.
    """
    session.millstream_limits = (timeout, end)


@functools.cache
def limited_connection() -> Any:
    """Return the class of the connections, with psycopg's ``connect``.

    libpq itself waits without end for a server that took the request and then fell silent (a hung
    process, a firewall or proxy that drops what it should forward), and ``statement_timeout`` is
    kept by that very server.
    """
    psycopg = driver()

    class LimitedConnection(psycopg.Connection):  # type: ignore[misc, name-defined]
        """A connection that is closed, and raises OperationalError, when no answer comes."""

        millstream_limits = (math.inf, math.inf)

        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            return super().wait(self._limited(gen), *args, **kwargs)

        def _limited(self, gen: Any) -> Generator[Any, Any, Any]:
            """The generator, ended when it is time; psycopg wakes it ten times a second."""
            timeout, end = self.millstream_limits
            heard = time.monotonic()
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    now = time.monotonic()
                    if ready:
                        heard = now
                    if now >= min(heard + timeout, end):
                        self._give_up(now - heard)
                    wanted = gen.send(ready)
            except StopIteration as stop:
                return stop.value

        def _give_up(self, silent: float) -> None:
            # Closed first: ending a COPY, say, would wait once more.
            self.pgconn.finish()
            message = (
                f"no answer from the server for {silent:.1f} s; the connection was closed, and"
                " what was sent last may or may not be done"
            )
            raise psycopg.OperationalError(message)

    return LimitedConnection


@dataclass(frozen=True, slots=True)
class RunSessions:
    """The sessions of one sink in one run of a job."""

    job_id: str
    sink_uid: str
    generation: int

    @classmethod
    def of(cls, context: WriterContext | CommitterContext) -> Self:
        """Those of a writer's or a committer's run."""
        return cls(context.job_id, context.sink_uid, context.generation)

    def name(self, role: str) -> str:
        """The ``application_name`` of one of them; raises SinkError if it is too long."""
        return self._names.of_session(self.generation, role)

    @property
    def _names(self) -> OutputNames:
        return OutputNames(self.job_id, self.sink_uid)

    def end_older(self, session: Session) -> None:
        """End the sessions of older runs of this sink, and wait until they are gone.

        One that may not be ended (of another user) or does not end is logged and left:
        it may hold nothing that is needed.  If it does, waiting for it fails and names it.

        Args:
            session: not within a transaction.
        """
        prefix = self._names.on_server
        ended: list[int] = []
        for pid, name, user, state, since in session.execute(_SESSIONS, (prefix,)).fetchall():
            started_by = generation_of(name, prefix)
            # None: somebody else's, who begins names as we do.
            if started_by is None or started_by >= self.generation:
                continue
            shown = f"session {pid} ({name}, user {user}, {state} since {since})"
            try:
                session.execute(
                    # The number may be another session's by now; its name may not.
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid = $1 AND application_name = $2",
                    (pid, name),
                )
            except driver().errors.InsufficientPrivilege as error:
                _LOG.warning(
                    "sink %s: %s is of an older run of this job and may not be ended (%s): SELECT"
                    " pg_terminate_backend(%d) ends it, %s",
                    self.sink_uid,
                    shown,
                    error.diag.message_primary,
                    pid,
                    _MAY_END,
                )
            else:
                ended.append(pid)
                _LOG.info("sink %s: ended %s of an older run", self.sink_uid, shown)
        if ended:
            self._wait_for(session, prefix, ended)

    def _wait_for(self, session: Session, prefix: str, ended: Sequence[int]) -> None:
        limit = time.monotonic() + _ENDING
        left = (
            "SELECT pid FROM pg_stat_activity"
            " WHERE pid = ANY($1::int[]) AND starts_with(application_name, $2)"
        )
        while still := session.execute(left, (list(ended), prefix)).fetchall():
            if time.monotonic() > limit:
                pids = ", ".join(str(pid) for (pid,) in still)
                _LOG.warning(
                    "sink %s: session %s of an older run has not ended in %.0f s",
                    self.sink_uid,
                    pids,
                    _ENDING,
                )
                return
            time.sleep(_POLL)


def lock_holders(session: Session, tables: Sequence[str]) -> str:
    """Who holds locks on tables now, and what to do about each, in words.

    Args:
        session: not within a transaction; its own locks are passed over.
        tables: in SQL; one that is not there is passed over.
    """
    found = session.execute(_HOLDERS, (SERVER_PREFIX, list(tables))).fetchall()
    if not found:
        return (
            "Whoever held it has let go since; pg_locks shows who holds what, pg_stat_activity and"
            " pg_prepared_xacts who that is"
        )
    text = "Held by " + "; by ".join(_holder(row) for row in found[:_NAMED])
    return text if len(found) <= _NAMED else f"{text}; and by {len(found) - _NAMED} more (pg_locks)"


def _holder(row: Sequence[Any]) -> str:
    pid, name, user, state, since, gid, owner, locks = row
    if pid is not None:
        return (
            f"session {pid} (application_name {name!r}, user {user}, {state} since {since}, with"
            f" {locks}): pg_stat_activity shows it, SELECT pg_terminate_backend({pid}) ends it,"
            f" {_MAY_END}"
        )
    if gid is None:
        return f"a prepared transaction (with {locks}), which pg_prepared_xacts shows"
    advice = f"ROLLBACK PREPARED '{gid}' drops it"
    if gid.startswith(SERVER_PREFIX):
        advice = (
            "the next run of its job commits it or rolls it back; if that job does not run any"
            f" more, {advice}, and its rows with it"
        )
    return (
        f"prepared transaction {gid!r} (of {owner}, prepared {since}, with {locks}), which"
        f" pg_prepared_xacts shows: {advice}"
    )
