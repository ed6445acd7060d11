"""The interval join: the situations of Flink's operator test, and against plain Python.

Timestamps stand for the records, as there.  With intervals as short as these a slice of the buffers
is one millisecond, so what they hold can be compared too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.contracts.operator import Checkpoint
from millstream.errors import ProgramError, UserFunctionError
from millstream.functions.descriptors import ValueStateDescriptor
from millstream.functions.functions import ProcessJoinFunction
from millstream.runtime.operators import IntervalJoinFactory
from millstream.testing.harness import OperatorHarness
from millstream.types.output_tag import OutputTag
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.functions.functions import RuntimeContext

LEFT, RIGHT = 0, 1
SIDE = OutputTag("side")

#: (key, timestamp)
Record = tuple[Any, int]


def key_of(record: Record) -> Any:
    return record[0]


class Pair(ProcessJoinFunction):
    """Emits both, having looked at the timestamps."""

    def process_element(
        self, left: Record, right: Record, ctx: ProcessJoinFunction.Context
    ) -> Iterator[tuple[int, int]]:
        assert (ctx.get_left_timestamp(), ctx.get_right_timestamp()) == (left[1], right[1])
        assert ctx.get_timestamp() == max(left[1], right[1])
        yield left[1], right[1]


def harness_of(lower: int, upper: int, **options: Any) -> OperatorHarness:
    tags = options.pop("late_tags", (None, None))
    function = options.pop("function", Pair())
    factory = IntervalJoinFactory(function, (key_of, key_of), (lower, upper), tags)
    return OperatorHarness(factory, **options)


def feed(harness: OperatorHarness, side: int, *stamps: int) -> None:
    for stamp in stamps:
        harness.process(("key", stamp), stamp, side)


def run_one_to_four(harness: OperatorHarness, *, left_first: bool) -> list[object]:
    """One side is ahead; the watermark follows the other."""
    ahead, behind = (LEFT, RIGHT) if left_first else (RIGHT, LEFT)
    feed(harness, ahead, 1, 2, 3, 4)
    for stamp in range(1, 5):
        feed(harness, behind, stamp)
        harness.watermark(stamp)
    assert all(stamp == max(pair) for pair, stamp in harness.records)  # type: ignore[call-overload]
    assert harness.operator.snapshot(Checkpoint(0)).metrics["numLateRecordsDropped"] == 0
    return sorted(harness.outputs)  # type: ignore[type-var]


@pytest.mark.parametrize("left_first", [True, False])
@pytest.mark.parametrize(
    ("lower", "upper", "pairs"),
    [
        (-2, -1, [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)]),
        (
            -1,
            1,
            [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3), (4, 4)],
        ),
        (1, 2, [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]),
        (-2, -2, [(3, 1), (4, 2)]),
        (0, 0, [(1, 1), (2, 2), (3, 3), (4, 4)]),
        (2, 2, [(1, 3), (2, 4)]),
        (1, -1, []),  # (0, 0) with both bounds exclusive
    ],
)
def test_bounds(lower: int, upper: int, pairs: list[Any], left_first: bool) -> None:
    assert run_one_to_four(harness_of(lower, upper), left_first=left_first) == pairs


def buffered(harness: OperatorHarness) -> tuple[list[int], list[int]]:
    """The timestamps that each side keeps."""
    operator: Any = harness.operator
    operator.keyed_state.set_current_key("key")
    left, right = (sorted(side.buffer.keys()) for side in operator._sides)
    return left, right


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize(
    ("lower", "upper", "at_1", "at_4"),
    [
        (-1, 0, ([2, 3, 4, 5], [1, 2, 3, 4, 5]), ([5], [4, 5])),
        (0, 1, ([1, 2, 3, 4, 5], [2, 3, 4, 5]), ([4, 5], [5])),
    ],
)
def test_buffers_are_cleaned_up(lower: int, upper: int, at_1: Any, at_4: Any, cut: bool) -> None:
    harness = harness_of(lower, upper)
    feed(harness, LEFT, 1, 2, 3, 4, 5)
    feed(harness, RIGHT, 1, 2, 3, 4, 5)
    for watermark, expected in ((1, at_1), (4, at_4), (6, ([], []))):
        harness.watermark(watermark)
        assert buffered(harness) == expected
        if cut:
            harness.end_epoch()
            assert buffered(harness) == expected
    assert not [name for name, _ in harness.state_entries() if name[:1] in b"KT" and cut]


@pytest.mark.parametrize("upper", [0, 4, 40])
def test_at_the_watermark(upper: int) -> None:
    """A record that is just over no longer meets one that is just not late."""
    harness = harness_of(0, upper)
    feed(harness, LEFT, 5)
    harness.watermark(5 + upper)
    harness.end_epoch()
    feed(harness, RIGHT, 5 + upper)
    assert harness.outputs == []
    if upper == 0:
        feed(harness, LEFT, 5)  # but those that come after the watermark meet
        assert harness.outputs == [(5, 5)]


def test_restore_from_snapshot() -> None:
    harness = harness_of(-1, 1)
    for stamp in (1, 2, 3):
        feed(harness, LEFT, stamp)
        feed(harness, RIGHT, stamp)
        harness.watermark(stamp)
    assert sorted(harness.outputs) == [  # type: ignore[type-var]
        (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)
    ]  # fmt: skip
    harness.end_epoch()
    harness.records.clear()
    feed(harness, LEFT, 4)
    feed(harness, RIGHT, 4)
    assert sorted(harness.outputs) == [(3, 4), (4, 3), (4, 4)]  # type: ignore[type-var]


@pytest.mark.parametrize(("side", "name"), [(LEFT, "left"), (RIGHT, "right")])
def test_records_without_a_timestamp_are_refused(side: int, name: str) -> None:
    harness = harness_of(0, 0)
    with pytest.raises(ProgramError, match=f"without a timestamp reached the {name} side"):
        harness.process(("key", 0), None, side)
    with pytest.raises(ProgramError, match=f"without a timestamp reached the {name} side"):
        harness.process_all([("key", 0)] * 2, [5, MIN_TIMESTAMP], side)


def test_late_records_are_dropped_and_counted() -> None:
    harness = harness_of(-1, 1)
    for stamp in (1, 2, 3):
        feed(harness, LEFT, stamp)
        feed(harness, RIGHT, stamp)
    harness.watermark(3)
    feed(harness, LEFT, 1)
    for stamp in (4, 5):
        feed(harness, LEFT, stamp)
        feed(harness, RIGHT, stamp)
    assert sorted(harness.outputs) == [  # type: ignore[type-var]
        (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3),
        (3, 4), (4, 3), (4, 4), (4, 5), (5, 4), (5, 5),
    ]  # fmt: skip
    harness.end_epoch()
    assert harness.metrics["numLateRecordsDropped"] == 1
    assert harness.metrics["numRecordsIn"] == 11


def test_late_records_to_side_outputs() -> None:
    harness = harness_of(-1, 1, late_tags=("left", "right"))
    feed(harness, LEFT, 3)
    feed(harness, RIGHT, 3)
    harness.watermark(3)
    for side in (LEFT, RIGHT):
        feed(harness, side, 4)
    harness.process_all([("key", 1), ("key", 5)], [1, 5], LEFT)
    harness.process_all([("key", 2), ("key", 5)], [2, 5], RIGHT)
    assert sorted(harness.outputs) == [  # type: ignore[type-var]
        (3, 3), (3, 4), (4, 3), (4, 4), (4, 5), (5, 4), (5, 5)
    ]  # fmt: skip
    assert harness.side_records == {"left": [(("key", 1), 1)], "right": [(("key", 2), 2)]}
    harness.end_epoch()
    assert harness.metrics["numLateRecordsDropped"] == 0


def test_keys_of_columns_and_of_values_meet() -> None:
    row = Types.TUPLE([Types.LONG(), Types.LONG()])
    harness = harness_of(0, 10, input_type=row)
    harness.process_all([(7, 1), (8, 2)], [1, 2], LEFT, columnar=True)
    harness.end_epoch()
    harness.process_all([(7, 5), (True, 5)], [5, 5], RIGHT)
    assert harness.outputs == [(1, 5)]


class Numbered(ProcessJoinFunction):
    """Counts the pairs of a key; every other one goes to the side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("left"))

    def process_element(self, left: Record, right: Record, ctx: ProcessJoinFunction.Context) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        pair = (number, left[0])
        return [pair] if number % 2 else [(SIDE, pair)]


def test_the_function_has_state_and_side_outputs() -> None:
    harness = harness_of(0, 5, function=Numbered())
    harness.process_all([("a", 1), ("b", 2)], [1, 2], LEFT)
    harness.process_all([("a", 3), ("b", 3)], [3, 3], RIGHT)
    harness.end_epoch()
    harness.process_all([("a", 4), ("b", 4), ("a", 5)], [4, 4, 5], RIGHT)
    assert harness.records == [((1, "a"), 3), ((1, "b"), 3), ((3, "a"), 5)]
    assert harness.side_records["side"] == [((2, "a"), 4), ((2, "b"), 4)]


class Broken(ProcessJoinFunction):
    def process_element(self, left: Record, right: Record, ctx: ProcessJoinFunction.Context) -> Any:
        raise ValueError(left)


def test_an_error_names_the_pair() -> None:
    harness = harness_of(0, 5, function=Broken(), name="near")
    harness.process(("a", 1), 1, LEFT)
    message = r"'near'.*joining record \(\('a', 1\), \('a', 2\)\) \(key 'a'\): ValueError"
    with pytest.raises(UserFunctionError, match=message):
        harness.process(("a", 2), 2, RIGHT)


# -- against plain Python --------------------------------------------------------------------------


class Model:
    """What the join is said to do, with every record in a bucket and every bucket removed on time.

    A bucket is removed by the first watermark, after the bucket was made, that reaches its end.
    """

    def __init__(self, lower: int, upper: int) -> None:
        self.bounds = ((lower, upper), (-upper, -lower))
        self.buffers: tuple[dict[Any, list[int]], ...] = (defaultdict(list), defaultdict(list))
        self.watermark = MIN_TIMESTAMP
        self.pairs: list[Any] = []
        self.late: tuple[list[Any], list[Any]] = ([], [])

    def record(self, side: int, key: object, stamp: int) -> None:
        if stamp < self.watermark:
            self.late[side].append(((key, stamp), stamp))
            return
        self.buffers[side][key].append(stamp)
        lower, upper = self.bounds[side]
        for other in sorted(self.buffers[1 - side][key]):
            if stamp + lower <= other <= stamp + upper:
                pair = (stamp, other) if side == LEFT else (other, stamp)
                self.pairs.append((pair, max(pair)))

    def advance(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        for (_, upper), buffer in zip(self.bounds, self.buffers, strict=True):
            for key, stamps in buffer.items():
                buffer[key] = [stamp for stamp in stamps if stamp + max(upper, 0) > watermark]


KEYS: list[Any] = ["a", ("b", True)]


@st.composite
def actions(draw: st.DrawFn) -> list[Any]:
    """Batches of either side near a time that goes on, watermarks, cuts and failures.

    With little spread, records often lie just at the watermark, where much is decided.
    """
    now = 0
    found: list[Any] = []
    spread = draw(st.sampled_from([1, 2, 8]))
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["batch"] * 6 + ["watermark"] * 3 + ["cut", "stay", "crash"]))
        if kind == "batch":
            records = draw(
                st.lists(
                    st.tuples(st.sampled_from(KEYS), st.integers(now - spread, now + spread)),
                    max_size=6,
                )
            )
            found.append((kind, draw(st.integers(0, 1)), records))
        elif kind == "watermark":
            now += draw(st.integers(0, spread))
            found.append((kind, now - draw(st.integers(0, spread // 2))))
        else:
            found.append((kind,))
    return found


def replay(harness: OperatorHarness, model: Model, steps: list[Any]) -> None:
    """A failure is made undone by doing again all that came after the last cut."""
    since_cut: list[Any] = []
    for step in steps:
        again = [step]
        if step[0] == "crash":
            harness.crash()
            again, since_cut = since_cut, []
        for each in again:
            since_cut.append(each)
            if each[0] == "batch":
                _, side, records = each
                harness.process_all(records, [stamp for _, stamp in records], side)
            elif each[0] == "watermark":
                harness.watermark(each[1])
            else:
                harness.end_epoch(swap=each[0] == "cut")
                since_cut = []
        if step[0] == "batch":
            for key, stamp in step[2]:
                model.record(step[1], key, stamp)
        elif step[0] == "watermark":
            model.advance(step[1])


@examples(120)
@given(
    steps=actions(),
    bounds=st.tuples(st.integers(-2, 1), st.integers(0, 2))
    | st.tuples(st.integers(-20, 20), st.integers(0, 30)),
    tagged=st.booleans(),
)
def test_oracle_interval_join(steps: list[Any], bounds: tuple[int, int], tagged: bool) -> None:
    lower, upper = bounds[0], bounds[0] + bounds[1]
    late_tags = ("left", "right") if tagged else (None, None)
    model = Model(lower, upper)
    with harness_of(lower, upper, late_tags=late_tags) as harness:
        replay(harness, model, steps)
        assert harness.records == model.pairs
        dropped: Any = harness.operator.snapshot(Checkpoint(0)).metrics["numLateRecordsDropped"]
        dropped += harness.metrics.get("numLateRecordsDropped", 0)
        if tagged:
            assert dropped == 0
            for tag, late in zip(("left", "right"), model.late, strict=True):
                assert harness.side_records.get(tag, []) == late
        else:
            assert dropped == len(model.late[0]) + len(model.late[1])
        harness.watermark(10_000)
        harness.end_epoch()
        assert not [name for name, _ in harness.state_entries() if name[:1] in b"KT"]
