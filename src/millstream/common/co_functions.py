"""The functions users write for two inputs at once, with PyFlink's names.

What it is: base classes for ``DataStream.connect``: one method per input, one instance for both,
so that what one input says can be kept for the other.

What it is not: what calls them (``runtime/operators/co_process.py``).

Read next: ``common/functions.py``, the functions of one input.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeAlias

from millstream.common.functions import (
    Function,
    KeyedProcessFunction,
    ProcessFunction,
    TimeDomain,
)

__all__ = [
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "KeyedCoProcessFunction",
]


class CoMapFunction(Function):
    """One record in, of either input, and one record out (none if None is returned)."""

    @abstractmethod
    def map1(self, value: Any) -> Any:  # noqa: ANN401 - the user's record
        """Return the record to emit for a record of the first input."""

    @abstractmethod
    def map2(self, value: Any) -> Any:  # noqa: ANN401 - the user's record
        """Return the record to emit for a record of the second input."""


class CoFlatMapFunction(Function):
    """One record in, of either input, and any number out."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Any:  # noqa: ANN401 - the user's record
        """Yield what a record of the first input gives, or return an iterable of it, or None."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Any:  # noqa: ANN401 - the user's record
        """Yield what a record of the second input gives, or return an iterable of it, or None."""


class CoProcessFunction(Function):
    """One record in, of either input, any number out, to the main and to side outputs.

    On keyed streams it has state and timers too, but is not told the key; see
    KeyedCoProcessFunction.
    """

    Context: TypeAlias = ProcessFunction.Context

    class OnTimerContext(ProcessFunction.Context):
        """What ``on_timer`` is given beside the timestamp.  Not to be kept."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock of the timer."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: ProcessFunction.Context) -> Any:  # noqa: ANN401
        """Yield records for one of the first input, or ``tag, value``; or return a list or None."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: ProcessFunction.Context) -> Any:  # noqa: ANN401
        """Yield records for one of the second input, as ``process_element1``."""

    def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext) -> Any:  # noqa: ANN401
        """React to a timer (of keyed streams); output as in ``process_element1``."""


class KeyedCoProcessFunction(Function):
    """A process function on two keyed streams, with state and timers that both share."""

    Context: TypeAlias = KeyedProcessFunction.Context
    OnTimerContext: TypeAlias = KeyedProcessFunction.OnTimerContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:  # noqa: ANN401
        """Yield records for one of the first input, or ``tag, value``; or return a list or None."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:  # noqa: ANN401
        """Yield records for one of the second input, as ``process_element1``."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:  # noqa: ANN401
        """React to a timer; output as in ``process_element1``, with the timer's timestamp."""
