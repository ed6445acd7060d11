"""What keyed operators have in common: the keyed state, and the keys of a batch.

What it is: the base class of operators behind ``key_by``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.errors import StateError
from millstream.runtime.operators.base import FunctionOperator
from millstream.runtime.user_code import bound_method, functions_in, keys_of, private_copy
from millstream.state.key_codec import KeyTypes, key_group_range
from millstream.state.keyed import KeyedState
from millstream.types.field_access import column_of, field_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.contracts.batch import Batch
    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorContext,
        OperatorSnapshot,
        RestoreContext,
    )


#: Types of keys that are dictionary keys as they are; of others the encoded form is.
PLAIN_KEY_TYPES: Final = frozenset({int, str})


class KeyExtractor:
    """Takes the keys out of a batch, from its Arrow column where that is all the selector reads."""

    __slots__ = ("_field", "_select", "_types", "functions")

    def __init__(self, key_selector: Any, types: KeyTypes | None = None) -> None:
        """Take a KeySelector or callable, and who is told of the types of the keys."""
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
    made.most_bytes = context.configuration.get(options.MANAGED_MEMORY)
    return made


class KeyedOperator(FunctionOperator):
    """An operator around a user function with keyed state."""

    keyed = True
    keyed_state: KeyedState

    def __init__(self, function: Any, key_selector: Any) -> None:
        """Take copies of the user's function and key selector."""
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
        try:
            self.keyed_state.begin_epoch(
                store_of(restored), restored.processing_time, restored.clock
            )
            self._refuse_renamed()
        except StateError as error:
            raise self._of_operator(error) from error

    def prefetch(self, keys: list[Any]) -> None:
        """Read the states of these keys in one go.

        Raises:
            StateError: values are of a class that the program does not have.
        """
        try:
            self.keyed_state.prefetch(keys)
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
            f" {ignore.key} to true once, and {old!r} is left behind"
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
        """Whether ``watermark`` ends every key: the one watermark that there is in BATCH mode.

        As in Flink, timers that user code registers from then on are ignored, else one that
        registers the next would never end.
        """
        return self.context.batch_mode and watermark == MAX_TIMESTAMP

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Write the state through, and tell when the next processing-time timer is due."""
        due = self.due()
        self.keyed_state.live_on(checkpoint.next_attempt is not None)
        try:
            self.keyed_state.flush()
        except StateError as error:  # a value that cannot be pickled
            raise self._of_operator(error) from error
        snapshot = super().snapshot(checkpoint)
        snapshot.next_due = due
        snapshot.states = self.keyed_state.described()
        snapshot.unused_states = self.keyed_state.unused()
        snapshot.key_types = self.key_types.take()
        return snapshot
