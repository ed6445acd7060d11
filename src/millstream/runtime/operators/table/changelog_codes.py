"""Changes as rows with a code, and rows with a code as changes: TO_CHANGELOG and FROM_CHANGELOG.

What it is: the kind of each row becomes a column in front of the others, or a column becomes the
kind of its row and goes away.
What it is not: stateful; updates come and go as they are, by their rows before and behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from millstream.errors import TypeMismatchError
from millstream.runtime.operators.table.base import TableOperator, kinds_or_inserts

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator


@dataclass(frozen=True)
class ToChangelogFactory:
    """Makes operators that give the code of each change, then its row, as an insert.

    Args:
        codes: of the kinds of rows, by their numbers; a kind without a code is left out.
    """

    codes: tuple[tuple[int, str], ...]
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return ToChangelogOperator(self)


class ToChangelogOperator(TableOperator):
    """Gives inserts alone."""

    def __init__(self, plan: ToChangelogFactory) -> None:
        super().__init__()
        codes = dict(plan.codes)
        self._codes = pa.array([codes.get(kind) for kind in range(4)], pa.string())

    def process_rows(self, batch: Batch) -> None:
        codes = self._codes.take(pa.array(kinds_or_inserts(batch)))
        columns = [codes, *batch.arrow.columns]
        if codes.null_count:
            taken = codes.is_valid()
            columns = [column.filter(taken) for column in columns]
        self.emit_columns(columns)


@dataclass(frozen=True)
class FromChangelogFactory:
    """Makes operators that give the other columns of each row, with the kind that its code says.

    Args:
        column: of the codes.
        kinds: of the codes, by their numbers.
    """

    column: int
    kinds: tuple[tuple[str, int], ...]
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return FromChangelogOperator(self)


class FromChangelogOperator(TableOperator):
    """Gives changes."""

    def __init__(self, plan: FromChangelogFactory) -> None:
        super().__init__()
        self._column = plan.column
        self._kinds = dict(plan.kinds)

    def process_rows(self, batch: Batch) -> None:
        arrow = batch.arrow
        encoded = arrow.column(self._column).dictionary_encode()
        if encoded.null_count:
            message = (
                f"operator {self.context.name!r}: Received NULL op code. Every changelog row must "
                "carry an operation code."
            )
            raise TypeMismatchError(message)
        known = [self._kind_of(code) for code in encoded.dictionary.to_pylist()]
        kinds = np.array(known, dtype=np.int8)[encoded.indices.to_numpy()]
        columns = [each for at, each in enumerate(arrow.columns) if at != self._column]
        self.emit_columns(columns, kinds if kinds.any() else None)

    def _kind_of(self, code: str) -> int:
        if code not in self._kinds:
            message = (
                f"operator {self.context.name!r}: Received invalid op code '{code}'. Defined op "
                f"codes are: [{', '.join(self._kinds)}]."
            )
            raise TypeMismatchError(message)
        return self._kinds[code]
