"""The operators of two connected streams: process functions with one method per input.

What it is: the process operators of one input, which look at the number of the input to know
whose keys to take and which method to call.  State, timers and time are those of the operator, so
both inputs share them.

What it is not: a join; ``runtime/operators/interval_join.py`` is.

Read next: ``runtime/operators/keyed_process.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.contracts.operator import FUNCTION_STATES
from millstream.runtime.operators.keyed import KeyExtractor
from millstream.runtime.operators.keyed_process import KeyedProcessOperator
from millstream.runtime.operators.process import ProcessOperator
from millstream.runtime.user_code import bound_method

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Operator, StateSection

__all__ = [
    "CoProcessFactory",
    "CoProcessOperator",
    "KeyedCoProcessFactory",
    "KeyedCoProcessOperator",
]


class CoProcessOperator(ProcessOperator):
    """Applies a CoProcessFunction to the records of two streams that are not keyed."""

    method = "process_element1"

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._methods = (self._process, bound_method(self.function, "process_element2"))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._process = self._methods[input_index]
        super().process_batch(batch)


class KeyedCoProcessOperator(KeyedProcessOperator):
    """Applies a KeyedCoProcessFunction, or a CoProcessFunction, to two keyed streams."""

    method = "process_element1"

    def __init__(self, function: Any, key_selector1: Any, key_selector2: Any) -> None:
        """Take the user's function and the key selector of each input."""
        super().__init__(function, key_selector1)
        second = bound_method(self.function, "process_element2")
        self._inputs = (
            (self.extractor, self._process),
            (KeyExtractor(key_selector2, self.key_types), second),
        )

    def user_functions(self) -> Iterable[object]:
        functions = [each for extractor, _ in self._inputs for each in extractor.functions]
        return (self.function, *functions)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.extractor, self._process = self._inputs[input_index]
        super().process_batch(batch)


@dataclass
class CoProcessFactory:
    """Makes operators for two streams that are not keyed."""

    function: Any
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return CoProcessOperator(self.function)


@dataclass
class KeyedCoProcessFactory:
    """Makes operators for two keyed streams."""

    function: Any
    key_selector1: Any
    key_selector2: Any
    keyed: ClassVar[bool] = True

    def state_sections(self) -> list[StateSection]:
        """Return what its operator keeps."""
        return [FUNCTION_STATES]

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return KeyedCoProcessOperator(self.function, self.key_selector1, self.key_selector2)
