"""The interval join: ``left.interval_join(right).between(lower, upper).process(function)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, Self

from millstream.datastream.connected_streams import (
    check_key_types,
    check_streams,
    two_input_operator,
)
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.type_choice import choose_output_type, require
from millstream.errors import ProgramError
from millstream.functions.functions import ProcessJoinFunction
from millstream.runtime.operators import IntervalJoinFactory
from millstream.types.time import milliseconds_of

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream
    from millstream.types.output_tag import OutputTag
    from millstream.types.time import DurationLike
    from millstream.types.types import TypeInformation


#: Milliseconds, some 30,000 years: sums of bounds and timestamps must stay within 64 bits.
_LARGEST_BOUND: Final = 10**15


class IntervalJoin:
    """Two keyed streams that are to be joined; the bounds are missing yet."""

    def __init__(self, stream_one: KeyedStream, stream_two: DataStream) -> None:
        """Made by ``KeyedStream.interval_join``."""
        check_streams(stream_one, stream_two, "interval_join")
        if not isinstance(stream_two, KeyedStream):
            message = "interval_join() needs another keyed stream; call key_by() on it first"
            raise ProgramError(message)
        check_key_types(stream_one, stream_two, "interval_join")
        self._left = stream_one
        self._right = stream_two

    def in_event_time(self) -> Self:
        """Join by the timestamps of the records, which is what is done anyway."""
        return self

    def in_processing_time(self) -> NoReturn:
        """Not possible, as in Flink."""
        message = "an interval join works in event time only; for processing time use connect()"
        raise ProgramError(message)

    def between(self, lower_bound: DurationLike, upper_bound: DurationLike) -> IntervalJoined:
        """Set the bounds: a left record at t meets right ones from t + lower to t + upper.

        Args:
            lower_bound: milliseconds, or a Duration or Time; may be negative; inclusive.
            upper_bound: likewise.

        Raises:
            ProgramError: the lower one is greater than the upper one, or one is out of reason.
        """
        lower, upper = milliseconds_of(lower_bound), milliseconds_of(upper_bound)
        if lower > upper:
            message = (
                f"the lower bound of an interval join, {lower} ms, is greater than its upper "
                f"bound, {upper} ms; swap them"
            )
            raise ProgramError(message)
        if max(abs(lower), abs(upper)) > _LARGEST_BOUND:
            message = (
                f"the bounds of an interval join must be within {_LARGEST_BOUND} ms of 0, not "
                f"{lower} ms and {upper} ms; state without end would be kept"
            )
            raise ProgramError(message)
        return IntervalJoined(self._left, self._right, lower, upper)


class IntervalJoined:
    """Two keyed streams with the bounds they are joined within."""

    def __init__(self, left: KeyedStream, right: KeyedStream, lower: int, upper: int) -> None:
        """Made by ``IntervalJoin.between``; milliseconds, inclusive."""
        self._streams = (left, right)
        self._lower = lower
        self._upper = upper
        self._lower_inclusive = True
        self._upper_inclusive = True
        self._late_tags: list[OutputTag | None] = [None, None]

    def lower_bound_exclusive(self) -> Self:
        """Leave out right records exactly at the lower bound."""
        self._lower_inclusive = False
        return self

    def upper_bound_exclusive(self) -> Self:
        """Leave out right records exactly at the upper bound."""
        self._upper_inclusive = False
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send left records behind the watermark to a side output instead of dropping them."""
        self._late_tags[0] = output_tag
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send right records behind the watermark to a side output instead of dropping them."""
        self._late_tags[1] = output_tag
        return self

    def process(
        self, process_join_function: ProcessJoinFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Call a function for every pair; what it makes has the later of the two timestamps.

        Args:
            process_join_function: its ``process_element(left, right, ctx)`` yields records, or
                ``tag, value`` for a side output.
            output_type: the type of the records of the main output.

        Raises:
            ProgramError: it is another kind of function, or both sides' late records, of two
                types, go to one side output.
        """
        function = process_join_function
        require(function, (ProcessJoinFunction,), "process", plain=False)
        chosen = choose_output_type(output_type, function.process_element, unwrap=True)
        left, right = self._streams
        first, second = (None if tag is None else tag.tag_id for tag in self._late_tags)
        lower = self._lower if self._lower_inclusive else self._lower + 1
        upper = self._upper if self._upper_inclusive else self._upper - 1
        factory = IntervalJoinFactory(
            function, (left.key_selector, right.key_selector), (lower, upper), (first, second)
        )
        return two_input_operator(
            left,
            right,
            f"IntervalJoin({lower}, {upper})",
            factory,
            chosen,
            {"function": function},
            kind_name="IntervalJoin",
            side_types=self._side_types(),
        )

    def _side_types(self) -> dict[str, TypeInformation]:
        types: dict[str, TypeInformation] = {}
        for tag, stream in zip(self._late_tags, self._streams, strict=True):
            if tag is None:
                continue
            kind = tag.type_info or stream.get_type()
            known = types.setdefault(tag.tag_id, kind)
            if known != kind:
                message = (
                    f"late records of both sides of an interval join go to side output "
                    f"'{tag.tag_id}', but are of two types, {known} and {kind}; use two tags"
                )
                raise ProgramError(message)
        return types
