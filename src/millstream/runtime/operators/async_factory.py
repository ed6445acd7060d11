"""The factory of async wait operators.

It is separate from its operator because importing asyncio takes a tenth of a program's start-up
time, which only programs with such an operator should pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from millstream.contracts.operator import Operator
    from millstream.functions.async_functions import AsyncFunctionDescriptor


@dataclass
class AsyncWaitFactory:
    """Factory of async wait operators."""

    descriptor: AsyncFunctionDescriptor
    keyed: ClassVar[bool] = False

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        from millstream.runtime.operators.async_wait import AsyncWaitOperator

        return AsyncWaitOperator(self.descriptor)
