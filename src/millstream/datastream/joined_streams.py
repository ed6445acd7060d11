"""JoinedStreams: pairs of records that have equal keys and lie in the same window.

What it is: what ``DataStream.join`` returns, with Flink's names::

    orders.join(payments).where("id").equal_to("order").window(...).apply(function)

Pairs have the window's largest timestamp.  Records that meet none of the other stream in their
window give nothing; ``co_group`` is told of them too.
"""

from __future__ import annotations

from itertools import product, starmap
from typing import TYPE_CHECKING, Any

from millstream.datastream.paired_windows import PairedStreams, PairedWindowFunction, PairedWindows
from millstream.datastream.type_choice import choose_output_type, method_of, require
from millstream.functions.functions import FlatJoinFunction, JoinFunction
from millstream.runtime.user_code import bound_method

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.datastream.data_stream import DataStream
    from millstream.types.types import TypeInformation


class _Joining(PairedWindowFunction):
    """One record per pair."""

    def combine(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        """Join each record of one to each of the other."""
        return starmap(bound_method(self.wrapped, "join"), product(first, second))


class _FlatJoining(PairedWindowFunction):
    """Any number of records per pair."""

    def combine(self, first: list[Any], second: list[Any]) -> Iterator[Any]:
        """Join each record of one to each of the other."""
        for records in starmap(bound_method(self.wrapped, "join"), product(first, second)):
            if records is not None:
                yield from records


class WithWindow(PairedWindows):
    """Two keyed streams, joined within windows."""

    kind = "Join"

    def apply(
        self,
        function: JoinFunction | FlatJoinFunction | Callable[[Any, Any], object],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call a function for every pair of a key and window.

        Args:
            function: (first, second) -> record; a FlatJoinFunction gives any number of records.
            output_type: the type of the new records.
        """
        require(function, (JoinFunction, FlatJoinFunction), "apply")
        flat = isinstance(function, FlatJoinFunction)
        chosen = choose_output_type(output_type, method_of(function, "join"), unwrap=flat)
        return self._applied(_FlatJoining(function) if flat else _Joining(function), chosen)


class JoinedStreams(PairedStreams[WithWindow]):
    """Two streams that are to be joined within windows."""

    WithWindow = WithWindow

    def __init__(self, input1: DataStream, input2: DataStream) -> None:
        super().__init__(input1, input2, "join", WithWindow)
