"""The commit table: a database keeps, with the rows themselves, which output it holds.

It makes sinks exactly-once whose target has transactions but cannot keep one open across a crash.
The rows of an epoch are staged where nobody reads them; the committer then moves them into the
table and enters them in ``millstream_commits``, in *one* transaction.  For each committable it
finds one of:

1. Its part is entered: an earlier try succeeded and could not report it.  Nothing is to be done.
2. It is not, but a later epoch of the same job and sink is, or a part of this epoch that the
   manifest does not name: this run is fenced, or the checkpoint directory was restored from an
   older copy.  SinkError: continuing would repeat or lose rows.  (In mode AT_LEAST_ONCE other
   parts of this epoch are of runs that died before they published: case 3.)
3. Neither: the rows are not in the table.  They are inserted and entered.

What can never happen: rows without their entry or the entry without them, for one transaction
writes both; two committers at a time, for the transaction locks the commit table first.
"""

from __future__ import annotations

import itertools
import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, cast

import pyarrow as pa

from millstream.connectors.formats.row_format import table_of_values
from millstream.contracts.sink import Committer
from millstream.crash_points import crash_point
from millstream.errors import PermanentSinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import CommitRequest


#: In the same database as the table that is written; made when it is missing.
COMMIT_TABLE: Final = "millstream_commits"


class OutputPart(TypedDict):
    """The part of a committable that the commit table knows; sinks add what they need."""

    job: str
    sink: str
    #: Unique in its job and sink, for every attempt.
    part: str


class CommitTable:
    """Reads and writes the commit table within the caller's transaction.

    Args:
        execute: runs a statement with parameters and returns a cursor (DB-API).
        numbered: the database marks parameters by $1, $2 (not by question marks).
    """

    #: Types that SQLite, DuckDB and PostgreSQL know.
    CREATE: Final = (
        f"CREATE TABLE IF NOT EXISTS {COMMIT_TABLE} (job TEXT NOT NULL, sink TEXT NOT NULL,"
        " part TEXT NOT NULL, epoch BIGINT NOT NULL, PRIMARY KEY (job, sink, part))"
    )

    def __init__(self, execute: Callable[..., Any], *, numbered: bool = False) -> None:
        self._execute = execute
        self._numbered = numbered

    def read(self, job: str, sink: str) -> dict[str, int]:
        """Part -> epoch of what is entered."""
        query = f"SELECT part, epoch FROM {COMMIT_TABLE} WHERE job = ? AND sink = ?"
        return dict(self._execute(self._marked(query), (job, sink)).fetchall())

    def add(self, part: OutputPart, epoch: int) -> None:
        """Enter that the rows of a part are in the table."""
        statement = f"INSERT INTO {COMMIT_TABLE} VALUES (?, ?, ?, ?)"
        values = (part["job"], part["sink"], part["part"], epoch)
        self._execute(self._marked(statement), values)

    def forget(self, parts: Sequence[OutputPart], epoch: int) -> None:
        """Drop the entries of epochs before ``epoch``, which no run commits again.

        Args:
            parts: of ``epoch``, at least one.  They stay, though they may be entered with an
                earlier one: they were written for a checkpoint that failed.
            epoch: the one that is committed.
        """
        marks = ", ".join("?" for _ in parts)
        statement = (
            f"DELETE FROM {COMMIT_TABLE} WHERE job = ? AND sink = ? AND epoch < ?"
            f" AND part NOT IN ({marks})"
        )
        names = [part["part"] for part in parts]
        values = (parts[0]["job"], parts[0]["sink"], epoch, *names)
        self._execute(self._marked(statement), values)

    def _marked(self, statement: str) -> str:
        if not self._numbered:
            return statement
        numbers = itertools.count(1)
        return re.sub(r"\?", lambda _: f"${next(numbers)}", statement)


class CommitTableTransaction(Protocol):
    """An open transaction of the target that excludes other committers."""

    @property
    def commits(self) -> CommitTable:
        """The commit table."""

    def insert(self, part: OutputPart) -> None:
        """Move the staged rows of a part into the table.

        Raises:
            SinkError: the staged rows are gone.
        """


class CommitTableCommitter(Committer):
    """Inserts staged rows and enters them, in one transaction for all parts of an epoch."""

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Insert what is not entered yet.

        Raises:
            SinkError: the target refused the rows or cannot be reached (nothing was inserted), or
                this run has been overtaken.
        """
        if not requests:
            return
        sink_uid = as_part(requests[0].committable)["sink"]
        crash_point("table.transaction.before")
        with self.transaction(sink_uid) as transaction:
            commits = transaction.commits

            def insert(part: OutputPart, epoch: int) -> None:
                transaction.insert(part)
                commits.add(part, epoch)

            parts = commit_missing(commits, requests, insert)
            crash_point("table.commit.before")
        crash_point("table.commit.after")
        self.drop(parts)

    @abstractmethod
    def transaction(self, sink_uid: str) -> AbstractContextManager[CommitTableTransaction]:
        """A transaction: committed at the end of the block, rolled back if that raises.

        It turns the target's errors into SinkError.
        """

    def drop(self, parts: Sequence[OutputPart]) -> None:
        """Drop what is staged outside of the transaction, after the commit."""


class CommittedEpoch:
    """The row that the target keeps of a job and sink, as one commit of an epoch reads it.

    Args:
        held: what the target holds, part -> epoch.
        requests: the commit: all parts of an epoch that the manifest names.
    """

    def __init__(self, held: Mapping[str, int], requests: Sequence[CommitRequest]) -> None:
        self._held = held
        named = {as_part(request.committable)["part"] for request in requests}
        #: Of what this commit does not name.
        self._newest = max((at for name, at in held.items() if name not in named), default=-1)
        self._repeats = not all(request.published for request in requests)

    def holds(self, part: OutputPart, epoch: int) -> bool:
        """Return whether a part is in the table already.

        Raises:
            SinkError: it is not, but output of a later epoch is, or other output of this one.
        """
        if part["part"] in self._held:
            return True
        if self._newest > epoch or (self._newest == epoch and not self._repeats):
            later = self._newest > epoch
            held = f"checkpoint {self._newest}" if later else "other output of this checkpoint"
            message = (
                f"sink {part['sink']}: checkpoint {epoch} is to be committed, but the target holds"
                f" {held} of this job: a newer run has taken over, or the checkpoint directory is"
                " older than the target. Put back both from one copy."
            )
            raise PermanentSinkError(message)
        return False


def commit_missing(
    commits: CommitTable,
    requests: Sequence[CommitRequest],
    commit: Callable[[OutputPart, int], None],
) -> list[OutputPart]:
    """Commit the parts of an epoch that are not entered yet, and return all of them.

    Args:
        commits: the commit table.
        requests: all parts of the epoch that the manifest names, at least one.
        commit: commits a part, and enters it.
    """
    parts = [as_part(request.committable) for request in requests]
    held = CommittedEpoch(commits.read(parts[0]["job"], parts[0]["sink"]), requests)
    for part, request in zip(parts, requests, strict=True):
        if not held.holds(part, request.epoch):
            commit(part, request.epoch)
    commits.forget(parts, max(request.epoch for request in requests))
    return parts


def as_part(committable: object) -> OutputPart:
    """The committable of a sink with a commit table.

    Raises:
        SinkError: it is none.
    """
    if not isinstance(committable, dict) or not {"job", "sink", "part"} <= committable.keys():
        message = f"not a committable of a sink with a commit table: {committable!r:.200}"
        raise PermanentSinkError(message)
    return cast("OutputPart", committable)


_PART: Final = re.compile(r'"(?:[^"]|"")+"|[^".][^.]*')
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
#: What to do about a record that a table refuses.
REFUSED: Final = "Correct the record, filter it out before the sink, or change the table"


def table_parts(name: str) -> list[str]:
    """The parts of ``schema.table``, as users write it.

    A part in double quotes is one whatever it holds, as in SQL: '"a.b"' is a table, with ``""`` for
    a quote in it.
    """
    if _NAME.fullmatch(name) is None:
        return [name]
    found = [match[0] for match in _PART.finditer(name)]
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in found]


def quoted(name: str) -> str:
    """The name of a table as SQL takes it; see ``table_parts``."""
    return quoted_parts(table_parts(name))


def quoted_parts(parts: Sequence[str]) -> str:
    """The parts of a name as SQL takes them."""
    return ".".join(map(identifier, parts))


def dot_advice(name: str) -> str:
    """Return what to say if there is no table of a name: that a dot in it has a meaning."""
    if "." not in name or '"' in name:
        return ""
    return f" (a dot separates schema and table; write '\"{name}\"' if it is part of the name)"


def identifier(name: str) -> str:
    """The name of a column as SQL takes it, dots and all."""
    return '"' + name.replace('"', '""') + '"'


def columns_of_batch(batch: Batch) -> pa.Table:
    """The records as columns; those of an untyped stream by their own names.

    Raises:
        SinkError: the values of a column have no common type, or a row is a deletion or update.
    """
    refuse_changes(batch)
    if batch.type_info.arrow_schema is None:
        return table_of_values(batch.values)
    return pa.Table.from_batches([batch.arrow])


def refuse_changes(batch: Batch) -> None:
    """Raise SinkError if a row is a deletion or update."""
    if batch.row_kinds is not None:
        message = (
            "a row is a deletion or update (its RowKind is not INSERT), which tables do not take;"
            " filter these rows or set their kind"
        )
        raise PermanentSinkError(message)


def match_columns(
    given: Sequence[str], table: Sequence[str], chosen: Sequence[str] | None, target: str
) -> list[str]:
    """The columns of the table that the given columns go to.

    Args:
        given: names in the records.
        table: names in the table.
        chosen: the user's choice of columns, in the order of the records' fields; None: by name.
        target: for messages.

    Raises:
        SinkError: a column is missing, or the numbers of columns differ.
    """
    names = list(given if chosen is None else chosen)
    if len(names) != len(given):
        message = (
            f"{target}: columns={names} are {len(names)}, but the records have {len(given)}"
            f" fields: {list(given)}"
        )
        raise PermanentSinkError(message)
    missing = [name for name in names if name not in table]
    if missing:
        message = (
            f"{target} has no column {', '.join(map(repr, missing))}; it has {list(table)}, the"
            f" records have {list(given)}. Rename the fields, or give columns=[...], the table's"
            " columns in the order of the fields"
        )
        raise PermanentSinkError(message)
    return names


def first_refused(count: int, fits: Callable[[int], bool]) -> int:
    """The position of the first record that a table refuses, by trying ever finer prefixes.

    Args:
        count: of records; all of them together are refused.
        fits: whether the first n records are accepted, tried and undone.
    """
    accepted, refused = 0, count
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if fits(middle):
            accepted = middle
        else:
            refused = middle
    return refused - 1


def record_text(rows: pa.Table, index: int) -> str:
    """A record for a message, cut short if it is long."""
    return f"{rows.slice(index, 1).to_pylist()[0]!r:.500}"
