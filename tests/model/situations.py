"""A window operator in a situation: records in, and at once what has come out since.

What it is: few words for the tests that build the situations of Flink's operator tests.
What it is not: random; see ``window_programs.py`` for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tests.model.cases import state_of

from millstream.datastream import (
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.datastream import DataStream, WindowedStream
    from millstream.datastream.window import WindowAssigner

__all__ = ["LATE", "Situation", "TellSum", "TellSumInProcess", "add", "total"]

LATE = OutputTag("late")


def add(one: Any, other: Any) -> Any:
    """(key, sum)."""
    return one[0], one[1] + other[1]


def total(key: Any, window: Any, inputs: Iterable[Any]) -> Iterator[Any]:
    """(key, sum) over all elements."""
    yield key, sum(value for _, value in inputs)


class TellSum(WindowFunction[Any, Any, Any, Any]):
    """("key-sum", start, end)."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterator[Any]:
        yield f"{key}-{sum(value for _, value in inputs)}", window.start, window.end


class TellSumInProcess(ProcessWindowFunction[Any, Any, Any, Any]):
    """("key-sum", start, end)."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        window = context.window()
        yield f"{key}-{sum(value for _, value in elements)}", window.start, window.end


class Situation:
    """One operator.  Records are (key, value); what it emits is told as (result, timestamp)."""

    def __init__(
        self, assigner: WindowAssigner[Any, Any], build: Callable[[WindowedStream], DataStream]
    ) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_collection([("", 0)]).key_by(lambda record: record[0]).window(assigner)
        made = build(stream)
        factory = made._transformation.factory  # type: ignore[attr-defined] # one input
        self.harness = OperatorHarness(factory, side_types={LATE.tag_id: made.get_type()})
        self._seen = self._seen_late = 0

    def records(self, key: str, *items: tuple[int, int]) -> Self:
        """(value, timestamp) of this key, one by one."""
        for value, timestamp in items:
            self.harness.process((key, value), timestamp)
        return self

    def values(self, key: str, *values: int) -> Self:
        """Records of this key without timestamps, one by one."""
        for value in values:
            self.harness.process((key, value))
        return self

    def watermark(self, *times: int) -> Self:
        for time in times:
            self.harness.watermark(time)
        return self

    def now(self, time: int) -> Self:
        """Processing time goes on."""
        self.harness.processing_time(time)
        return self

    def restored(self) -> Self:
        """The state is written, and read by another instance."""
        self.harness.end_epoch()
        return self

    def gives(self, *expected: tuple[Any, int]) -> Self:
        """What came out since this was asked last, in any order."""
        fresh = self.harness.records[self._seen :]
        self._seen = len(self.harness.records)
        assert sorted(fresh, key=repr) == sorted(expected, key=repr)
        return self

    def late(self, *expected: tuple[Any, int]) -> Self:
        """What came too late since this was asked last."""
        late = self.harness.side_records.get(LATE.tag_id, [])
        fresh, self._seen_late = late[self._seen_late :], len(late)
        assert fresh == list(expected)
        return self

    def forgets_everything(self) -> None:
        """No state is left behind."""
        self.harness.end_epoch()
        assert state_of(self.harness) == []
