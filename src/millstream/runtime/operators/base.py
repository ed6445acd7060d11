"""What operators with a user function have in common: opening, closing, counting.

What it is: the base class of most operators in this package.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.contracts.batch import Batch
from millstream.contracts.operator import Operator, OperatorContext, OperatorSnapshot, Output
from millstream.runtime.user_code import (
    USUAL_RESULTS,
    FunctionContext,
    check_records,
    close_functions,
    open_functions,
    private_copy,
    user_error,
)
from millstream.types.output_tag import OutputTag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.contracts.metrics import MetricValue
    from millstream.contracts.operator import Checkpoint
    from millstream.state.keyed import KeyedState
    from millstream.types.types import TypeInformation


#: Longest batch that collected output is cut into.
LONGEST_BATCH = 65_536


class MeasuringOperator(Operator):
    """Counts records, and reports what user functions count and measure."""

    counted: ClassVar[Mapping[str, str]] = {
        "numRecordsIn": "records_in",
        "numRecordsOut": "records_out",
    }
    runtime_context: FunctionContext

    def __init__(self) -> None:
        """Have counted nothing."""
        self.records_in = 0
        self.records_out = 0

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        del checkpoint
        return OperatorSnapshot(metrics=self.take_metrics())

    def current_metrics(self) -> dict[str, MetricValue]:
        return {**super().current_metrics(), **self.runtime_context.metrics.current()}

    def take_metrics(self) -> dict[str, MetricValue]:
        with self._reading_gauges():
            return {**super().take_metrics(), **self.runtime_context.metrics.take_all()}

    def read_gauges(self) -> None:
        with self._reading_gauges():
            self.runtime_context.metrics.read_gauges()

    @contextlib.contextmanager
    def _reading_gauges(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise user_error(self.context, error, doing="reading a gauge") from error


class FunctionOperator(MeasuringOperator):
    """An operator around one user function."""

    def __init__(self, function: Any) -> None:
        """Take a copy of ``function`` for this subtask."""
        super().__init__()
        self.function = private_copy(function)
        self._opened = False

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.runtime_context = FunctionContext(context, self.make_keyed_state())

    def make_keyed_state(self) -> KeyedState | None:
        """Return the keyed state; called once in ``setup``.  Keyed operators override it."""
        return None

    def user_functions(self) -> Iterable[object]:
        """Return what is to be opened and closed."""
        return (self.function,)

    def open(self) -> None:
        self._opened = True
        open_functions(self.user_functions(), self.runtime_context, self.context)

    def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        close_functions(self.user_functions(), self.context)

    def emit(self, batch: Batch) -> None:
        """Emit and count."""
        count = len(batch)
        if count:
            self.records_out += count
            self.output.emit(batch)


class Collector:
    """Collects what a process or window function yields, main output and side outputs apart.

    ``flush`` emits it; side outputs go first, which no reader can tell: they are other streams.
    """

    __slots__ = ("_emit", "_operator", "_side", "timestamps", "values")

    def __init__(self, operator: Operator, emit: Callable[[Batch], None]) -> None:
        """Collect for ``operator``; main output goes through ``emit``."""
        self._operator = operator
        self._emit = emit
        self.values: list[object] = []
        self.timestamps: list[int] = []
        self._side: dict[str, tuple[list[object], list[int]]] = {}

    def collect(self, items: Iterable[Any], timestamp: int) -> None:
        """Take all ``items``; a tuple that begins with an OutputTag goes to that side output."""
        if items.__class__ not in USUAL_RESULTS:
            check_records(items, self._operator.context)
        append, append_timestamp = self.values.append, self.timestamps.append
        for item in items:
            if item.__class__ is tuple and item and item[0].__class__ is OutputTag:
                self.side(item, timestamp)
            else:
                append(item)
                append_timestamp(timestamp)

    def side(self, item: tuple[Any, ...], timestamp: int) -> None:
        """Take ``(tag, value)``; a ValueError names any other length."""
        tag, value = item
        values, timestamps = self._side.setdefault(tag.tag_id, ([], []))
        values.append(value)
        timestamps.append(timestamp)

    def stamp(self, timestamp: int) -> None:
        """Give ``timestamp`` to the values that have none yet."""
        self.timestamps.extend([timestamp] * (len(self.values) - len(self.timestamps)))

    def flush(self) -> None:
        """Emit what was collected since the last flush."""
        operator = self._operator
        if self._side:
            side, self._side = self._side, {}
            for tag, (values, timestamps) in side.items():
                kind = side_type(operator.context, tag)
                operator.output.emit_side(tag, Batch(kind, values=values, timestamps=timestamps))
        if self.values:
            values, timestamps = self.values, self.timestamps
            self.values, self.timestamps = [], []
            kind = operator.context.output_type
            for start in range(0, len(values), LONGEST_BATCH):
                stop = start + LONGEST_BATCH
                self._emit(
                    Batch(kind, values=values[start:stop], timestamps=timestamps[start:stop])
                )


def side_type(context: OperatorContext, tag: str) -> TypeInformation:
    """Return the type of a side output; untyped where none was declared."""
    kind = context.side_types.get(tag)
    if kind is None:
        from millstream.types.types import Types

        kind = Types.PICKLED_BYTE_ARRAY()
    return kind
