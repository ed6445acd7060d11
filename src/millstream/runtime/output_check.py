"""Holding what an operator emits to the type that the program declares for it.

What it is: where a record is found to be of another type, and by whom.  Records that become columns
(for an exchange, a sink or an operator that reads them) are checked by that, every one of them, and
the error names the operator that made them.  Records that only go from one Python function to the
next would be made columns for nothing else: of these the first few thousand are checked, then a
sample of every batch: making columns costs as much as the functions themselves.

What it is not: the check of states, which is made at each write (``state/typed_state.py``).

Read next: ``contracts/batch.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.types.value_check import compile_check, is_quick

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import OperatorContext

__all__ = ["OutputCheck"]

#: Records of one output that are checked one and all, before samples are.
_ALL_OF: Final = 4_096
#: Then about so many of each batch, but not more than one of so many records.
_SAMPLE: Final = 128
_STEP: Final = 8
#: Of what the quick check lets pass; a stream of rows may not have it.
_NONE: Final = type(None)


class OutputCheck:
    """The check of one output of one operator subtask.

    Args:
        context: names the operator.
        tag: the side output; None: the main output.
    """

    def __init__(self, context: OperatorContext, tag: str | None = None) -> None:
        output = "" if tag is None else f"side output {tag!r} of "
        self._maker = f"{output}operator {context.name!r} ({context.location})"
        kind = context.output_type if tag is None else context.side_types.get(tag)
        self._is_typed = kind is not None and kind.arrow_schema is not None
        # Even one small column per batch costs more than this, for Arrow's code has left the
        # caches when the functions have run.
        self._fits = compile_check(kind) if kind is not None and is_quick(kind) else None
        self._left = _ALL_OF
        self._turn = 0

    def __call__(self, batch: Batch) -> None:
        """Look at a batch.

        Raises:
            TypeMismatchError: a record does not fit; names operator, record, field and type.
        """
        if not self._is_typed or not batch.is_unchecked:
            return
        if self._left > 0:
            batch.check(self._maker, slice(self._left))
            self._left -= len(batch)
            return
        # Other positions in each batch: what is wrong may be periodic.
        step = max(_STEP, len(batch) // _SAMPLE)
        self._turn += 1
        which = slice(self._turn % step, None, step)
        if self._fits is not None:
            sample = batch.values[which]
            if _NONE not in map(type, sample) and all(map(self._fits, sample)):
                batch.made_by(self._maker)
                return
        batch.check(self._maker, which)
