"""Keyed reduce and the field aggregations sum, min, max, min_by, max_by.

What it is: one value per key, folded with each new record.  In STREAMING mode every record emits
the value so far; in BATCH mode each key emits its final value once, at the end, as in Flink: the
operator then keeps a timer at the end of time per key.

What it is not: windowed.  ``runtime/operators/windows/aligned.py`` is.

Read next: ``runtime/operators/field_aggregation.py``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.contracts.batch import MAX_TIMESTAMP, Batch
from millstream.contracts.operator import StateSection
from millstream.functions.descriptors import ValueStateDescriptor
from millstream.runtime.operators.field_aggregation import FieldAggregation
from millstream.runtime.operators.keyed import PLAIN_KEY_TYPES, KeyedOperator
from millstream.runtime.user_code import NO_RECORD, bound_method, user_error
from millstream.types.row import Row, row_class

if TYPE_CHECKING:
    from millstream.contracts.operator import Operator

__all__ = ["KeyedAggregateFactory", "KeyedReduceFactory", "KeyedReduceOperator"]


#: What a reduce function cannot change in place.  Of all else a copy is emitted, because the
#: value in the state may be changed by the next call while the batch is not sent yet.
IMMUTABLE: Final = frozenset({int, float, str, bytes, bool, tuple, type(None)})


class KeyedReduceOperator(KeyedOperator):
    """Folds the records of each key into one value."""

    def __init__(self, function: Any, key_selector: Any) -> None:
        """Take the user's function and key selector."""
        super().__init__(function, key_selector)
        self._reduce = bound_method(self.function, "reduce")

    def open(self) -> None:
        """Register the state, then open the function."""
        self._state = self.keyed_state.get_state(ValueStateDescriptor("_reduce_state", None))
        super().open()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        keys = self.extractor.keys(batch, self.context)
        values = batch.values
        self.records_in += len(keys)
        keyed = self.keyed_state
        self.prefetch(keys)
        set_key, reduce, read, update = (
            keyed.set_current_key,
            self._reduce,
            self._state.value,
            self._state.update,
        )
        out: list[object] = []
        append = out.append
        value: object = NO_RECORD
        try:
            for key, value in zip(keys, values, strict=True):
                set_key(key)
                so_far = read()
                folded = value if so_far is None else reduce(so_far, value)
                update(folded)
                append(folded if folded.__class__ in IMMUTABLE else _copy(folded))
        except Exception as error:
            raise user_error(self.context, error, value, key=keyed.current_key) from error
        if self.context.batch_mode:
            self._remember(keys)
        else:
            kind = self.context.output_type
            self.emit(Batch(kind, values=out, timestamps=batch.raw_timestamps))

    def process_watermark(self, watermark: int) -> None:
        """In BATCH mode emit the final values at the maximum watermark."""
        if watermark == MAX_TIMESTAMP and self.context.batch_mode:
            out: list[object] = []
            for _time, key, _namespace in self.keyed_state.timers.advance_event_time(watermark):
                self.keyed_state.set_current_key(key)
                out.append(self._state.value())
            stamps = [MAX_TIMESTAMP] * len(out)
            self.emit(Batch(self.context.output_type, values=out, timestamps=stamps))
        self.output.emit_watermark(watermark)

    def _remember(self, keys: list[Any]) -> None:
        register = self.keyed_state.timers.register_event_time
        if set(map(type, keys)) <= PLAIN_KEY_TYPES:  # 1 and True would be one key of a dict
            keys = list(dict.fromkeys(keys))
        for key in keys:
            register(key, b"", MAX_TIMESTAMP)


def _copy(value: Any) -> Any:
    """A shallow copy; ``copy.copy`` would take a Row through its pickled form."""
    if isinstance(value, Row):
        return row_class(value._fields, value.get_row_kind())(value)
    return copy.copy(value)


def _section(content: str) -> StateSection:
    return StateSection("running value", "by key", details={"content": content})


@dataclass
class KeyedReduceFactory:
    """Makes keyed reduce operators."""

    function: Any
    key_selector: Any
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [_section("reduced values")]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return KeyedReduceOperator(self.function, self.key_selector)


@dataclass
class KeyedAggregateFactory:
    """Makes operators for ``sum``, ``min``, ``max``, ``min_by`` and ``max_by`` on a field."""

    #: "sum", "min", "max", "min_by" or "max_by".
    kind: str
    #: Name or position of the field; position 0 of a scalar is the scalar itself.
    field: str | int
    key_selector: Any
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [_section(f"{self.kind} of field {self.field!r}")]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return KeyedReduceOperator(FieldAggregation(self.kind, self.field), self.key_selector)
