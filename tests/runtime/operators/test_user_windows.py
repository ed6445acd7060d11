"""Windows, assigners and evictors of the user's own, in the general window operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.runtime.operators.general_windows import (
    Adding,
    Collecting,
    GapOfValue,
    Listing,
    assert_empty,
    harness_of,
)

from millstream.datastream import WindowFunction
from millstream.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    MergingWindowAssigner,
    TumblingEventTimeWindows,
    Window,
    WindowAssigner,
)
from millstream.errors import UserFunctionError
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    ReduceSpec,
)
from millstream.state.serializers import set_moved_classes
from millstream.types.time import Time


class Labelled(Window):
    """A window type of the user's own."""

    def __init__(self, label: str, end: int) -> None:
        self.label = label
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labelled) and (self.label, self.end) == (other.label, other.end)

    def __hash__(self) -> int:
        return hash((self.label, self.end))

    def __repr__(self) -> str:
        return f"{self.label}<{self.end}"


class ByParity(WindowAssigner[Any, Labelled]):
    def assign_windows(self, element: Any, timestamp: int) -> Any:  # type: ignore[override]
        label = "odd" if element[1] % 2 else "even"
        return [Labelled(label, timestamp - timestamp % 10 + 10)]

    def is_event_time(self) -> bool:
        return True


class Doubling(MergingWindowAssigner[Any, Labelled]):
    """All windows of one label merge."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [Labelled("all", timestamp + 10)]

    def is_event_time(self) -> bool:
        return True

    def merge_windows(self, windows: Any, callback: Any) -> None:
        found = list(windows)
        if len(set(found)) > 1:
            callback.merge(found, max(found, key=lambda window: window.end))


def test_assigners_and_windows_of_the_user() -> None:
    harness = harness_of(ByParity(), ApplySpec(Listing()))
    harness.process_all([("a", 1), ("a", 2), ("a", 3)], [1, 2, 3])
    harness.end_epoch()
    harness.watermark(9)
    assert sorted(harness.records) == [(("a", "even<10", [2]), 9), (("a", "odd<10", [1, 3]), 9)]
    merging = harness_of(Doubling(), ApplySpec(Listing()))
    merging.process(("a", 1), 1)
    merging.end_epoch()
    merging.process_all([("a", 2), ("a", 3)], [7, 2])
    merging.end_epoch()
    merging.watermark(16)
    assert merging.records == [(("a", "all<17", [1, 2, 3]), 16)]
    merging.end_epoch()
    assert_empty(merging)


def test_failing_assigner_names_the_record() -> None:
    class Failing(GapOfValue):
        def extract(self, element: Any) -> int:
            return int(element[1])

    harness = harness_of(EventTimeSessionWindows.with_dynamic_gap(Failing()), ReduceSpec(Adding()))
    with pytest.raises(UserFunctionError, match=r"assigning windows to record \('a', 'x'\)"):
        harness.process(("a", "x"), 1)


class FirstTwoGo(Evictor[Any, Any]):
    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        del elements[:1]

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert evictor_context.get_current_watermark() is not None
        del elements[:1]


@pytest.mark.parametrize("cut", [False, True])
def test_evictor_of_the_user(cut: bool) -> None:
    harness = harness_of(
        GlobalWindows.create(),
        AggregateSpec(Collecting()),
        trigger=CountTrigger.of(2),
        evictor=FirstTwoGo(),
    )
    for number in range(8):
        harness.process(("a", number), number)
        if cut:
            harness.end_epoch()
    assert harness.outputs == [[1], [3], [5], [7]]


@dataclass(frozen=True)
class Old:
    name: str


@dataclass(frozen=True)
class New:
    """What Old is called now."""

    name: str


class ListingAll(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        yield key, list(inputs)


@pytest.mark.parametrize("kind", ["elements", "accumulators"])
@pytest.mark.parametrize(
    "assigner",
    [TumblingEventTimeWindows.of(Time.milliseconds(10)), Doubling()],
    ids=["tumbling", "merging"],
)
def test_contents_and_keys_of_a_class_that_has_moved(
    assigner: Any, kind: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: set_moved_classes({}))
    spec = ApplySpec(ListingAll()) if kind == "elements" else AggregateSpec(Collecting())
    harness = harness_of(assigner, spec, long_lived=False)
    harness.process((Old("a"), Old("x")), 1)
    harness.end_epoch()
    monkeypatch.delitem(globals(), "Old")
    set_moved_classes({f"{__name__}.Old": f"{__name__}.New"})
    harness.crash()
    harness.process((New("a"), New("y")), 2)
    harness.watermark(100)
    found: Any = harness.outputs
    if kind == "elements":
        ((key, records),) = found
        assert type(key) is New
        found = [[value for _, value in records]]
    assert found == [[New("x"), New("y")]]
    assert {type(each) for each in found[0]} == {New}
