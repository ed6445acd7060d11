"""The factory of async wait operators, which only programs with one pay for.

What it is: apart from its operator, whose asyncio takes a tenth of the time in which a program
starts.
What it is not: the operator (``runtime/operators/async_wait.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from millstream.contracts.operator import Operator
    from millstream.functions.async_functions import AsyncFunctionDescriptor


@dataclass
class AsyncWaitFactory:
    """Makes async wait operators."""

    descriptor: AsyncFunctionDescriptor
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        from millstream.runtime.operators.async_wait import AsyncWaitOperator

        return AsyncWaitOperator(self.descriptor)
