"""Which partitions of files are read: those whose values a condition does not rule out.

What it is: a choice of paths by the directories ``column=value`` that they lie in; what is not
chosen is neither opened nor counted.
What it is not: a filter of rows; where it cannot tell, it takes the file.

Read next: ``connectors/files/file_columns.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.connectors.files.file_columns import partition_of
from millstream.errors import ExpressionError
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.expressions.nodes import Expression

__all__ = ["PartitionFilter"]


class PartitionFilter:
    """Whether a file is read, by its path.

    Args:
        base: the path below which directories are partitions.
        columns: name of a column of the partition -> what makes its value of the text in the path.
        types: of these columns.
        default_name: the text that stands for NULL.
        condition: over these columns, in their order.
        time_zone: of the session.
    """

    def __init__(
        self,
        base: str,
        columns: Mapping[str, Callable[[str], Any]],
        types: Sequence[pa.DataType],
        default_name: str,
        condition: Expression,
        time_zone: str,
    ) -> None:
        self._base = base
        self._columns = dict(columns)
        self._types = list(types)
        self._default_name = default_name
        self._condition = condition
        self._time_zone = time_zone
        self._known: dict[tuple[str, ...], bool] = {}

    def __call__(self, path: str) -> bool:
        found = partition_of(path.removeprefix(self._base))
        if not self._columns.keys() <= found.keys():
            return True  # reading it says what is wrong
        texts = tuple(found[name] for name in self._columns)
        if texts not in self._known:
            self._known[texts] = self._holds(texts)
        return self._known[texts]

    def _holds(self, texts: tuple[str, ...]) -> bool:
        try:
            values = [
                None if text == self._default_name else parse(text)
                for text, parse in zip(texts, self._columns.values(), strict=True)
            ]
        except (ValueError, ArithmeticError):
            return True
        arrays = [pa.array([v], kind) for v, kind in zip(values, self._types, strict=True)]
        row = pa.RecordBatch.from_arrays(arrays, names=list(self._columns))
        context = EvaluationContext(time_zone=self._time_zone)
        try:
            return bool(compile_filter(self._condition).evaluate(row, context)[0].as_py())
        except ExpressionError:
            return True  # what stands beside it may keep the filter from being asked of any row
