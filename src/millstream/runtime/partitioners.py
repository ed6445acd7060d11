"""Partitioners: to which subtask of the next operator each record of a batch goes.

What it is: one small class per kind of partitioning, working on whole batches; columnar where
the key is a column.
What it is not: the sending, which is in ``runtime/exchange.py``.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.errors import ProgramError
from millstream.graph.model import Partitioning
from millstream.runtime.columnar.key_columns import key_groups_of_column
from millstream.runtime.columnar.partial_aggregates import is_partial
from millstream.runtime.columnar.row_groups import key_groups_of_rows
from millstream.runtime.function_context import FunctionContext
from millstream.runtime.user_code import (
    close_functions,
    functions_in,
    keys_of,
    open_functions,
    private_copy,
    user_error,
)
from millstream.state.key_groups import key_group, key_groups_of_array, subtask_of
from millstream.types.field_access import field_of
from millstream.types.key_columns import KeyColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext
    from millstream.graph.model import StreamEdge

__all__ = ["Partitioner", "create_partitioner", "key_column"]

#: Keys whose subtask is remembered per edge; the memory is bounded, not the number of keys.
_REMEMBERED_KEYS: Final = 500_000


class Partitioner(ABC):
    """Chooses targets; opened before and closed after that."""

    def open(self) -> None:
        """Open the user's functions."""

    def close(self) -> None:
        """Close the user's functions."""

    @abstractmethod
    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        """The subtask of each record, or one for all, or None for every subtask (broadcast)."""


class _ByFunctions(Partitioner):
    """Has functions of the user's, called as those of the operator that reads the edge."""

    def __init__(self, reader: OperatorContext, given: Sequence[Any]) -> None:
        self._reader = reader
        self._functions = [each for part in given for each in functions_in(part)]
        self._opened = False

    def open(self) -> None:
        self._opened = True
        open_functions(self._functions, FunctionContext(self._reader), self._reader)

    def close(self) -> None:
        if self._opened:
            self._opened = False
            close_functions(self._functions, self._reader)


def key_column(batch: Batch, field: str | int) -> pa.Array | None:
    """The column that a pure field access reads, None if the batch is not columnar."""
    if not batch.is_columnar:
        return None
    arrow = batch.arrow
    if isinstance(field, int):
        return arrow.column(field) if 0 <= field < arrow.num_columns else None
    position = arrow.schema.get_field_index(field)
    return arrow.column(position) if position >= 0 else None


class _HashPartitioner(_ByFunctions):
    """By key group, as Flink: stable over processes, machines and parallelisms."""

    def __init__(
        self,
        selector: Callable[[object], object],
        parallelism: int,
        max_parallelism: int,
        reader: OperatorContext,
    ) -> None:
        self._selector = private_copy(selector)
        super().__init__(reader, [self._selector])
        self._field = field_of(self._selector)
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        # Invariant: only keys of exactly the types int and str are in here, so that 1 and True,
        # which are equal in a dict but not as keys, cannot share an entry.
        self._known: dict[object, int] = {}

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        if self._parallelism == 1:
            return 0
        if is_partial(batch):
            keys_of_partials = batch.arrow.column(0)
            found = key_groups_of_column(keys_of_partials, self._max_parallelism)
            groups = found.astype(np.int64)
            return groups * self._parallelism // self._max_parallelism
        if self._field is not None:
            column = key_column(batch, self._field)
            if column is not None:
                groups = key_groups_of_array(column, self._max_parallelism).astype(np.int64)
                return groups * self._parallelism // self._max_parallelism
        known = self._known.get
        # Keys are those of the record as its reader will see it, where 1 for a DOUBLE is 1.0: both
        # sides must agree to which key group it belongs.
        keys = keys_of(batch.conformed.values, self._selector, self._reader)
        chosen = [known(key, -1) if type(key) is int or type(key) is str else -1 for key in keys]
        if -1 in chosen:
            self._fill(keys, chosen)
        return np.asarray(chosen, dtype=np.int64)

    def _fill(self, keys: list[object], chosen: list[int]) -> None:
        if len(self._known) > _REMEMBERED_KEYS:
            self._known.clear()
        for position, subtask in enumerate(chosen):
            if subtask >= 0:
                continue
            key = keys[position]
            group = key_group(key, self._max_parallelism)
            subtask = subtask_of(group, self._max_parallelism, self._parallelism)  # noqa: PLW2901
            chosen[position] = subtask
            if type(key) is int or type(key) is str:
                self._known[key] = subtask


class _KeyColumnsPartitioner(Partitioner):
    """By key group, of keys that are columns of a table."""

    def __init__(self, key: KeyColumns, parallelism: int, max_parallelism: int) -> None:
        self._key = key
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        if self._parallelism == 1:
            return 0
        arrow = batch.arrow
        columns = [arrow.column(index) for index in self._key.indexes]
        groups = key_groups_of_rows(columns, len(batch), self._max_parallelism)
        return groups * self._parallelism // self._max_parallelism


class _SameSubtask(Partitioner):
    """FORWARD over a stage boundary, and GLOBAL."""

    def __init__(self, subtask: int) -> None:
        self._subtask = subtask

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        del batch
        return self._subtask


class _RoundRobin(Partitioner):
    """REBALANCE and RESCALE: batches are dealt out in turn, large ones record by record."""

    def __init__(self, start: int, subtasks: list[int]) -> None:
        self._next = start
        self._subtasks = np.asarray(subtasks, dtype=np.int64)

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        count = len(self._subtasks)
        positions = (np.arange(len(batch)) + self._next) % count
        self._next = (self._next + len(batch)) % count
        return self._subtasks[positions]


class _Shuffle(Partitioner):
    """SHUFFLE: random, but the same at every replay."""

    def __init__(self, seed: int, parallelism: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self._parallelism = parallelism

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        drawn = [self._random.randrange(self._parallelism) for _ in range(len(batch))]
        return np.asarray(drawn, dtype=np.int64)


class _Broadcast(Partitioner):
    """BROADCAST: every subtask gets every record."""

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        del batch
        return None


class _Custom(_ByFunctions):
    """CUSTOM: the user's partitioner on the user's key."""

    def __init__(self, edge: StreamEdge, parallelism: int, reader: OperatorContext) -> None:
        if edge.partitioner is None:
            message = "a custom partitioning needs a partitioner"
            raise ProgramError(message)
        self._partitioner = private_copy(edge.partitioner)
        self._selector = private_copy(edge.key_selector or (lambda value: value))
        super().__init__(reader, [self._partitioner, self._selector])
        self._parallelism = parallelism

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        values = batch.conformed.values
        keys = keys_of(values, self._selector, self._reader, "partition_custom")
        chosen: list[int] = []
        try:
            for key in keys:  # one by one: how many were chosen tells which record it was
                subtask = self._checked(self._partitioner(key, self._parallelism))
                chosen.append(subtask)
        except Exception as error:
            record = values[len(chosen)]
            doing = "choosing the subtask (partition_custom) of"
            raise user_error(self._reader, error, record, doing=doing) from error
        return np.asarray(chosen, dtype=np.int64)

    def _checked(self, subtask: object) -> int:
        if isinstance(subtask, int | np.integer) and 0 <= subtask < self._parallelism:
            return int(subtask)
        last = self._parallelism - 1
        message = f"the partitioner returned {subtask!r}, not a number from 0 to {last}"
        raise ProgramError(message)


def create_partitioner(
    edge: StreamEdge, subtask: int, source_parallelism: int, reader: OperatorContext
) -> Partitioner:
    """The partitioner of ``edge`` as seen from one producing subtask.

    Args:
        edge: Says how to partition, and has the user's functions.
        subtask: The producing subtask.
        source_parallelism: How many of them there are.
        reader: The operator that the edge leads to; messages name it.
    """
    parallelism, max_parallelism = reader.parallelism, reader.max_parallelism
    kind = edge.partitioning
    if kind is Partitioning.HASH:
        if edge.key_selector is None:
            message = "a keyed edge needs a key selector"
            raise ProgramError(message)
        if isinstance(edge.key_selector, KeyColumns):
            return _KeyColumnsPartitioner(edge.key_selector, parallelism, max_parallelism)
        return _HashPartitioner(edge.key_selector, parallelism, max_parallelism, reader)
    if kind is Partitioning.CUSTOM:
        return _Custom(edge, parallelism, reader)
    others: dict[Partitioning, Callable[[], Partitioner]] = {
        Partitioning.FORWARD: lambda: _SameSubtask(subtask % parallelism),
        Partitioning.GLOBAL: lambda: _SameSubtask(0),
        Partitioning.BROADCAST: _Broadcast,
        Partitioning.SHUFFLE: lambda: _Shuffle(subtask, parallelism),
        Partitioning.RESCALE: lambda: _RoundRobin(
            0, _rescale_targets(subtask, source_parallelism, parallelism)
        ),
        Partitioning.REBALANCE: lambda: _RoundRobin(
            subtask % parallelism, list(range(parallelism))
        ),
    }
    return others[kind]()


def _rescale_targets(subtask: int, source_parallelism: int, parallelism: int) -> list[int]:
    """The subtasks near ``subtask``: a block of targets, or one target for a block of sources."""
    if parallelism >= source_parallelism:
        first = subtask * parallelism // source_parallelism
        stop = max(first + 1, (subtask + 1) * parallelism // source_parallelism)
        return list(range(first, stop))
    return [subtask * parallelism // source_parallelism]
