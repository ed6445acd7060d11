"""The combiner: partial aggregates of built-in aggregates per batch, before the exchange.

It turns records into partial aggregates by key and slice (``runtime/operators/windows/chunks.py``),
so that far fewer rows are shuffled.  Buffering never changes which records are late: the partials
of a window are sent before the watermark that fires the window, and all of them before a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.contracts.operator import Operator, OperatorSnapshot
from millstream.runtime.columnar.aggregates import Aggregates, named_aggregates
from millstream.runtime.columnar.partial_aggregates import concatenated
from millstream.runtime.columnar.row_groups import KEY
from millstream.runtime.operators.base import KeyExtractor
from millstream.runtime.operators.windows.assignment import check_timestamps
from millstream.runtime.operators.windows.chunks import FLUSH, START, Panes, Partials
from millstream.runtime.user_code import FunctionContext, close_functions, open_functions
from millstream.types.types import from_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.contracts.operator import Checkpoint, RestoreContext
    from millstream.functions.window_assigners import FixedEventTimeWindows


#: Records that are gathered before they are grouped (a few tens of MB).
MOST_GATHERED: Final = 1 << 20
_MOST_FLUSHES: Final = 1 << 30


class CombinerOperator(Operator):
    """Emits partial aggregates."""

    counted: ClassVar[Mapping[str, str]] = {
        "numRecordsIn": "_records_in",
        "numRecordsOut": "_records_out",
    }

    def __init__(
        self, assigner: FixedEventTimeWindows, aggregates: Aggregates, key_selector: Any
    ) -> None:
        self._panes = Panes(assigner)
        self._partials = Partials(
            self._panes, named_aggregates(aggregates), KeyExtractor(key_selector)
        )
        self._opened = False
        self._watermark = MIN_TIMESTAMP
        self._next_firing = MAX_TIMESTAMP + 1
        self._forget()
        self._records_in = 0
        self._records_out = 0
        #: Only tells one flush from the next.
        self._flushes = 0

    def open(self) -> None:
        self._opened = True
        open_functions(self._partials.functions, FunctionContext(self.context), self.context)

    def close(self) -> None:
        if self._opened:
            self._opened = False
            close_functions(self._partials.functions, self.context)

    def restore(self, restored: RestoreContext) -> None:
        self._watermark = restored.watermark
        self._forget()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        if not len(batch):
            return
        timestamps = batch.timestamp_array
        check_timestamps(self, timestamps)
        self._records_in += len(batch)
        for table in self._partials.raw(batch, self.context):
            self._gathered.setdefault(table.schema.field(0).type, []).append(table)
        self._count += len(batch)
        # The window that fires first among those the batch is in.
        pane = self._panes.numbers(timestamps[timestamps.argmin()][None])
        first = int(self._panes.max_timestamps(self._panes.first_windows(pane))[0])
        self._next_firing = min(self._next_firing, first)
        # Nothing is held back for a window that is due already: whether a record is late is decided
        # after, by the time at which its partial comes.
        if self._count >= MOST_GATHERED or self._next_firing <= self._watermark:
            self.flush()

    def process_watermark(self, watermark: int) -> None:
        """Send what the watermark makes fire, then the watermark."""
        self._watermark = watermark
        # Only if a window fires.  Flushed with every watermark, partials would be as many as the
        # records wherever watermarks are frequent, and nothing would be saved.
        if self._next_firing <= watermark:
            self.flush()
        self.output.emit_watermark(watermark)

    def switch_channel(self, watermark: int) -> None:
        """Send everything, and continue with a channel that has reached ``watermark``."""
        self.flush()
        self._watermark = watermark

    def process_idle(self, idle: bool) -> None:  # noqa: FBT001 - as in the contract
        self.flush()
        self.output.emit_idle(idle)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Send everything: it belongs to this checkpoint, and is kept nowhere."""
        del checkpoint
        self.flush()
        return OperatorSnapshot(metrics=self.take_metrics())

    def end_input(self) -> None:
        self.flush()

    def _forget(self) -> None:
        self._gathered: dict[pa.DataType, list[pa.Table]] = {}
        self._count = 0
        self._next_firing = MAX_TIMESTAMP + 1

    def flush(self) -> None:
        """Send everything that is gathered."""
        gathered = self._gathered
        self._forget()
        for tables in gathered.values():
            table = self._partials.make(concatenated(tables), (KEY, START))
            self._flushes = (self._flushes + 1) % _MOST_FLUSHES
            number = pa.array(np.full(table.num_rows, self._flushes, dtype=np.int32))
            table = table.append_column(FLUSH, number).combine_chunks()
            for arrow in table.to_batches():
                if arrow.num_rows:
                    self._records_out += arrow.num_rows
                    kind = from_arrow_schema(arrow.schema)
                    self.output.emit(Batch(kind, arrow=arrow))


@dataclass
class CombinerFactory:
    """Factory of combiners; ``WindowFactory`` with the same arguments merges what they emit."""

    assigner: Any
    aggregates: Aggregates
    key_selector: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return CombinerOperator(self.assigner, self.aggregates, self.key_selector)
