"""Base classes of operators with user functions, keyed and not, and the extraction of keys."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP, Batch
from millstream.contracts.operator import Operator, OperatorContext, OperatorSnapshot, Output
from millstream.errors import StateError
from millstream.runtime.operators.checkpointed_functions import OperatorFunctions
from millstream.runtime.user_code import (
    USUAL_RESULTS,
    FunctionContext,
    bound_method,
    check_records,
    functions_in,
    keys_of,
    private_copy,
    user_error,
)
from millstream.state.key_codec import KeyTypes, key_group_range
from millstream.state.keyed import KeyedState
from millstream.types.field_access import column_of, field_of
from millstream.types.output_tag import OutputTag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.metrics import MetricValue
    from millstream.contracts.operator import Checkpoint, RestoreContext
    from millstream.state.key_codec import CacheKey
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
        self._functions: OperatorFunctions | None = None

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
        self._functions = OperatorFunctions(
            self.user_functions(), self.runtime_context, self.context
        )
        self._functions.open()

    def close(self) -> None:
        if self._functions is not None:
            self._functions.close()

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        if self._functions is not None:
            self._functions.restore(restored)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        if self._functions is not None:
            self._functions.snapshot(checkpoint)
        self.flush_state(checkpoint)
        return super().snapshot(checkpoint)

    def flush_state(self, checkpoint: Checkpoint) -> None:
        """Write keyed state through, which functions may just have written; others have none."""
        del checkpoint

    def committed(self, epoch: int) -> Callable[[], None] | None:
        if self._functions is not None:
            self._functions.completed(epoch)
        return super().committed(epoch)

    def aborted(self, epoch: int) -> None:
        if self._functions is not None:
            self._functions.aborted(epoch)

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
        """Set ``timestamp`` for the values that have none yet."""
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


#: Types of keys that are dictionary keys as they are; of others the encoded form is.
PLAIN_KEY_TYPES: Final = frozenset({int, str})


# -- keyed operators ---


class KeyExtractor:
    """Takes the keys out of a batch, from its Arrow column where that is all the selector reads."""

    __slots__ = ("_field", "_select", "_types", "functions")

    def __init__(self, key_selector: Any, types: KeyTypes | None = None) -> None:
        self._types = types
        select = bound_method(private_copy(key_selector), "get_key")
        #: To be opened before keys are taken.
        self.functions = functions_in(select)
        self._select = select
        self._field = field_of(select)

    def column(self, batch: Batch) -> pa.Array | None:
        """Return the keys as an Arrow array, None if the batch has no such column."""
        if self._field is None or not batch.is_columnar:
            return None
        position = column_of(batch.type_info, self._field)
        return None if position is None else batch.arrow.column(position)

    def keys(self, batch: Batch, context: OperatorContext) -> list[Any]:
        """Return the key of each record as a Python value.

        Raises:
            UserFunctionError: the selector raised; names the record.
        """
        column = self.column(batch)
        if column is not None and pa.types.is_integer(column.type) and not column.null_count:
            keys: list[Any] = column.to_numpy().tolist()
        else:
            keys = keys_of(batch.values, self._select, context)
        if self._types is not None:
            self._types.see(keys)
        return keys


def store_of(restored: RestoreContext) -> KeyValueStore:
    """Return the store, which the runtime gives to every keyed operator."""
    if restored.store is None:
        message = "a keyed operator was started without a store"
        raise RuntimeError(message)
    return restored.store


def keyed_state_of(context: OperatorContext) -> KeyedState:
    """Make the keyed state of a subtask's key groups."""
    groups = key_group_range(context.subtask, context.max_parallelism, context.parallelism)
    made = KeyedState(context.max_parallelism, groups)
    made.most_bytes = context.configuration.get(options.MANAGED_MEMORY) // 2
    return made


class KeyedOperator(FunctionOperator):
    """An operator around a user function with keyed state."""

    keyed = True
    keyed_state: KeyedState

    def __init__(self, function: Any, key_selector: Any) -> None:
        super().__init__(function)
        #: Of the keys that this operator's extractors take.
        self.key_types = KeyTypes()
        self.extractor = KeyExtractor(key_selector, self.key_types)

    def user_functions(self) -> Iterable[object]:
        return (*super().user_functions(), *self.extractor.functions)

    def make_keyed_state(self) -> KeyedState:
        """Make the keyed state of this subtask's key groups."""
        self.keyed_state = keyed_state_of(self.context)
        return self.keyed_state

    def close(self) -> None:
        super().close()
        if hasattr(self, "keyed_state"):
            self.keyed_state.live_on(False)  # noqa: FBT003 - others have its memory now

    def restore(self, restored: RestoreContext) -> None:
        self.keyed_state.event_time = restored.watermark
        try:
            self.keyed_state.begin_epoch(
                store_of(restored), restored.processing_time, restored.clock
            )
            self._refuse_renamed()
        except StateError as error:
            raise self._of_operator(error) from error
        super().restore(restored)

    def prefetch(self, keys: list[Any]) -> list[CacheKey]:
        """Read the states of these keys in one go.

        Returns:
            What each of them is looked up by in memory.

        Raises:
            StateError: values are of a class that the program does not have.
        """
        try:
            return self.keyed_state.prefetch(keys)
        except StateError as error:
            raise self._of_operator(error) from error

    def _of_operator(self, error: StateError) -> StateError:
        # Of the same class: whether another run can help depends on it.
        return type(error)(f"operator {self.context.name!r} ({self.context.location}): {error}")

    def _refuse_renamed(self) -> None:
        ignore = options.IGNORE_UNCLAIMED_STATE
        renamed = self.keyed_state.renamed()
        if not renamed or self.context.configuration.get(ignore):
            return
        old, new, kind = renamed[0]
        message = (
            f"the checkpoint has a state {old!r} ({kind}), which the function does not declare any"
            f" more, and it declares {new!r} of the same kind, which the checkpoint does not have:"
            f" a state is found by its name. Call it {old!r} again; if it is another state, set"
            f" {ignore.key} to true once, and {old!r} is dropped"
        )
        raise StateError(message)

    def process_processing_time(self, now: int) -> None:
        """Set the clock by which state expires."""
        self.keyed_state.processing_time = now

    def due(self) -> int | None:
        """Return when the next processing-time timer is due."""
        if self.context.batch_mode:  # there they wait for the end of the input
            return None
        return self.keyed_state.timers.processing.next_time()

    def write_some(self, deadline: float) -> bool:
        return self.keyed_state.write_some(deadline)

    def is_end_of_keys(self, watermark: int) -> bool:
        """Return whether ``watermark`` ends every key: the only watermark in BATCH mode.

        As in Flink, timers that user code registers from then on are ignored, else one that
        registers the next would never end.
        """
        return self.context.batch_mode and watermark == MAX_TIMESTAMP

    def flush_state(self, checkpoint: Checkpoint) -> None:
        self.keyed_state.live_on(checkpoint.next_attempt is not None)
        try:
            self.keyed_state.drop_expired()
            self.keyed_state.flush()
        except StateError as error:  # a value that cannot be pickled
            raise self._of_operator(error) from error

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Write the state through, and report when the next processing-time timer is due."""
        due = self.due()
        snapshot = super().snapshot(checkpoint)
        snapshot.next_due = due
        snapshot.states = self.keyed_state.described()
        snapshot.unused_states = self.keyed_state.unused()
        snapshot.key_types = self.key_types.take()
        return snapshot
