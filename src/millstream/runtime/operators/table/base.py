"""Base classes of table operators: columns in, columns out, packed state in between."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.errors import ExpressionError, StateError, TypeMismatchError
from millstream.runtime.columnar.row_groups import group_rows
from millstream.runtime.operators.base import MeasuringOperator, keyed_state_of, store_of
from millstream.runtime.user_code import FunctionContext
from millstream.state.key_codec import KeyTypes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        OperatorSnapshot,
        Output,
        RestoreContext,
        StateSection,
    )
    from millstream.runtime.columnar.row_groups import RowGroups
    from millstream.state.keyed import KeyedState


#: The values of ``RowKind``.
INSERT: Final = 0
UPDATE_BEFORE: Final = 1
UPDATE_AFTER: Final = 2
DELETE: Final = 3


def kinds_or_inserts(batch: Batch) -> NDArray[np.int8]:
    """Return the RowKind of each row."""
    kinds = batch.row_kinds
    return np.zeros(len(batch), dtype=np.int8) if kinds is None else kinds


def weights_of_kinds(kinds: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return 1 for each row that is added and -1 for each that is retracted."""
    weights: NDArray[np.int64] = 1 - 2 * (kinds & 1).astype(np.int64)
    return weights


def weights_of(batch: Batch) -> NDArray[np.int64]:
    """Return the weights of the rows of a batch."""
    return weights_of_kinds(kinds_or_inserts(batch))


def changes_of(
    before: NDArray[np.int64],
    after: NDArray[np.int64],
    *,
    update_before: bool,
    inserts: bool = True,
) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64]]:
    """Return the changes that replace rows by others, in order.

    Args:
        before: the position of each row, -1 if there was none.
        after: that of the row in its place, -1 if there is none.
        update_before: whether -U comes ahead of +U.
        inserts: whether a row where there was none is +I; +U otherwise.

    Returns:
        The position of each change's row, its kind, and which of the rows it is of.
    """
    pairs = np.stack([before, after], axis=1)
    kinds = np.empty(pairs.shape, dtype=np.int8)
    kinds[:, 0] = np.where(after < 0, DELETE, UPDATE_BEFORE)
    kinds[:, 1] = np.where((before < 0) & inserts, INSERT, UPDATE_AFTER)
    if not update_before:
        pairs[after >= 0, 0] = -1
    positions = pairs.reshape(-1)
    wanted = np.flatnonzero(positions >= 0)
    return positions[wanted], kinds.reshape(-1)[wanted], wanted >> 1


class TableOperator(MeasuringOperator):
    """Counts records and emits columns.

    An operator defines ``process_rows``, or ``process_rows_of`` if it has several inputs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.processing_time = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._schema = context.output_type.arrow_schema
        #: For user functions.
        self.runtime_context = FunctionContext(context)

    def restore(self, restored: RestoreContext) -> None:
        self.processing_time = restored.processing_time

    def process_processing_time(self, now: int) -> None:
        self.processing_time = now

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Count the rows, and have the operator's own method process them, if there are any."""
        count = len(batch)
        if count:
            self.records_in += count
            self.process_rows_of(batch, input_index)

    def process_rows_of(self, batch: Batch, input_index: int) -> None:
        """Process rows, at least one, of one input; for operators with several inputs."""
        del input_index
        self.process_rows(batch)

    def process_rows(self, batch: Batch) -> None:
        """Process rows, at least one; for operators with one input."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """How errors name it."""
        return f"operator {self.context.name!r}"

    def refuse_updates(self, batch: Batch, what: str) -> None:
        """Take inserts only.

        Raises:
            TypeMismatchError: other rows are among these; ``what`` in SQL does not take them.
        """
        kinds = batch.row_kinds
        if kinds is not None and kinds.any():
            message = f"{self.label} got updates or deletions; {what} takes inserts only"
            raise TypeMismatchError(message)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Have an expression that fails for a row say in which operator, of which job."""
        try:
            yield
        except ExpressionError as error:
            where = f"{self.label} of job {self.context.job_name!r}"
            error.args = (f"{where}: {error}", *error.args[1:])
            raise

    def emit_columns(
        self, columns: Sequence[pa.Array], kinds: NDArray[np.int8] | None = None
    ) -> None:
        """Emit rows; ``kinds`` None: all of them are inserts.

        Raises:
            TypeMismatchError: the plan has declared other columns.
        """
        count = len(columns[0])
        if not count:
            return
        self.records_out += count
        batch = Batch(self.context.output_type, arrow=self._named(columns), row_kinds=kinds)
        self.output.emit(batch)

    def _named(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        schema = self._schema
        if schema is None:
            return pa.RecordBatch.from_arrays(columns, [f"f{i}" for i in range(len(columns))])
        if len(schema) != len(columns) or any(
            column.type != field.type for column, field in zip(columns, schema, strict=True)
        ):
            message = (
                f"{self.label} gives columns {[str(c.type) for c in columns]};"
                f" its output type is {self.context.output_type}"
            )
            raise TypeMismatchError(message)
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class KeyedTableOperator(TableOperator):
    """Keeps packed rows per key."""

    keyed = True
    keyed_state: KeyedState

    def __init__(self, section: StateSection) -> None:
        super().__init__()
        self.section = section
        self.key_types = KeyTypes()

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.keyed_state = keyed_state_of(context)
        self.keyed_state.record(self.section)

    def close(self) -> None:
        super().close()
        if hasattr(self, "keyed_state"):
            self.keyed_state.live_on(False)  # noqa: FBT003 - others have its memory now

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        try:
            self.keyed_state.begin_epoch(
                store_of(restored), restored.processing_time, restored.clock
            )
        except StateError as error:
            message = f"{self.label} ({self.context.location}): {error}"
            raise type(error)(message) from error

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        self.keyed_state.processing_time = now

    @property
    def expiry_time(self) -> int:
        """The time by which state expires; ``processing_time`` may stand still in an epoch."""
        return self.keyed_state.expiry_time()

    def group(self, batch: Batch, indexes: Sequence[int]) -> RowGroups:
        """Group the rows of a batch by key columns, and make room for the state of the keys."""
        arrow = batch.arrow
        groups = group_rows([arrow.column(index) for index in indexes], len(batch))
        self.keyed_state.make_room(len(groups))
        return groups

    def write_some(self, deadline: float) -> bool:
        return self.keyed_state.write_some(deadline)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        self.keyed_state.live_on(checkpoint.next_attempt is not None)
        self.keyed_state.flush()
        snapshot = super().snapshot(checkpoint)
        snapshot.states = self.keyed_state.described()
        return snapshot


class TimedTableOperator(KeyedTableOperator):
    """Keeps the watermark, and timers."""

    def __init__(self, section: StateSection) -> None:
        super().__init__(section)
        self._watermark = MIN_TIMESTAMP

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._watermark = restored.watermark

    def due(self) -> int | None:
        return self.keyed_state.timers.processing.next_time()

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        due = self.due()
        snapshot = super().snapshot(checkpoint)
        snapshot.next_due = due
        return snapshot


class LateRowsOperator(TimedTableOperator):
    """Drops the rows that come after the watermark, and counts them."""

    counted: ClassVar[Mapping[str, str]] = {
        **TimedTableOperator.counted,
        "numLateRecordsDropped": "late",
    }

    def __init__(self, section: StateSection) -> None:
        super().__init__(section)
        #: Since the last snapshot.
        self.late = 0

    def without_late(self, arrow: pa.RecordBatch, on_time: NDArray[np.bool_]) -> pa.RecordBatch:
        """Return the rows that are on time, and count the others."""
        late = len(on_time) - int(np.count_nonzero(on_time))
        self.late += late
        return arrow.filter(pa.array(on_time)) if late else arrow
