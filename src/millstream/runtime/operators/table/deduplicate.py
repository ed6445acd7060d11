"""One row per key: deduplication, and the full changelog of upserts.

Flink's deduplicating functions (the first or the last row of a key, by arrival or by a time
attribute) and its ChangelogNormalize are one operator here: each row of the batch is compared with
the row of its key and may replace it, all of them at once.

State: per key the row, preceded by the time at which it was written, in milliseconds.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.errors import TypeMismatchError
from millstream.expressions.context import EvaluationContext
from millstream.runtime.columnar.array_utils import byte_runs
from millstream.runtime.columnar.changelog_aggregates import is_true
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.operators.table.base import (
    UPDATE_AFTER,
    KeyedTableOperator,
    changes_of,
    kinds_or_inserts,
)
from millstream.runtime.operators.table.specs import one_row_section
from millstream.state.packed_state import ExpiringRows, PackedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.contracts.operator import Operator, OperatorContext, Output, StateSection
    from millstream.expressions.evaluator import Filter
    from millstream.expressions.nodes import Expression
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.types.logical_types import RowType


_MOST: Final = 2**62


@dataclass(frozen=True, slots=True)
class Replaced:
    """How the rows of keys change, key by key, and in each key as the changes came.

    Rows are positions in the batch; from its length on, in what was kept; -1 is no row.
    """

    rows: NDArray[np.int64]
    #: What each of them took the place of.
    before: NDArray[np.int64]
    group: NDArray[np.int64]
    #: The rows of the batch that made the changes.
    by: NDArray[np.int64]

    def of_batch(self) -> Replaced:
        """The difference that the whole batch makes: the last rows, and what was kept before."""
        starts, last = _is_first(self.group), _is_first(self.group[::-1])[::-1]
        whole = Replaced(self.rows[last], self.before[starts], self.group[last], self.by[starts])
        return whole.as_they_came()

    def as_they_came(self) -> Replaced:
        """The same in the order of the batch."""
        return self.at(np.argsort(self.by, kind="stable"))

    def at(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> Replaced:
        """Some of them."""
        return Replaced(self.rows[which], self.before[which], self.group[which], self.by[which])

    def unequal(self, contents: NDArray[np.int64]) -> Replaced:
        """Those that change anything; equal rows have equal ``contents``, no row is none."""
        contents = np.append(contents, -1)
        return self.at(contents[self.rows] != contents[self.before])


def replaced(
    groups: RowGroups,
    times: NDArray[np.int64],
    gone: NDArray[np.bool_],
    kept: NDArray[np.int64],
    *,
    keep_last: bool,
) -> Replaced:
    """Find which rows of a batch take a place.

    Args:
        groups: the rows of the batch by key.
        times: of these rows, then of those that were kept.
        gone: the rows of the batch that leave their key without a row.
        kept: per group the position of the row that was kept, -1 if it has none.
        keep_last: whether a row takes the place of an earlier one or of one of the same time;
            else only that of a later one.
    """
    order, group = groups.order, groups.group_of_sorted
    is_gone = gone[order]
    # What comes after a row that is gone finds no row: it begins another run.
    begins = _is_first(group)
    there = np.where(begins, kept[group], -1)
    begins[1:] |= is_gone[:-1]
    starts = np.flatnonzero(begins)
    run, there = np.cumsum(begins) - 1, there[starts]
    least, most = int(times.min()), int(times.max())
    if (most - least + 1) * len(starts) >= _MOST:  # only their order counts
        times = np.unique(times, return_inverse=True)[1]
        least, most = 0, int(times.max())
    # Numbers that are greater in a later run, and in one run where a row goes before others.
    span = most - least + 1
    ahead = times - least if keep_last else most - times
    rank = run * span + ahead[order]
    bars = np.where(there < 0, -1, np.arange(len(starts)) * span + ahead[there])
    highest = rank.copy()
    highest[starts] = np.maximum(rank[starts], bars)
    np.maximum.accumulate(highest, out=highest)
    bar = np.append(-1, highest[:-1])
    bar[starts] = bars
    taken = np.flatnonzero(is_gone | (rank >= bar if keep_last else rank > bar))
    by, run = order[taken], run[taken]
    before = np.append(-1, by[:-1])
    firsts = _is_first(run)
    before[firsts] = there[run[firsts]]
    found = Replaced(np.where(gone[by], -1, by), before, group[taken], by)
    return found.at((found.rows >= 0) | (before >= 0)) if gone.any() else found


def _is_first(group: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether a row is the first of its group, of rows that are sorted by group."""
    found = np.ones(len(group), dtype=np.bool_)
    found[1:] = group[1:] != group[:-1]
    return found


_TIME: Final = struct.Struct("<q")
_HEAD: Final = _TIME.size
#: A column of texts takes 2 GB, and each row may be in it twice.
_MOST_BYTES: Final = 1 << 29


class _OneRowOperator(KeyedTableOperator):
    """Keeps one row per key."""

    gathers_batches: ClassVar[bool] = True
    #: The column of the times that decide, and whether the last of them wins; None: by arrival.
    _rowtime: int | None = None
    _keep_last = True
    #: Whether the first row of a key has to be +I.
    _inserts = True

    def __init__(self, plan: DeduplicateFactory | ChangelogNormalizeFactory) -> None:
        super().__init__(plan.state_sections()[0])
        self._plan: DeduplicateFactory | ChangelogNormalizeFactory = plan
        self._codec = RowCodec(plan.input_type.to_arrow_schema())

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._kept = PackedValues(self.keyed_state, "\0rows")
        if self._plan.state_ttl:
            self.keyed_state.expired.watch(ExpiringRows(self._kept, self._plan.state_ttl))

    @abstractmethod
    def gone(self, batch: Batch) -> NDArray[np.bool_]:
        """Return which rows leave their key without a row."""

    def process_rows(self, batch: Batch) -> None:
        groups = self.group(batch, self._plan.keys)
        kept = self._read(groups)
        there = [row for row in kept if row is not None]
        if len(batch) > 1 and not _is_short(batch, there):
            half = len(batch) // 2
            for part in (np.arange(half), np.arange(half, len(batch))):
                self.process_rows(batch.take(part))
            return
        is_there = np.fromiter((row is not None for row in kept), np.bool_, len(kept))
        places = np.where(is_there, len(batch) - 1 + np.cumsum(is_there), -1)
        columns = self._codec.unpack(there)
        times = self._times(batch, columns)
        found = replaced(groups, times, self.gone(batch), places, keep_last=self._keep_last)
        self._replace(batch, groups, kept, columns, found)

    def _read(self, groups: RowGroups) -> list[bytes | None]:
        stored = self._kept.get_all(groups.keys)
        ttl = self._plan.state_ttl
        if not ttl:
            return [None if each is None else each[_HEAD:] for each in stored]
        alive = self.expiry_time - ttl
        return [
            None if each is None or _TIME.unpack_from(each)[0] <= alive else each[_HEAD:]
            for each in stored
        ]

    def _times(self, batch: Batch, columns: list[pa.Array]) -> NDArray[np.int64]:
        """The times of the rows of a batch, then of those that were kept; null is before all."""
        at = self._rowtime
        if at is None:
            return np.zeros(len(batch) + len(columns[0]), dtype=np.int64)
        both = (batch.arrow.column(at), columns[at])
        found: list[NDArray[np.int64]] = [
            each.view(pa.int64()).fill_null(MIN_TIMESTAMP).to_numpy() for each in both
        ]
        return np.concatenate(found)

    def _replace(
        self,
        batch: Batch,
        groups: RowGroups,
        kept: list[bytes | None],
        columns: list[pa.Array],
        found: Replaced,
    ) -> None:
        """Write the rows that stay, and emit the changes."""
        plan, arrow = self._plan, batch.arrow
        if self._rowtime is None and not plan.state_ttl and not plan.mini_batch:
            rows = [*self._codec.pack(arrow.columns), *(row for row in kept if row is not None)]
            contents = pa.array(rows, pa.large_binary()).dictionary_encode().indices
            found = found.unequal(contents.to_numpy().astype(np.int64))
        if not len(found.by):
            return
        last = found.of_batch()
        written = self._write(groups, arrow, last)
        if plan.mini_batch:
            pairs = zip(last.group.tolist(), written, strict=True)
            found = last.at(np.array([kept[group] != row for group, row in pairs], dtype=np.bool_))
        else:
            found = found.as_they_came()
        positions, kinds, _ = changes_of(
            found.before, found.rows, update_before=plan.update_before, inserts=self._inserts
        )
        pools = [
            pa.concat_arrays([new, old]) for new, old in zip(arrow.columns, columns, strict=True)
        ]
        for run in byte_runs((pools, positions)):
            picked, kind = pa.array(positions[run]), kinds[run]
            self.emit_columns([pool.take(picked) for pool in pools], kind if kind.any() else None)

    def _write(
        self, groups: RowGroups, arrow: pa.RecordBatch, last: Replaced
    ) -> list[bytes | None]:
        """Write the last rows of keys, and return them."""
        chosen = pa.array(last.rows[last.rows >= 0])
        packed = iter(self._codec.pack([column.take(chosen) for column in arrow.columns]))
        rows = [None if row < 0 else next(packed) for row in last.rows.tolist()]
        time = _TIME.pack(self.expiry_time)
        self._kept.put_all(
            [groups.keys[group] for group in last.group.tolist()],
            [None if row is None else time + row for row in rows],
        )
        return rows


def _is_short(batch: Batch, rows: list[bytes]) -> bool:
    """Return whether columns can hold each row of a batch, and those that were kept, twice."""
    return int(batch.arrow.get_total_buffer_size()) + sum(map(len, rows)) < _MOST_BYTES


@dataclass(frozen=True)
class DeduplicateFactory:
    """The first or the last row per key, by arrival or by a time attribute.  Columns stay.

    By arrival and ``keep_last`` it also takes changelogs, as Flink's does; else inserts only.
    """

    input_type: RowType
    keys: tuple[int, ...]
    #: The column of the time attribute; None: by arrival (processing time).
    rowtime: int | None
    keep_last: bool
    update_before: bool
    #: Whether the input has only +I.
    insert_only: bool = True
    #: Whether the first row of a key has to be +I; +U otherwise, which saves keeping rows.
    generate_insert: bool = True
    mini_batch: bool = False
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [one_row_section(self.input_type)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return DeduplicateOperator(self)


class DeduplicateOperator(_OneRowOperator):
    """The first or the last row of each key."""

    def __init__(self, plan: DeduplicateFactory) -> None:
        super().__init__(plan)
        self._rowtime, self._keep_last = plan.rowtime, plan.keep_last
        self._insert_only = plan.insert_only
        self._inserts = plan.update_before or plan.generate_insert
        needs_kept = self._inserts or plan.rowtime is not None
        #: Whether every row replaces the one before it, whatever that is.
        self._passes_all = plan.keep_last and plan.insert_only and not needs_kept

    def process_rows(self, batch: Batch) -> None:
        if self._insert_only and batch.row_kinds is not None:
            message = (
                f"operator {self.context.name!r} got updates or deletions; by the plan its"
                " input only has inserts"
            )
            raise TypeMismatchError(message)
        if self._passes_all:
            kinds = np.full(len(batch), UPDATE_AFTER, dtype=np.int8)
            self.emit_columns(batch.arrow.columns, kinds)
        else:
            super().process_rows(batch)

    def gone(self, batch: Batch) -> NDArray[np.bool_]:
        return (kinds_or_inserts(batch) & 1).astype(np.bool_)


@dataclass(frozen=True)
class ChangelogNormalizeFactory:
    """Makes a full changelog of upserts (+I/+U and -D by key).  Columns stay."""

    input_type: RowType
    keys: tuple[int, ...]
    update_before: bool
    mini_batch: bool = False
    #: BOOLEAN, pushed into it; rows for which it is not true do not exist.
    condition: Expression | None = None
    evaluation: EvaluationContext = field(default_factory=EvaluationContext)
    state_ttl: int = 0
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [one_row_section(self.input_type)]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ChangelogNormalizeOperator(self)


class ChangelogNormalizeOperator(_OneRowOperator):
    """Makes a full changelog of upserts."""

    def __init__(self, plan: ChangelogNormalizeFactory) -> None:
        super().__init__(plan)
        self._evaluation = plan.evaluation
        self._condition: Filter | None = None
        if plan.condition is not None:
            from millstream.expressions.evaluator import compile_filter

            self._condition = compile_filter(plan.condition)

    def gone(self, batch: Batch) -> NDArray[np.bool_]:
        found = (kinds_or_inserts(batch) & 1).astype(np.bool_)
        if self._condition is not None:
            context = self._evaluation.at(self.processing_time)
            with self.evaluating():
                found |= ~is_true(self._condition.evaluate(batch.arrow, context))
        return found
