"""Random transactions on a table, several at a time, and a strict reader of its changelog."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import psycopg
from tests.databases.server import execute

from millstream.common import Row, RowKind

if TYPE_CHECKING:
    from collections.abc import Iterable

CREATE = (
    "CREATE TABLE items (id int PRIMARY KEY, name text, amount numeric(12, 3), big text);"
    "ALTER TABLE items ALTER COLUMN big SET STORAGE EXTERNAL;"
    "ALTER TABLE items REPLICA IDENTITY FULL"
)
COLUMNS = "id, name, amount, big"


class ChangeWriter:
    """Writes to ``items`` in transactions that overlap; replayed by its seed."""

    def __init__(self, database: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._database = database
        self._sessions = [psycopg.connect(database) for _ in range(3)]
        #: By session: the ids that only it changes now, so that none waits for another.
        self._own: list[set[int]] = [set() for _ in self._sessions]

    def step(self, statements: int = 1) -> None:
        """Run some statements, each in one of the open transactions, and end some of these."""
        drawn = self._random
        for _ in range(statements):
            at = drawn.randrange(len(self._sessions))
            taken = set().union(*(own for i, own in enumerate(self._own) if i != at))
            ids = [each for each in (drawn.randrange(60), drawn.randrange(60)) if each not in taken]
            if len(set(ids)) == 2:
                self._own[at].update(ids)
                self._change(self._sessions[at], *ids)
            if drawn.random() < 0.4:
                self._end(at)

    def _change(self, session: psycopg.Connection[Any], one: int, other: int) -> None:
        drawn = self._random
        kind = drawn.choice(["insert", "insert", "update", "name", "delete", "move", "savepoint"])
        if kind == "insert":
            big = drawn.choice(["x", "y"]) * drawn.choice([1, 5000])
            session.execute(
                "INSERT INTO items VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE"
                " SET amount = excluded.amount, big = excluded.big",
                (one, drawn.choice([None, "", "a'b", "ü\n\\"]), drawn.randrange(10**6), big),
            )
        elif kind == "update":
            session.execute("UPDATE items SET amount = amount + 1.5 WHERE id = %s", (one,))
        elif kind == "name":
            session.execute("UPDATE items SET name = name || '!' WHERE id = %s", (one,))
        elif kind == "delete":
            session.execute("DELETE FROM items WHERE id = %s", (one,))
        elif kind == "move":
            session.execute(
                "UPDATE items SET id = %s WHERE id = %s AND NOT EXISTS"
                " (SELECT FROM items WHERE id = %s)",
                (other, one, other),
            )
        else:
            session.execute("SAVEPOINT here")
            session.execute("INSERT INTO items VALUES (%s) ON CONFLICT DO NOTHING", (one,))
            end = drawn.choice(["ROLLBACK TO", "RELEASE"])
            session.execute(f"{end} here".encode())

    def _end(self, at: int) -> None:
        session = self._sessions[at]
        if self._random.random() < 0.2:
            session.rollback()
        else:
            session.commit()
        self._own[at].clear()

    def end_all(self) -> None:
        """End what is open."""
        for at in range(len(self._sessions)):
            self._end(at)

    def finish(self) -> None:
        """Commit what is open."""
        for session in self._sessions:
            session.commit()
            session.close()


def content(database: str) -> list[tuple[Any, ...]]:
    """The rows of the table."""
    return execute(database, f"SELECT {COLUMNS} FROM items ORDER BY id")


def materialized(changes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The rows that a changelog leads to, each change of which must fit those before it."""
    rows: dict[int, tuple[Any, ...]] = {}
    pending: int | None = None
    for change in changes:
        assert isinstance(change, Row)
        kind, row = change.get_row_kind(), tuple(change)
        assert pending is None or (kind is RowKind.UPDATE_AFTER and row[0] == pending)
        pending = None
        if kind in {RowKind.UPDATE_BEFORE, RowKind.DELETE}:
            assert rows.pop(row[0], None) == row, f"{kind} of a row that is not there: {row!r:.200}"
            pending = row[0] if kind is RowKind.UPDATE_BEFORE else None
        else:
            assert row[0] not in rows, f"{kind} of a row that is there: {row!r:.200}"
            rows[row[0]] = row
    return sorted(rows.values())
