"""CoGroupedStreams: all records of two streams that have one key and lie in the same window.

What it is: what ``DataStream.co_group`` returns, with Flink's names::

    orders.co_group(payments).where("id").equal_to("order").window(...).apply(function)

The function is called once per key and window, also if one of the streams has no record there: so
it can express outer joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.paired_windows import PairedStreams, PairedWindowFunction, PairedWindows
from millstream.datastream.type_choice import choose_output_type, method_of, require
from millstream.functions.functions import CoGroupFunction
from millstream.runtime.user_code import bound_method

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.datastream.data_stream import DataStream
    from millstream.types.types import TypeInformation


class _CoGrouping(PairedWindowFunction):
    """All records at once."""

    def combine(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        records: Iterable[Any] | None = bound_method(self.wrapped, "co_group")(first, second)
        return () if records is None else records


class WithWindow(PairedWindows):
    """Two keyed streams, grouped within windows."""

    kind = "CoGroup"

    def apply(
        self,
        function: CoGroupFunction | Callable[[Any, Any], object],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call a function for every key and window.

        Args:
            function: (records of the first stream, those of the second) -> iterable of records.
            output_type: the type of the new records.
        """
        require(function, (CoGroupFunction,), "apply")
        chosen = choose_output_type(output_type, method_of(function, "co_group"), unwrap=True)
        return self._applied(_CoGrouping(function), chosen)


class CoGroupedStreams(PairedStreams[WithWindow]):
    """Two streams that are to be grouped within windows."""

    WithWindow = WithWindow

    def __init__(self, input1: DataStream, input2: DataStream) -> None:
        super().__init__(input1, input2, "co_group", WithWindow)
