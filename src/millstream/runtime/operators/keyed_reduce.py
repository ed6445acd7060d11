"""Keyed reduce and the field aggregations sum, min, max, min_by, max_by.

In STREAMING mode every record emits the value so far; in BATCH mode each key emits its final value
once, at the end, as in Flink: the operator then keeps a timer at the end of time per key.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.contracts.batch import MAX_TIMESTAMP, Batch
from millstream.contracts.operator import StateSection
from millstream.errors import ProgramError, with_article
from millstream.functions.descriptors import ValueStateDescriptor
from millstream.functions.functions import ReduceFunction
from millstream.runtime.operators.base import PLAIN_KEY_TYPES, KeyedOperator
from millstream.runtime.user_code import NO_RECORD, bound_method, user_error
from millstream.types.row import Row, row_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.operator import Operator


_KINDS: Final = ("sum", "min", "max", "min_by", "max_by")


class FieldAggregation(ReduceFunction):
    """Folds one field of two records."""

    def __init__(self, kind: str, field: str | int = 0) -> None:
        """Take the kind of aggregation and the field's name or position.

        Raises:
            ProgramError: there is no such kind.
        """
        if kind not in _KINDS:
            message = f"unknown aggregation {kind!r}; there are {', '.join(_KINDS)}"
            raise ProgramError(message)
        self._kind = kind
        self._field = field

    def reduce(self, value1: Any, value2: Any) -> Any:
        field, kind = self._field, self._kind
        get = _getter(value1, field)
        first, second = get(value1), get(value2)
        if kind == "sum":
            return _replaced(value1, field, first + second)
        wins = second < first if kind in ("min", "min_by") else second > first
        if not wins:
            return value1
        return value2 if kind.endswith("_by") else _replaced(value1, field, second)


def _getter(record: Any, field: str | int) -> Callable[[Any], Any]:
    if isinstance(record, dict):
        return lambda r: r[field]
    if isinstance(record, (list, tuple)):
        if isinstance(field, int):
            return lambda r: r[field]
        if isinstance(record, list):
            return lambda r: r[field]  # a Row
        return lambda r: getattr(r, field)  # a named tuple
    if dataclasses.is_dataclass(record):
        name = _dataclass_field(record, field)
        return lambda r: getattr(r, name)
    if field == 0:
        return lambda r: r
    message = f"{with_article(type(record).__name__)} has no field {field!r} to aggregate"
    raise ProgramError(message)


def _replaced(record: Any, field: str | int, value: object) -> Any:
    """A copy of ``record`` with one field changed; the record itself may already be emitted."""
    if isinstance(record, dict):
        return {**record, field: value}
    if isinstance(record, tuple):
        if isinstance(field, str):
            return record._replace(**{field: value})  # type: ignore[attr-defined] # a named tuple
        position = field % len(record)
        changed = (*record[:position], value, *record[position + 1 :])
        return type(record)(*changed) if hasattr(record, "_fields") else changed
    if isinstance(record, list):
        duplicate = copy.copy(record)
        duplicate[field] = value  # type: ignore[index] # a Row takes names as well
        return duplicate
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return dataclasses.replace(record, **{_dataclass_field(record, field): value})
    return value


def _dataclass_field(record: Any, field: str | int) -> str:
    return field if isinstance(field, str) else dataclasses.fields(record)[field].name


#: What a reduce function cannot change in place.  Of all else a copy is emitted, because the
#: value in the state may be changed by the next call while the batch is not sent yet.
IMMUTABLE: Final = frozenset({int, float, str, bytes, bool, tuple, type(None)})


class KeyedReduceOperator(KeyedOperator):
    """Folds the records of each key into one value."""

    def __init__(self, function: Any, key_selector: Any) -> None:
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
        shorts = self.prefetch(keys)
        reduce, read, update = self._reduce, self._state.value, self._state.update
        out: list[object] = []
        append = out.append
        value: object = NO_RECORD
        try:
            for key, short, value in zip(keys, shorts, values, strict=True):
                # As ``set_current_key``, in place: this is the hot loop.
                keyed.current_key, keyed.cache_key = key, short
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
    """Factory of keyed reduce operators."""

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
    """Factory of operators for ``sum``, ``min``, ``max``, ``min_by`` and ``max_by`` on a field."""

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
