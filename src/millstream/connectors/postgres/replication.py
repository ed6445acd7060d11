"""Logical replication slots of PostgreSQL: checks, creation, and the stream of their messages.

psycopg 3 has no replication API, but its libpq wrapper has all that the protocol needs: a
connection with ``replication=database``, ``START_REPLICATION``, and copying in both directions
(chapter "Streaming Replication Protocol" of PostgreSQL's manual).
"""

from __future__ import annotations

import math
import select
import struct
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from millstream.connectors.commit_protocols.commit_table import identifier, quoted_parts
from millstream.connectors.postgres.sessions import driver, limit_waiting, limited_connection
from millstream.connectors.postgres.table import (
    connection_parts,
    error_text,
    no_connection,
    server_of,
)
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.connectors.postgres.table import Session


#: The only output plugin whose messages are read; it is part of the server.
PLUGIN: Final = "pgoutput"
#: Texts of values do not depend on settings of the server or role.
_SETTINGS: Final = (
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=1"
    " -c bytea_output=hex"
)
#: Seconds that the driver waits for the server.
_PATIENCE: Final = 600.0
#: Seconds that a slot may be in use: by a killed task whose end the server has not noticed.
_BUSY: Final = 60.0
_RETRY: Final = 0.1
_OBJECT_IN_USE: Final = "55006"
#: SQLSTATE -> what to do.
_ADVICE: Final = {
    "28000": "Check the user, and that pg_hba.conf lets it connect",
    "42501": "Grant the user what is missing, or let an administrator create publication and slot",
    "53400": (
        "Raise max_replication_slots and max_wal_senders and restart the server, or drop slots that"
        " nobody uses (SELECT slot_name, active FROM pg_replication_slots)"
    ),
    "53300": "Raise max_wal_senders or max_connections and restart the server",
}


def lsn_text(lsn: int) -> str:
    """A position in the write-ahead log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """A position in the write-ahead log as an integer."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


@dataclass(frozen=True)
class ReplicatedTable:
    """A table whose changes are read, by a slot and a publication."""

    #: With the password, and so never shown.
    conninfo: str = field(repr=False)
    schema: str
    table: str
    slot: str
    publication: str
    #: Whether a publication that is missing is created.
    creates_publication: bool = True

    def __str__(self) -> str:
        return f"table {self.schema}.{self.table} of {server_of(self.conninfo)}"

    @property
    def parameters(self) -> dict[str, str]:
        """Return the parameters of the connection, by libpq's names."""
        return connection_parts(self.conninfo)

    @property
    def quoted(self) -> str:
        """The table in SQL."""
        return quoted_parts([self.schema, self.table])

    # -- connections ---------------------------------------------------------------------------

    def connect(self, patience: float = _PATIENCE) -> Session:
        """Open a session that waits so many seconds for an answer; raises SourceError."""
        session: Session = self._connected({}, patience)
        return session

    def connect_replication(self) -> Any:
        """Open a connection that understands the commands of replication; raises SourceError."""
        return self._connected({"replication": "database"}, math.inf)

    def _connected(self, more: dict[str, str], patience: float) -> Any:
        from psycopg.conninfo import make_conninfo

        given = self.parameters.get("options", "")
        options = f"{given} {_SETTINGS}".strip()
        conninfo = make_conninfo(self.conninfo, options=options, **more)
        kind = driver().Connection if math.isinf(patience) else limited_connection()
        try:
            session = kind.connect(conninfo, autocommit=True, connect_timeout=10)
        except driver().Error as error:
            message = f"{self}: {no_connection(self.conninfo, error)}"
            raise SourceError(message) from error
        if not math.isinf(patience):
            limit_waiting(session, patience)
        return session

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise SourceError, with what to do, for errors of psycopg."""
        try:
            yield
        except driver().Error as error:
            raise self.error(error) from error

    def error(self, error: Exception) -> SourceError:
        """Make a SourceError of an error of the server or the connection."""
        advice = _ADVICE.get(getattr(error, "sqlstate", None) or "")
        more = "" if advice is None else f". {advice}"
        return SourceError(f"{self}, slot {self.slot!r}: {error_text(error)}{more}")

    def _refuse(self, what: str) -> NoReturn:
        message = f"{self}: {what}"
        raise SourceError(message)

    # -- checks --------------------------------------------------------------------------------

    def check(self, session: Session, *, replicates: bool, needs_old_rows: bool) -> None:
        """Check server, rights and table.

        Args:
            session: of the database.
            replicates: whether changes are read, not only rows.
            needs_old_rows: whether the row before an update is needed.

        Raises:
            SourceError: something is missing; says what to do.
        """
        with self.explained():
            if replicates:
                self._check_server(session)
            found = session.execute(
                "SELECT c.relreplident::text, has_table_privilege(c.oid, 'SELECT'), c.relkind::text"
                " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = %s AND c.relname = %s",
                (self.schema, self.table),
            ).fetchone()
        if found is None or found[2] != "r":
            what = "there is no such table; check 'schema-name' and 'table-name'"
            if found is not None:
                what = "it is not an ordinary table; name the table itself, or each partition"
            self._refuse(what)
        if not found[1]:
            what = f"the user may not read it: GRANT SELECT ON {self.quoted} TO the user"
            self._refuse(what)
        if replicates and needs_old_rows and found[0] != "f":
            self._refuse(
                f"its updates do not have the row before: run ALTER TABLE {self.quoted} REPLICA"
                " IDENTITY FULL, or set 'changelog-mode' = 'upsert'"
            )

    def _check_server(self, session: Session) -> None:
        row = session.execute(
            "SELECT current_setting('wal_level'), rolsuper OR rolreplication, rolname"
            " FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        level, may_replicate, user = row or ("", False, "")
        if level != "logical":
            self._refuse(
                f"wal_level of the server is '{level}', and logical replication needs 'logical':"
                " run ALTER SYSTEM SET wal_level = 'logical' and restart the server"
            )
        if not may_replicate:
            name = identifier(str(user))
            self._refuse(
                f"user {user!r} may not use replication: run ALTER ROLE {name} REPLICATION as a"
                " superuser"
            )

    def columns(self, session: Session) -> dict[str, int]:
        """The columns of the table with the oids of their types."""
        with self.explained():
            rows = session.execute(
                "SELECT attname, atttypid::bigint FROM pg_attribute"
                " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
                " ORDER BY attnum",
                (self.quoted,),
            ).fetchall()
        return {str(name): int(oid) for name, oid in rows}

    # -- the slot's life -----------------------------------------------------------------------

    def prepare(self, session: Session) -> int:
        """Create publication and slot where they are missing.

        Returns:
            The position up to which the slot was confirmed.

        Raises:
            SourceError: they cannot be created, or are of something else.
        """
        with self.explained():
            self._prepare_publication(session)
            if self._slot_row(session) is None:
                session.execute(
                    "SELECT pg_create_logical_replication_slot(%s, %s)", (self.slot, PLUGIN)
                )
        return self.confirmed(session)

    def _prepare_publication(self, session: Session) -> None:
        name, table = identifier(self.publication), self.quoted
        found = session.execute(
            "SELECT pubinsert AND pubupdate AND pubdelete, EXISTS (SELECT FROM"
            " pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = %s"
            " AND t.tablename = %s) FROM pg_publication p WHERE p.pubname = %s",
            (self.schema, self.table, self.publication),
        ).fetchone()
        create = f"CREATE PUBLICATION {name} FOR TABLE {table}"
        if found is None and not self.creates_publication:
            self._refuse(f"there is no publication {self.publication!r}: run {create}")
        if found is None:
            try:
                session.execute(create.encode())
            except driver().errors.InsufficientPrivilege as error:
                what = f"publication {self.publication!r} is missing and cannot be created"
                self._refuse(
                    f"{what} ({error_text(error)}): run {create} as the owner of the table"
                )
            return
        complete, has_table = found
        if not has_table:
            what = f"publication {self.publication!r} does not have the table"
            self._refuse(f"{what}: run ALTER PUBLICATION {name} ADD TABLE {table}")
        if not complete:
            self._refuse(
                f"publication {self.publication!r} leaves changes out: run ALTER PUBLICATION {name}"
                " SET (publish = 'insert, update, delete, truncate')"
            )

    def _slot_row(self, session: Session) -> Any:
        return session.execute(
            "SELECT plugin, database = current_database(), wal_status,"
            " confirmed_flush_lsn::text, active_pid FROM pg_replication_slots WHERE slot_name = %s",
            (self.slot,),
        ).fetchone()

    def confirmed(self, session: Session) -> int:
        """The position up to which the slot was confirmed.

        Raises:
            SourceError: the slot is missing, of something else, or its log was removed.
        """
        with self.explained():
            found = self._slot_row(session)
        again = "Start the job from scratch, which reads the table again"
        if found is None:
            what = (
                f"replication slot {self.slot!r} is missing, and the changes since it was dropped"
            )
            self._refuse(f"{what} are lost. {again}")
        plugin, is_here, status, confirmed, _ = found
        if plugin != PLUGIN or not is_here:
            whose = f"of plugin {plugin!r}" if plugin != PLUGIN else "of another database"
            self._refuse(f"replication slot {self.slot!r} is {whose}: choose another 'slot.name'")
        if status == "lost":
            self._refuse(
                f"the server has removed log that replication slot {self.slot!r} needs: it was"
                f" behind by more than max_slot_wal_keep_size. Drop the slot (SELECT"
                f" pg_drop_replication_slot('{self.slot}')), raise that limit. {again}"
            )
        return lsn_of(str(confirmed))

    def require(self, session: Session, position: int) -> None:
        """Check that the slot still has all changes after a position; raises SourceError."""
        confirmed = self.confirmed(session)
        if confirmed > position:
            self._refuse(
                f"replication slot {self.slot!r} was confirmed up to {lsn_text(confirmed)}, but"
                f" this job continues at {lsn_text(position)}: changes in between are lost. The"
                " slot was created again or is used by another job, or the checkpoint is older than"
                " the last one that was completed. Start the job from scratch, and use a slot for"
                " one job alone"
            )

    def advance(self, session: Session, position: int) -> None:
        """Confirm all before a position, unless the slot is in use: its user confirms then."""
        with self.explained():
            session.execute(
                "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn)"
                " FROM pg_replication_slots WHERE slot_name = %s AND NOT active"
                " AND confirmed_flush_lsn < %s::pg_lsn",
                (lsn_text(position), self.slot, lsn_text(position)),
            )

    def drop(self) -> None:
        """Drop slot and publication, if they are there; no job may use them."""
        with self.explained(), self.connect() as session:
            session.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                " WHERE slot_name = %s",
                (self.slot,),
            )
            name = identifier(self.publication)
            session.execute(f"DROP PUBLICATION IF EXISTS {name}".encode())


def current_lsn(session: Session) -> int:
    """The end of the server's log."""
    row = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    return lsn_of(str(row[0] if row else "0/0"))


# -- the stream ------------------------------------------------------------------------------------

_DATA: Final = struct.Struct(">cQQq")
_KEEPALIVE: Final = struct.Struct(">cQqB")
_STATUS: Final = struct.Struct(">cQQQqB")
#: Messages that are taken at most before others of the task have their turn.
_MOST: Final = 5000


class ReplicationStream:
    """Receives the messages of a slot from a position on.  Used by one thread.

    Args:
        table: the table, with its slot.
        position: all transactions that were committed after it are sent.
        heartbeat: seconds between two reports to the server while nothing else is reported.
    """

    def __init__(self, table: ReplicatedTable, position: int, heartbeat: float) -> None:
        self._table = table
        self._position = position
        self._heartbeat = heartbeat
        self._session: Any = None
        self._retry_at = 0.0
        self._give_up_at = math.inf
        self._reported = 0.0
        #: All before it was sent, or is not of the publication.
        self.reached = position
        #: What the server may forget; 0: as before.
        self._confirmed = 0

    def open(self) -> bool:
        """Start the stream; False if the slot is in use: call again.

        Raises:
            SourceError: the server refuses, or the slot was in use for too long.
        """
        if self._session is not None:
            return True
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + _RETRY
        self._give_up_at = min(self._give_up_at, now + _BUSY)
        with self._table.connect() as session:
            self._table.require(session, self._position)
        made = self._table.connect_replication()
        names = identifier(self._table.publication).replace("'", "''")
        command = (
            f"START_REPLICATION SLOT {identifier(self._table.slot)} LOGICAL"
            f" {lsn_text(self._position)} (proto_version '1', publication_names '{names}')"
        )
        with self._table.explained():
            result = made.pgconn.exec_(command.encode())
        if result.status == driver().pq.ExecStatus.COPY_BOTH:
            self._session, self._give_up_at = made, math.inf
            return True
        error = driver().errors.error_from_result(result)
        made.close()
        if error.sqlstate == _OBJECT_IN_USE and now < self._give_up_at:
            return False
        raise self._table.error(error)

    def receive(self) -> list[bytes]:
        """The messages that have arrived; never waits.

        Raises:
            SourceError: the connection is lost.
        """
        found: list[bytes] = []
        with self._table.explained():
            connection = self._session.pgconn
            connection.consume_input()
            while len(found) < _MOST:
                size, data = connection.get_copy_data(1)
                if size == 0:
                    break
                if size < 0:
                    connection.get_result()
                    message = connection.get_error_message() or "the server has ended replication"
                    raise driver().OperationalError(message)
                self._take(bytes(data), found)
            if time.monotonic() - self._reported > self._heartbeat:
                self._report(wants_reply=False)
        return found

    def _take(self, message: bytes, found: list[bytes]) -> None:
        if message[:1] == b"w":
            found.append(message[_DATA.size :])
            return
        _, end, _, wants_reply = _KEEPALIVE.unpack(message)
        self.reached = max(self.reached, end)
        if wants_reply:
            self._report(wants_reply=False)

    def wait(self, seconds: float) -> None:
        """Wait for messages, having asked the server how far it is."""
        with self._table.explained():
            self._report(wants_reply=True)
        select.select([self._session.pgconn.socket], [], [], seconds)

    def confirm(self, position: int) -> None:
        """Let the server forget what it needs for transactions that ended before a position."""
        self._confirmed = max(self._confirmed, position)
        if self._session is not None:
            with self._table.explained():
                self._report(wants_reply=False)

    def _report(self, *, wants_reply: bool) -> None:
        now = int(1e6 * (time.time() - 946_684_800))
        written = max(self.reached, self._confirmed)
        content = _STATUS.pack(b"r", written, self._confirmed, self._confirmed, now, wants_reply)
        connection = self._session.pgconn
        connection.put_copy_data(content)
        connection.flush()
        self._reported = time.monotonic()

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None
