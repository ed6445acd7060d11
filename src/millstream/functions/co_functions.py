"""The functions users write for two inputs at once, with PyFlink's names.

What it is: base classes for ``DataStream.connect``, with one method per input and one instance for
both, so that what one input says can be kept for the other; and for joins, which are called
with what has met.

What it is not: what calls them: ``runtime/operators/co_process.py``,
``runtime/operators/interval_join.py`` and ``datastream/joined_streams.py``.

Read next: ``functions/functions.py``, the functions of one input.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.functions.functions import (
    ElementContext,
    Function,
    KeyedProcessFunction,
    ProcessFunction,
    TimeDomain,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FlatJoinFunction",
    "JoinFunction",
    "KeyedCoProcessFunction",
    "ProcessJoinFunction",
]


class CoMapFunction(Function):
    """One record in, of either input, and one record out (none if None is returned)."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the record to emit for a record of the first input."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the record to emit for a record of the second input."""


class CoFlatMapFunction(Function):
    """One record in, of either input, and any number out."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Any:
        """Yield what a record of the first input gives, or return an iterable of it, or None."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Any:
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
    def process_element1(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        """Yield records for one of the first input, or ``tag, value``; or return a list or None."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        """Yield records for one of the second input, as ``process_element1``."""

    def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext) -> Any:
        """React to a timer (of keyed streams); output as in ``process_element1``."""


class KeyedCoProcessFunction(Function):
    """A process function on two keyed streams, with state and timers that both share."""

    Context: TypeAlias = KeyedProcessFunction.Context
    OnTimerContext: TypeAlias = KeyedProcessFunction.OnTimerContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Yield records for one of the first input, or ``tag, value``; or return a list or None."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Yield records for one of the second input, as ``process_element1``."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """React to a timer; output as in ``process_element1``, with the timer's timestamp."""


class ProcessJoinFunction(Function):
    """Gets the pairs of an interval join."""

    class Context(ElementContext):
        """What ``process_element`` is given beside the pair.  Not to be kept."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """Return the timestamp of the left record, in milliseconds."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """Return the timestamp of the right record, in milliseconds."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """Return the timestamp of the pair, which is the later of the two."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any:
        """Yield records, or ``tag, value`` for a side output; or return a list or None."""


class JoinFunction(Function):
    """Makes one record of each pair of a window join."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Return the record to emit for a pair."""


class FlatJoinFunction(Function):
    """Makes any number of records of each pair of a window join."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Yield the records to emit for a pair, or return an iterable of them, or None."""


class CoGroupFunction(Function):
    """Gets all records of a key and window, of both streams; also if one of them has none."""

    @abstractmethod
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Any:
        """Yield the records to emit, or return an iterable of them, or None."""
