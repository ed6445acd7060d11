"""WATERMARK FOR: the event time of rows, and watermarks of it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.configuration.option import parse_duration
from millstream.errors import UnsupportedSqlError
from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.functions.watermark_strategy import (
    FieldTimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.runtime.operators.timestamps_watermarks import TimestampsWatermarksFactory
from millstream.sql.catalog.options import IDLE_TIMEOUT
from millstream.sql.planner.calcs import keeps_time
from millstream.sql.planner.formatting import expression_text
from millstream.sql.planner.logical import SOURCE_WATERMARK
from millstream.sql.planner.physical import PhysicalNode
from millstream.sql.planner.scans import TableSourceScan
from millstream.types.logical_types import DayTimeIntervalType
from millstream.types.time import MIN_TIMESTAMP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from millstream.expressions.nodes import Expression
    from millstream.functions.watermark_strategy import WatermarkOutput
    from millstream.graph.transformation import Transformation
    from millstream.sql.planner.calcs import Converts
    from millstream.sql.planner.logical import WatermarkNode
    from millstream.sql.planner.physical import Column, Computed, Lowers, Parts


class WatermarkAssigner(PhysicalNode):
    """Makes event time."""

    rowtime: Column
    expression: Computed

    passes_keys = True
    passes_changes = True
    passes_unsure = True
    is_shared = True
    is_pruned = True
    reads_keys = False
    goes_by_columns = True
    place = "{rowtime}"
    state: ClassVar[Parts] = {"time": "*rowtime"}

    def details(self) -> str:
        name = self.row.names[self.rowtime]
        return f"rowtime=[{name}], watermark=[{expression_text(self.expression)}]"

    def operator(self, lowering: Lowers) -> Transformation:
        below = lowering.stream(self.input)
        if is_of_source(self.expression):
            return below  # they come with the rows
        idle_timeout = idle_timeout_of(self, lowering.options.idle_timeout)
        strategy = strategy_of(self.expression, self.rowtime, idle_timeout)
        are_read = lowering.are_times_read(self)
        factory = TimestampsWatermarksFactory(strategy, keeps_times=are_read)
        return lowering.one(
            self.kind, factory, below, self.row, of=self, ticks=strategy.needs_ticks
        )


def watermark(converter: Converts, node: WatermarkNode) -> PhysicalNode:
    """Make the event time of rows."""
    below = converter.convert(node.input)
    return WatermarkAssigner(
        row=node.row, inputs=(below,), rowtime=node.rowtime, expression=node.expression
    )


class DelayedWatermarks(WatermarkGenerator):
    """The watermark is the greatest timestamp less a constant."""

    vectorised: ClassVar[bool] = True

    def __init__(self, delay: int) -> None:
        """Take the delay in milliseconds."""
        self.delay = delay
        self.max_timestamp = MIN_TIMESTAMP

    def on_batch(self, timestamps: NDArray[np.int64]) -> None:
        """Take the timestamps of a batch, in milliseconds."""
        if len(timestamps):
            self.max_timestamp = max(self.max_timestamp, int(timestamps.max()))

    def current_watermark(self) -> int:
        """The watermark after all that was taken, in milliseconds."""
        if self.max_timestamp == MIN_TIMESTAMP:
            return MIN_TIMESTAMP
        return max(self.max_timestamp - self.delay, MIN_TIMESTAMP)

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Take the timestamp of one record."""
        del event, output
        self.max_timestamp = max(self.max_timestamp, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.current_watermark())


def is_of_source(expression: Expression) -> bool:
    """Return whether watermarks are those that come with the rows: SOURCE_WATERMARK()."""
    return isinstance(expression, Call) and expression.function == SOURCE_WATERMARK


def delay_of(expression: Expression, rowtime: int) -> int:
    """By how many milliseconds an expression is behind the time column.

    Raises:
        UnsupportedSqlError: it is not the column less a constant.
    """
    if isinstance(expression, InputReference) and expression.index == rowtime:
        return 0
    if isinstance(expression, Call) and keeps_time(expression):
        return delay_of(expression.arguments[0], rowtime)
    if isinstance(expression, Call) and expression.function == "-":
        column, length = expression.arguments
        if isinstance(length, Literal) and isinstance(length.type, DayTimeIntervalType):
            milliseconds: Any = length.value
            return delay_of(column, rowtime) + int(milliseconds)
    message = (
        f"WATERMARK FOR ... AS {expression}: in this release it is the column itself, or the "
        "column less a constant interval."
    )
    raise UnsupportedSqlError(message)


def idle_timeout_of(node: WatermarkAssigner, default: int | None) -> int | None:
    """Return after how many milliseconds without rows the source of watermarks is idle.

    Args:
        node: the node that emits them.
        default: ``table.exec.source.idle-timeout``, unless the table has one; None: never.
    """
    below: PhysicalNode = node
    while len(below.inputs) == 1:
        below = below.inputs[0]
    if not isinstance(below, TableSourceScan):
        return default
    given = below.table.options.get(IDLE_TIMEOUT.key)
    return default if given is None else parse_duration(given) or None


def strategy_of(
    expression: Expression, rowtime: int, idle_timeout: int | None
) -> WatermarkStrategy:
    """The strategy of a WATERMARK clause.

    Args:
        expression: over the table's row.
        rowtime: the column that is event time.
        idle_timeout: ``table.exec.source.idle-timeout``, in milliseconds; None: never.
    """
    delay = delay_of(expression, rowtime)
    made = WatermarkStrategy(
        functools.partial(DelayedWatermarks, delay), FieldTimestampAssigner(rowtime)
    )
    return made.with_idleness(idle_timeout) if idle_timeout else made
